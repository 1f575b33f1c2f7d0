"""The commit of a cell: manifest ``<seq>`` in the state bucket, the only commit point."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import Outcome
from lambda_kernel.contract.schema import InvalidField, decode, encode

SCHEMA = 2
ACCEPTED_SCHEMAS = (2,)
CHUNK_BYTES = 4 * 1024 * 1024
"""What an object is cut into; its last chunk may be shorter."""
COMMIT_BYTES = 64 * 1024 * 1024
"""What a stored commit may unpack to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Stored bytes: inside the commit (base64) or a blob of the scope.

    Attributes:
        digest: SHA-256, hex.
        size_bytes: how many they are.
        inline: the bytes; None where they are stored under ``keys.blob_key``.
        day: when they were stored, in days since 1970 (UTC): a part of the key.
    """

    digest: str
    size_bytes: int
    inline: str | None = None
    day: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a session: bytes whose meaning only a child knows.

    Attributes:
        id: greater than 0, unique in the namespace.
        size_bytes: of all its chunks.
        chunks: in order; CHUNK_BYTES each but the last.
    """

    id: int
    size_bytes: int
    chunks: tuple[Blob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The session's variables, as the child wrote them; only a child opens the objects.

    Attributes:
        objects: in the order of their ids.
        index: id of the object that describes the others; 0 for an empty session.
        python: ``major.minor`` that wrote it.
    """

    objects: tuple[StoredObject, ...] = ()
    index: int = 0
    python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """One file of the workspace as it was when the cell committed."""

    key: str
    version_id: str | None
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What cell ``seq`` of a kernel left.

    A *void* commit holds its ``seq`` so that no late writer can take it: the cell is lost and the
    state is that of ``parent``. ``outcome`` is None only there; else it is the outcome as it
    was just before the commit, which cannot hold its own digest: ``adopt`` completes it.
    ``parent_kernel_id`` names the kernel that ``parent`` is a commit of, where it is another.
    """

    schema: int = SCHEMA
    kernel_id: str
    scope_hash: str
    seq: int
    parent: Head | None
    parent_kernel_id: str | None = None
    void: bool = False
    request_id: str
    execution_count: int
    files: tuple[CommittedFile, ...] = ()
    home_head: str | None = None
    namespace: Namespace = field(default_factory=Namespace)
    outcome: Outcome | None = None
    reply: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schema not in ACCEPTED_SCHEMAS:
            raise InvalidField("commit.schema", f"must be one of {ACCEPTED_SCHEMAS}")
        if self.void == (self.outcome is not None):
            raise InvalidField("commit.outcome", "must be present unless the commit is void")

    def to_bytes(self) -> bytes:
        """Return the stored form: JSON, deflated."""
        text = json.dumps(encode(self), separators=(",", ":"), ensure_ascii=True)
        return zlib.compress(text.encode("ascii"), 1)

    def adopt(self, stored: bytes) -> Outcome:
        """Return the outcome of a committed cell whose response never arrived.

        Args:
            stored: the bytes this commit was read from.

        Raises:
            ValueError: the commit is void; there is no outcome.
        """
        if self.outcome is None:
            raise ValueError(f"commit {self.seq} is void")
        head = Head(seq=self.seq, digest=digest_of(stored))
        return replace(self.outcome, committed=True, head=head)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Commit:
        """Return the commit in ``stored``.

        Raises:
            InvalidField: it is not one, or not of a schema this version reads.
        """
        inflater = zlib.decompressobj()
        try:
            text = inflater.decompress(stored, COMMIT_BYTES)
        except zlib.error:
            raise InvalidField("commit", "is not deflated JSON") from None
        if inflater.unconsumed_tail or not inflater.eof:
            raise InvalidField("commit", "is cut short or larger than allowed")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidField("commit", "is not JSON") from None
        # Before its fields, which are others in another version.
        if isinstance(data, dict) and data.get("schema") not in ACCEPTED_SCHEMAS:
            raise InvalidField(
                "commit.schema",
                f"is {str(data.get('schema'))!r:.40}, this version reads {ACCEPTED_SCHEMAS}: use "
                "the version of the gateway that wrote it, or restart the kernel, which empties "
                "the namespace and keeps the files",
            )
        return decode(cls, data, "commit")


def digest_of(stored: bytes) -> str:
    """Return the SHA-256 of ``stored`` in hex."""
    return hashlib.sha256(stored).hexdigest()
