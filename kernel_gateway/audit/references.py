"""Objects beside a journal that its entries name by digest."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator

from kernel_gateway.audit.chain import CellFinished, CellStarted, Event
from kernel_gateway.errors import GatewayError
from kernel_gateway.objects import ObjectStore
from kernel_gateway.retention import ObjectLock
from lambda_kernel.contract import keys

logger = logging.getLogger(__name__)

KNOWN_COUNT = 10_000
"""So many objects are remembered as stored."""


def blobs_of(event: Event) -> tuple[str, ...]:
    """Return the digests of all objects that an entry names, outputs first, each once."""
    return tuple(dict.fromkeys(digest for digest in _named(event) if digest is not None))


def lists_of(event: Event) -> tuple[str, ...]:
    """Return those that hold nothing that the cell said: its policy, packages, lists of files."""
    said = event.outputs.blob if isinstance(event, CellFinished) else None
    return tuple(digest for digest in blobs_of(event) if digest != said)


def _named(event: Event) -> Iterator[str | None]:
    if isinstance(event, CellStarted) and event.gateway is not None:
        yield event.gateway.credentials.policy_template
    if not isinstance(event, CellFinished):
        return
    yield event.outputs.blob
    said = event.handler
    if said is None:
        return
    yield said.packages
    yield None if said.inputs is None else said.inputs.blob
    yield None if said.workspace is None else said.workspace.blob


class BlobShelf:
    """Stores such objects, each once, beside the entries and never before a cell is sent.

    Args:
        store: S3.
        bucket: the records bucket.
        lock: of every object; None = what the bucket itself says.
    """

    def __init__(self, store: ObjectStore, bucket: str, lock: ObjectLock | None = None) -> None:
        self._store = store
        self._bucket = bucket
        self._lock = lock
        self._stored: dict[str, None] = {}
        self._missing: dict[str, bytes] = {}
        self._writing: asyncio.Task[None] | None = None

    def keep(self, kernel_id: str, body: bytes) -> str:
        """Have ``body`` stored beside a kernel's journal, where it is not, and return its digest.

        What cannot be stored is tried again with the next one, and by `flush`.
        """
        digest = hashlib.sha256(body).hexdigest()
        key = keys.audit_blob_key(kernel_id, digest)
        if key not in self._stored:
            self._missing[key] = body
        if self._missing and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
            self._writing.add_done_callback(self._written)
        return digest

    async def flush(self) -> None:
        """Wait until all that was kept was tried to be stored."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._missing:
            await self._write()

    async def _write(self) -> None:
        while self._missing:
            key, body = next(iter(self._missing.items()))
            try:
                await self._store.put(self._bucket, key, body, lock=self._lock)
            except GatewayError:
                logger.warning("an object of the journal was not stored yet", exc_info=True)
                return
            self._missing.pop(key, None)
            self._stored[key] = None
            if len(self._stored) > KNOWN_COUNT:
                del self._stored[next(iter(self._stored))]

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
