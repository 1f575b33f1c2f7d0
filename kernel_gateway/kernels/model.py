"""What listings and the REST model may know of a kernel."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from datetime import datetime

from kernel_gateway.environments.environment import Environment
from kernel_gateway.kernels.clocks import Clocks
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.outlet import Outlet, Sink
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.kernels.state import ExecutionState, KernelEvent, next_state
from lambda_kernel.contract.scope import Scope

STEPS = (
    "receive",
    "admit",
    "plan",
    "invoke",
    "narrow",
    "rehydrate",
    "run",
    "persist",
    "publish",
)
"""Source: architecture.md, "One execute_request"."""


class KernelModel:
    """The readable side of a kernel: what it is, and what it says.

    Attributes:
        environment: where its cells run.
        execution_state: see `ExecutionState`.
        reason: why it is dead, else "".
    """

    __slots__ = (
        "__weakref__",
        "_lineage",
        "_outlet",
        "_timings_ms",
        "environment",
        "execution_state",
        "reason",
    )

    def __init__(self, lineage: Lineage, environment: Environment, *, clocks: Clocks) -> None:
        self.environment = environment
        self.execution_state = ExecutionState.STARTING
        self.reason = ""
        self._lineage = lineage
        self._outlet = Outlet(self._session_id(), clocks=clocks)
        self._timings_ms: array[float] | None = None

    @property
    def kernel_id(self) -> str:
        """A lower-case UUID."""
        return self._lineage.record.kernel_id

    @property
    def spec_name(self) -> str:
        """The kernelspec it was started with."""
        return self._lineage.record.spec_name

    @property
    def owner(self) -> Identity:
        """The (user, agent) it belongs to and runs as."""
        return self._lineage.record.owner

    @property
    def options(self) -> KernelOptions:
        """What the client chose when starting it."""
        return self._lineage.record.options

    @property
    def scope(self) -> Scope:
        """Whose HOME and state its cells see."""
        return self._lineage.scope

    @property
    def record(self) -> KernelRecord:
        """What is durable of it."""
        return self._lineage.record

    @property
    def etag(self) -> str:
        """The ETag of its record."""
        return self._lineage.etag

    @property
    def is_held(self) -> bool:
        """Whether this gateway serves it, as far as is known here."""
        return self._lineage.is_held

    async def hold(self) -> None:
        """Have no other gateway serve it; raises as `Lineage.hold` does."""
        await self._lineage.hold()

    @property
    def epoch(self) -> int:
        """How often it was restarted or changed hands; the epoch of its invocations."""
        return self._lineage.record.epoch

    @property
    def execution_count(self) -> int | None:
        """The number of the last cell that took one; 0 before the first.

        Of a kernel that an earlier gateway started it is None until somebody asks for that kernel.
        """
        return self._lineage.known_count

    async def learn_count(self) -> None:
        """Make `execution_count` known, whoever ran the cells (raises StorageError)."""
        if self.execution_count is None:
            await self._lineage.look()

    def continue_at(self, count: int) -> None:
        """Have the next cell show the number after this one."""
        self._lineage.execution_count = max(count, 0)

    @property
    def last_activity(self) -> datetime:
        """When a message came or went last (aware)."""
        return self._outlet.last_activity

    @property
    def idle_s(self) -> float:
        """For how long no message came or went."""
        return self._outlet.idle_s

    @property
    def connections(self) -> int:
        """How many clients are attached."""
        return self._outlet.connections

    @property
    def last_timings_ms(self) -> dict[str, float]:
        """Milliseconds per step of the last cell; steps that it did not reach are left out."""
        # Kept as an array: a dict would be a third of what an idle kernel weighs.
        pairs = zip(STEPS, self._timings_ms or (), strict=False)
        return {step: round(ms, 3) for step, ms in pairs if not math.isnan(ms)}

    def watch(self, msg_id: str, sink: Sink) -> None:
        """Send ``sink`` the iopub messages of one request, whoever else is attached."""
        self._outlet.watch(msg_id, sink)

    def unwatch(self, msg_id: str) -> None:
        """End `watch`."""
        self._outlet.unwatch(msg_id)

    def note_activity(self) -> None:
        """Count from now on how long it has been idle."""
        self._outlet.note_activity()

    def _note_timings(self, timings_ms: Mapping[str, float]) -> None:
        self._timings_ms = array("f", [timings_ms.get(step, math.nan) for step in STEPS])

    def _session_id(self) -> str:
        return f"{self.kernel_id}-{self.epoch}"

    def _move(self, event: KernelEvent) -> None:
        self.execution_state = next_state(self.execution_state, event)
