"""What can go wrong on the gateway's side, and what it means for the caller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lambda_kernel.contract.schema import InvalidField


class GatewayError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        http_status: what a REST caller gets.
    """

    http_status = 500


class ConfigError(GatewayError):
    """A setting or a configuration file is wrong; the message says which and what to do."""

    @classmethod
    def in_table(cls, problem: InvalidField, name: str, index: int) -> ConfigError:
        """Return the error about a field of the table ``name`` of this number, from 0."""
        path = problem.path
        if path.startswith(f"{name}."):
            path = f"{name}[{index}].{path.removeprefix(f'{name}.')}"
        return cls(f"{path}: {problem.problem}")


class StartError(GatewayError):
    """A part of the service cannot start here; the message says why and what to do."""


class NotFound(GatewayError):
    """The kernel, file or kernelspec does not exist, or is not the caller's to see."""

    http_status = 404


class Forbidden(GatewayError):
    """The caller may see this but not do that."""

    http_status = 403


class BadRequest(GatewayError):
    """The request itself is wrong; the message names the field."""

    http_status = 400


class Conflict(GatewayError):
    """What is there already does not admit this."""

    http_status = 409


class PreconditionFailed(GatewayError):
    """A conditional write found another writer's object."""

    http_status = 412


class StorageError(GatewayError):
    """S3 did not answer, or refused."""

    http_status = 503


class HeldElsewhere(GatewayError):
    """Another gateway on the same buckets serves this.

    Attributes:
        lease_id: under which it does.
        url: where that gateway is reached; None = not from here.
        retry_after_s: so long nobody else may serve it, even if that gateway is gone.
    """

    http_status = 503

    def __init__(
        self, lease_id: str, *, replica_id: str, url: str | None, retry_after_s: float
    ) -> None:
        where = f"at {url}" if url else "which has no --replica-url, so nothing can be sent there"
        super().__init__(
            f"the kernel is served by another gateway, {replica_id}, {where}; if that one has "
            f"ended, the kernel is taken over here after {retry_after_s:.0f} s"
        )
        self.lease_id = lease_id
        self.url = url
        self.retry_after_s = retry_after_s


class Moved(GatewayError):
    """Another gateway has taken this over while it was served here; connect again."""

    http_status = 503


class InvokeError(GatewayError):
    """Base of what an Invoke can end with; ``started`` says whether user code may have run."""

    started: Started


class Started(StrEnum):
    """Whether the cell's code began to run."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class InvokeThrottled(InvokeError):
    """429: no container is free. Nothing started; the request may be sent again."""

    http_status = 429
    started = Started.NO


class InvokeNotSent(InvokeError):
    """The connection could not be made, or the request was refused before it ran."""

    http_status = 503
    started = Started.NO


class InvokeRefused(InvokeNotSent):
    """Lambda refused the request itself; sending it again would not help."""


class LeaseLost(InvokeRefused):
    """This gateway may not send cells of the kernel any more."""


class InvokeBroken(InvokeError):
    """The container or the connection was lost after the request was sent."""

    http_status = 502
    started = Started.UNKNOWN


class InvokeTimedOut(InvokeError):
    """Lambda ended the invocation at the function's own limit."""

    http_status = 504
    started = Started.YES


class ForgedStream(InvokeError):
    """The response stream is not authentic; what it said is not believed."""

    http_status = 502
    started = Started.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error a client sees that is not the user's own exception.

    Attributes:
        ename: the error's name on the wire.
        started: whether the cell's code began to run, None where the outcome tells.
        text: what happened, in one sentence.
    """

    ename: str
    started: Started | None
    text: str


CELL_TIMEOUT = Failure(
    ename="CellTimeout", started=Started.YES, text="the cell ran into its time limit"
)
CELL_OUT_OF_MEMORY = Failure(
    ename="CellOutOfMemory",
    started=Started.YES,
    text="the cell's processes held more memory than the environment allows",
)
CELL_PROCESS_DIED = Failure(
    ename="CellProcessDied",
    started=Started.YES,
    text="the cell's process ended before the cell did",
)
CELL_INTERRUPTED = Failure(
    ename="CellInterrupted", started=Started.YES, text="the cell was interrupted and stopped"
)
CONTAINER_DIED = Failure(
    ename="ContainerDied",
    started=Started.UNKNOWN,
    text="the container, or the connection to it, was lost while the cell was in flight",
)
KERNEL_MOVED = Failure(
    ename="KernelMoved",
    started=None,
    text="another gateway has taken over this kernel; connect again and look at its variables",
)
STORAGE_UNAVAILABLE = Failure(
    ename="StorageUnavailable", started=None, text="S3 or STS did not answer"
)
THROTTLED = Failure(ename="Throttled", started=Started.NO, text="no container became free in time")
PAYLOAD_TOO_LARGE = Failure(
    ename="PayloadTooLarge", started=Started.NO, text="the request is larger than allowed"
)
WORKSPACE_TOO_LARGE = Failure(
    ename="WorkspaceTooLarge",
    started=Started.NO,
    text="the workspace does not fit into the environment's ephemeral storage",
)
SNAPSHOT_TOO_LARGE = Failure(
    ename="SnapshotTooLarge",
    started=Started.YES,
    text="the session's variables are larger than a snapshot may be",
)
INVALID_CODE = Failure(
    ename="InvalidCode", started=Started.NO, text="the code cannot be sent as it is"
)
REQUEST_REFUSED = Failure(
    ename="RequestRefused",
    started=Started.NO,
    text="the container refused the request of the gateway",
)
RESULT_LOST = Failure(
    ename="ResultLost",
    started=Started.YES,
    text="the cell ran, but what it changed could not be committed",
)
FORGED_OUTCOME = Failure(
    ename="ForgedOutcome",
    started=Started.UNKNOWN,
    text="the response stream was not authentic and is not believed",
)
PROBE_FAILED = Failure(
    ename="ProbeFailed",
    started=Started.NO,
    text="the container's isolation is weaker than the environment demands",
)
AUDIT_UNAVAILABLE = Failure(
    ename="AuditUnavailable", started=Started.NO, text="the audit journal cannot be written"
)
CELL_LOST = Failure(
    ename="CellLost",
    started=Started.UNKNOWN,
    text="the gateway ended while the cell was in flight, before it had committed",
)
