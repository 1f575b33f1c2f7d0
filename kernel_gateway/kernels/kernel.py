"""One kernel: its queue, its count, its state; no process and, while idle, no task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from kernel_gateway.environments.environment import Environment
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.state import ExecutionState
from kernel_gateway.messaging.message import InMessage, OutMessage

Sink = Callable[[OutMessage], None]
"""Takes a message for one client; called on the event loop's thread, must not block or raise."""


class LambdaKernel:
    """A kernel whose cells are Lambda invocations.

    Attributes:
        kernel_id: a lower-case UUID.
        spec_name: the kernelspec it was started with.
        environment: where its cells run.
        owner: the (user, agent) it belongs to and runs as.
        options: what the client chose when starting it.
        execution_state: see `ExecutionState`.
        execution_count: of the last cell that took a number; 0 before the first.
        last_activity: when a message came or went last (aware).
        reason: why it is dead, else "".
        restarts: how often it was restarted.
        last_timings_ms: milliseconds per step of the last cell (architecture.md's nine words).
    """

    kernel_id: str
    spec_name: str
    environment: Environment
    owner: Identity
    options: KernelOptions
    execution_state: ExecutionState
    execution_count: int
    last_activity: datetime
    reason: str
    restarts: int
    last_timings_ms: dict[str, float]

    @property
    def connections(self) -> int:
        """How many clients are attached."""
        raise NotImplementedError

    def attach(self, sink: Sink) -> None:
        """Send iopub messages to ``sink`` from now on, kept messages first."""
        raise NotImplementedError

    def detach(self, sink: Sink) -> None:
        """Send ``sink`` nothing more; nothing happens where it is not attached."""
        raise NotImplementedError

    def receive(self, message: InMessage, sink: Sink) -> None:
        """Answer, queue or log a message; the reply goes to ``sink``. Never raises."""
        raise NotImplementedError

    def receive_raw(
        self,
        data: object,
        sink: Sink,
        *,
        buffers: Sequence[bytes | memoryview] = (),
        channel: str | None = None,
    ) -> None:
        """Read a message from decoded JSON and `receive` it.

        What is not a message is logged and answered with an ``error`` on iopub for ``sink`` only.
        """
        raise NotImplementedError

    async def interrupt(self) -> None:
        """Have the running cell killed (CellInterrupted); nothing happens while idle."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Abort everything, kill the running cell, empty the namespace; the id stays."""
        raise NotImplementedError

    async def shutdown(self) -> None:
        """Abort everything, kill the running cell; the kernel is dead. Use the registry's."""
        raise NotImplementedError
