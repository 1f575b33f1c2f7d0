"""What all kernels of a gateway share, so that each of them stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kernel_gateway.dispatch.plan import limits_for
from kernel_gateway.dispatch.run import Dispatcher
from kernel_gateway.environments.environment import Environment
from kernel_gateway.kernels.caches import InputHistory, ManifestCache
from kernel_gateway.kernels.clocks import Clocks
from kernel_gateway.kernels.record import RecordStore
from kernel_gateway.kernels.recorder import CellRecorder
from kernel_gateway.kernels.replica import Replica
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.messaging.replies import OWN_PYTHON
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract.invocation import Limits
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Probe

_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """What the kernels of a gateway may use.

    Attributes:
        max_queued: execute_requests that may wait in one kernel; more are refused.
        kept_bytes: of what one cell says, kept for clients that come back and for the journal.
        manifest_bytes: head commits kept in memory, all kernels together.
        history_characters: inputs kept in memory, all kernels together.
        output_bytes: output of one cell; see Limits.
        snapshot_bytes: variables of one session; see Limits.
        question_wait_s: how long completion and inspection may wait for a container; then they are
            answered without one.
        prefetch_timeout_s: how long a cell's commit may take to be fetched for the next cell.
    """

    max_queued: int = 1000
    kept_bytes: int = 16 * 1024 * 1024
    manifest_bytes: int = 64 * 1024 * 1024
    history_characters: int = 8 * 1024 * 1024
    output_bytes: int = _LIMITS.output_bytes
    snapshot_bytes: int = _LIMITS.snapshot_bytes
    question_wait_s: float = 1.0
    prefetch_timeout_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelServices:
    """Shared by all kernels.

    Attributes:
        stack: names of buckets and functions.
        store: S3.
        dispatcher: sends cells.
        records: the durable records.
        replica: this gateway among others.
        manifests: head commits in memory.
        history: inputs in memory.
        recorder: the audit trail.
        settings: bounds.
        clocks: the time, and how long something takes.
        probes: what the isolation of each environment's last container was, by environment id.
        shut_down: ends a kernel by id, for whoever asks, and forgets it.
        pythons: versions of environments whose Python is not the gateway's, by environment id.
        tasks: requests that are being served, clients that are brought up to date.
        settling: kernels whose past is being settled, by id.
    """

    stack: Stack
    store: ObjectStore
    dispatcher: Dispatcher
    records: RecordStore
    replica: Replica
    manifests: ManifestCache
    history: InputHistory
    recorder: CellRecorder
    settings: KernelSettings
    clocks: Clocks
    shut_down: Callable[[str, Actor], Awaitable[None]]
    probes: dict[str, Probe] = field(default_factory=dict)
    pythons: Mapping[str, str] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    settling: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def now(self) -> datetime:
        """Return the time, aware."""
        return self.clocks.now()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Return the task that does ``work``, which the end of the gateway waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def forget(self, kernel_id: str) -> None:
        """Remember nothing of a kernel: it is no more, or another gateway's to know."""
        self.manifests.drop(kernel_id)
        self.history.drop(kernel_id)
        self.recorder.forget(kernel_id)

    def python_of(self, environment: Environment) -> str:
        """Return the version of the Python that runs an environment's cells."""
        return self.pythons.get(environment.id, OWN_PYTHON)

    def limits_of(self, environment: Environment) -> Limits:
        """Return the limits of a cell in this environment."""
        return limits_for(
            timeout_s=float(environment.timeout_s),
            commit_grace_s=environment.commit_grace_s,
            input_timeout_s=float(environment.input_timeout_s),
            memory_bytes=environment.memory_mb * 1024 * 1024,
            output_bytes=self.settings.output_bytes,
            snapshot_bytes=self.settings.snapshot_bytes,
        )
