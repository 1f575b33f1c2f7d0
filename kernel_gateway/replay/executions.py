"""An execution as entries say it: how it ended, what it showed, its files and variables."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_gateway.audit.chain import CellFinished
from kernel_gateway.audit.view import shown_outputs
from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.variables import (
    HIDDEN_NAMES,
    bytes_of,
    damage_told,
    description_of,
    parsed,
)
from kernel_gateway.objects import ObjectStore
from kernel_gateway.replay.cells import Execution
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, StoredObject, digest_of
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

PACK_BYTES = 8 << 20
"""Of a larger object the digests of its chunks are enough."""


def execution_of(finished: CellFinished) -> Execution:
    """Return an execution, whose messages were brought in, without its variables."""
    content = {} if finished.reply is None else finished.reply.content
    ename = content.get("ename") if finished.status != "ok" else None
    changes = () if finished.handler is None else finished.handler.files
    run_ms = None if finished.gateway is None else finished.gateway.timings_ms.get("run")
    return Execution(
        status=finished.status,
        ename=finished.failure or (ename if isinstance(ename, str) else None),
        outputs=tuple(shown_outputs(finished.outputs.messages, None)),
        files={change.path: change.digest for change in changes},
        duration_s=None if run_ms is None else run_ms / 1000,
        answers=finished.answers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Whose commit says which variables there are.

    Attributes:
        finished: the cell's end.
        kernel_id, scope: whose commit it is.
        source: whose chunks it names, too.
        commit: that commit, where it was read before.
    """

    finished: CellFinished
    kernel_id: str
    scope: Scope
    source: Scope | None = None
    commit: Commit | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Where its chunks are; what is the same as recorded is in the source."""
        return (self.scope,) if self.source is None else (self.source, self.scope)


async def with_state(
    execution: Execution, recorded: Recorded, store: ObjectStore, bucket: str
) -> Execution:
    """Return an execution with digests of its variables, where its commit is still there."""
    head = recorded.finished.head
    if head is None:
        return execution
    try:
        commit = recorded.commit
        if commit is None:
            key = keys.commit_key(recorded.scope, recorded.kernel_id, head.seq)
            stored = (await store.get(bucket, key)).body
            if digest_of(stored) != head.digest:
                return execution
            commit = Commit.from_bytes(stored)
        described = await description_of(commit, store, bucket, *recorded.scopes)
        if described is None:
            return replace(execution, state={})
        objects = {each.id: each for each in commit.namespace.objects}
        packs: dict[int, bytes] = {}
        state: dict[str, str] = {}
        for row in _changed(*described, commit.execution_count):
            found = objects[row.object_id]
            if found.id not in packs and found.size_bytes <= PACK_BYTES:
                packs[found.id] = await bytes_of(found, store, bucket, *recorded.scopes)
            digest = _digest_of(row, objects, packs.get(row.object_id))
            state |= dict.fromkeys(row.names, digest)
        return replace(execution, state=state)
    except (GatewayError, InvalidField, LookupError):
        logger.info("the variables of a cell are not known any more", exc_info=True)
        return execution


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Where variables are stored."""

    names: tuple[str, ...]
    object_id: int
    offset: int
    size_bytes: int
    buffers: tuple[int, ...] = ()


def _changed(stored: bytes, parts: Mapping[int, bytes], count: int) -> list[_Row]:
    """Return what the cell with this number has stored (raises VariablesUnreadable)."""
    found = []
    with damage_told():
        for names, (object_id, offset, size_bytes), buffers, cell in _rows(parsed(stored), parts):
            shown = tuple(name for name in names if _is_shown(name))
            if cell == count and shown:
                row = _Row(
                    names=shown,
                    object_id=int(object_id),
                    offset=int(offset),
                    size_bytes=int(size_bytes),
                    buffers=tuple(map(int, buffers)),
                )
                found.append(row)
    return found


def _rows(
    data: dict[str, Any], parts: Mapping[int, bytes]
) -> Iterator[tuple[Sequence[str], Any, Any, Any]]:
    for number, gone in data.get("settled", ()):
        part, left_out = json.loads(parts[number]), set(gone)
        numbers = [start + i for start, count in part["numbers"] for i in range(count)]
        rows = zip(*json.loads(part["rest"]), strict=True)
        names = part["names"].split(" ")
        for name, own, (_, *pickle, cell) in zip(names, numbers, rows, strict=True):
            if own not in left_out:
                yield [name], pickle, [], cell
    for _, names, _, _, _, pickle, buffers, _, cell in data["components"]:
        yield list(names), pickle, buffers, cell


def _digest_of(row: _Row, objects: Mapping[int, StoredObject], pack: bytes | None) -> str:
    """Return a digest of the bytes, or of the digests of their chunks where they are many."""
    digest = hashlib.sha256()
    if pack is not None:
        digest.update(pack[row.offset : row.offset + row.size_bytes])
    else:
        _take_chunks(objects[row.object_id], digest)
    for number in row.buffers:
        _take_chunks(objects[number], digest)
    return digest.hexdigest()


def _take_chunks(stored: StoredObject, digest: hashlib._Hash) -> None:
    for chunk in stored.chunks:
        digest.update(chunk.digest.encode())


def _is_shown(name: str) -> bool:
    return name not in HIDDEN_NAMES and name[:1] not in "<(" and name != "__warningregistry__"
