"""What one invocation did: the last frame of its response stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField, decode, encode
from lambda_kernel.contract.witness import Witness

SCHEMA = 1
ACCEPTED_SCHEMAS = (1,)


class Status(StrEnum):
    """How the cell ended, as the serving process saw it."""

    OK = "ok"
    ERROR = "error"
    """The user's code raised; its variables and files are committed all the same."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    PROCESS_DIED = "process_died"
    INTERRUPTED = "interrupted"
    """Killed on request: nothing is committed."""
    STORAGE_UNAVAILABLE = "storage_unavailable"
    """S3 or STS did not answer; ``started`` says whether the cell had run."""
    WORKSPACE_TOO_LARGE = "workspace_too_large"
    SNAPSHOT_TOO_LARGE = "snapshot_too_large"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    PROBE_FAILED = "probe_failed"
    INVALID_REQUEST = "invalid_request"
    """The invocation itself was refused; nothing started."""
    COMMIT_CONFLICT = "commit_conflict"
    """Another writer (or a void record) holds this ``seq``: the cell is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file that the cell created, modified or deleted.

    Attributes:
        path: relative to the workspace (the mirrored prefix).
        change: what happened to it.
        key: the full key in the workspaces bucket.
        version_id: the version written (of the delete marker for a deletion).
        digest: SHA-256 hex; None for a deletion or a folder.
        size_bytes: 0 for a deletion or a folder.
    """

    path: str
    change: Literal["created", "modified", "deleted"]
    key: str
    version_id: str | None = None
    digest: str | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostName:
    """A variable that will not exist in the next cell, and why."""

    name: str
    type: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What this container's isolation really is, measured when it started.

    Attributes:
        tier: ``process``, ``namespaces`` or ``platform``.
        clean_environment: no credential is left in the serving process's environment.
        non_dumpable: every attack of a child on every other process was refused.
        memory_limit: ``cgroup``, ``sampled`` or ``none``.
        refused: one field per attack: whether it was refused by every process there is.
        reasons: why a field is false, or the tier not the one demanded.
    """

    tier: str
    clean_environment: bool
    non_dumpable: bool
    memory_limit: str
    refused: dict[str, bool] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one invocation.

    Attributes:
        schema: version of this form.
        status: how the cell ended.
        started: whether user code had begun to run.
        committed: whether the commit ``seq`` exists.
        head: the commit of this cell, where committed.
        message: what went wrong, for people; empty where nothing did.
        files: what the cell changed.
        home_head: digest of the HOME this cell left, or None for an empty one.
        lost: variables that will not be carried.
        probe: the container's isolation.
        timings_ms: duration per step (``narrow``, ``rehydrate``, ``run``, ``persist``).
        aws_calls: AWS requests made.
        aws_sequential: the longest chain of them, one waiting for the other.
        tainted: the sweep could not clean up; the container ends itself.
        container_id: which warm container ran it.
        aws_request_id: Lambda's id of the invocation.
        peak_memory_bytes: of the cell's processes, sampled.
        fetched_bytes: of the session's variables, read from S3.
        stored_bytes: of the session's variables, written to S3 beside the commit.
        witness: what else was seen, for the audit trail; None of a request that commits nothing.
        nonce: that of the invocation.
    """

    schema: int = SCHEMA
    status: Status
    started: bool
    committed: bool
    head: Head | None = None
    message: str = ""
    files: tuple[FileChange, ...] = ()
    home_head: str | None = None
    lost: tuple[LostName, ...] = ()
    probe: Probe | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    aws_calls: int = 0
    aws_sequential: int = 0
    tainted: bool = False
    container_id: str = ""
    aws_request_id: str = ""
    peak_memory_bytes: int = 0
    fetched_bytes: int = 0
    stored_bytes: int = 0
    witness: Witness | None = None
    nonce: str

    def __post_init__(self) -> None:
        if self.schema not in ACCEPTED_SCHEMAS:
            raise InvalidField("outcome.schema", f"must be one of {ACCEPTED_SCHEMAS}")
        if self.committed and self.head is None:
            raise InvalidField("outcome.head", "is missing although the cell committed")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        result: dict[str, Any] = encode(self)
        return result

    @classmethod
    def from_dict(cls, data: object) -> Outcome:
        """Return the outcome that ``data`` describes (raises InvalidField naming the field)."""
        return decode(cls, data, "outcome")
