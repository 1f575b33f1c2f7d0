"""The durable record of a kernel: what a restarted gateway must know that commits do not say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from kernel_gateway.errors import StorageError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.position import Origin
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.schema import InvalidField, decode, encode

SCHEMA = 1
ACCEPTED_SCHEMAS = (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """One kernel. Written when it starts, restarts or changes hands, never per cell.

    Attributes:
        schema: version of this form.
        kernel_id: a lower-case UUID.
        spec_name: the kernelspec.
        owner: whose it is.
        options: what the client chose.
        workdir_name: 32 hex digits, drawn once.
        created: ISO 8601, UTC.
        epoch: counts restarts and changes of hands; the fencing number of its invocations.
        restarts: how often it was restarted.
        floor_seq: commits up to this number belong to before the last restart.
        origin: where it was forked, if it was, and was not restarted since.
        holder: the lease of the gateway that serves it, or served it last.
        seeds: what its random number generators begin with; none in a fork, see Invocation.
        opened_by: who started it; None for a replay, whose cells say it, and where it is not known.
    """

    schema: int = SCHEMA
    kernel_id: str
    spec_name: str
    owner: Identity
    options: KernelOptions
    workdir_name: str
    created: str
    epoch: int = 0
    restarts: int = 0
    floor_seq: int = 0
    origin: Origin | None = None
    holder: str | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    opened_by: Actor | None = None

    def __post_init__(self) -> None:
        names.check_kernel_id(self.kernel_id, "record.kernel_id")
        if self.schema not in ACCEPTED_SCHEMAS:
            raise InvalidField("record.schema", f"must be one of {ACCEPTED_SCHEMAS}")

    def to_bytes(self) -> bytes:
        """Return the stored form, JSON."""
        return json.dumps(encode(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> KernelRecord:
        """Return the record in ``stored`` (raises InvalidField)."""
        try:
            data = json.loads(stored)
        except (ValueError, RecursionError):
            raise InvalidField("record", "is not JSON") from None
        return decode(cls, data, "record")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStore:
    """The records bucket, which only the gateway reaches."""

    store: ObjectStore
    bucket: str

    async def create(self, record: KernelRecord) -> str:
        """Store a new record and return its ETag (raises PreconditionFailed, StorageError)."""
        key = keys.kernel_record_key(record.kernel_id)
        return await self.store.put(self.bucket, key, record.to_bytes(), if_absent=True)

    async def change(self, record: KernelRecord, etag: str) -> str:
        """Replace the record that has ``etag`` and return the new one.

        Raises:
            PreconditionFailed: another gateway changed it.
            StorageError: S3 does not answer.
        """
        key = keys.kernel_record_key(record.kernel_id)
        return await self.store.put(self.bucket, key, record.to_bytes(), if_match=etag)

    async def delete(self, kernel_id: str) -> None:
        """Delete the record."""
        await self.store.delete(self.bucket, keys.kernel_record_key(kernel_id))

    async def read(self, kernel_id: str) -> tuple[KernelRecord, str]:
        """Return the record and its ETag.

        Raises:
            NotFound: there is none.
            StorageError: S3 does not answer, or the record cannot be read.
        """
        found = await self.store.get(self.bucket, keys.kernel_record_key(kernel_id))
        try:
            return KernelRecord.from_bytes(found.body), found.etag
        except InvalidField as problem:
            raise StorageError(f"the record of kernel {kernel_id}: {problem}") from problem

    async def etags(self) -> dict[str, str]:
        """Return the ETags of all records by kernel id."""
        prefix, suffix = keys.kernel_record_key("").split(".")
        return {
            entry.key.removeprefix(prefix).removesuffix(f".{suffix}"): entry.etag
            async for entry in self.store.entries(self.bucket, prefix)
        }
