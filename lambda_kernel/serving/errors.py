"""Why an invocation did not end with a committed cell: one class per status of the contract."""

from __future__ import annotations

from typing import ClassVar

from lambda_kernel.contract.outcome import Status


class CellEnded(Exception):
    """The invocation ends here, uncommitted; ``str()`` is the message for the client."""

    status: ClassVar[Status] = Status.PROCESS_DIED


class InvalidRequest(CellEnded):
    """The invocation is refused before anything starts; a retry will be refused again."""

    status = Status.INVALID_REQUEST


class ProbeFailed(CellEnded):
    """The container's isolation is worse than demanded; another container may do."""

    status = Status.PROBE_FAILED


class StorageUnavailable(CellEnded):
    """S3 or STS did not answer or refused; a later cell may succeed."""

    status = Status.STORAGE_UNAVAILABLE


class CredentialsExpired(StorageUnavailable):
    """The execution role's credentials have run out; another container has fresh ones."""


class ObjectNotFound(StorageUnavailable):
    """There is no such object."""


class PreconditionFailed(StorageUnavailable):
    """A conditional write lost against another writer."""


class WorkspaceTooLarge(CellEnded):
    """The workspace does not fit into the container; choosing projects makes it smaller."""

    status = Status.WORKSPACE_TOO_LARGE


class SnapshotTooLarge(CellEnded):
    """The session's variables are larger than what may be stored."""

    status = Status.SNAPSHOT_TOO_LARGE


class PayloadTooLarge(CellEnded):
    """The reply of the cell is larger than what the response stream takes."""

    status = Status.PAYLOAD_TOO_LARGE


class CommitConflict(CellEnded):
    """Another writer, or a void record, holds this ``seq``."""

    status = Status.COMMIT_CONFLICT


class CellTimeout(CellEnded):
    """The cell was stopped at its deadline."""

    status = Status.TIMEOUT


class CellOutOfMemory(CellEnded):
    """The cell's processes held more memory than they may."""

    status = Status.OUT_OF_MEMORY


class CellProcessDied(CellEnded):
    """The cell's process ended before it replied."""

    status = Status.PROCESS_DIED


class CellInterrupted(CellEnded):
    """The cell was killed on request."""

    status = Status.INTERRUPTED
