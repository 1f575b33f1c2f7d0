"""A recorded cell run again, as a fresh invocation of a kernel that reaches its replay only."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import CellFinished, CellStarted
from kernel_gateway.audit.facts import DerivedFrom
from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.kernels import cut_off
from kernel_gateway.kernels.execution import Execution as RunningCell
from kernel_gateway.kernels.forking import Found
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.options import KernelOptions, ReplayOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.messaging.caller import Actor, Caller
from kernel_gateway.replay.answering import RecordedAnswers, why_unanswered
from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.executions import Recorded, execution_of, with_state
from kernel_gateway.replay.pins import RecordedStates, Unavailable, VersionedFiles
from kernel_gateway.replay.recorded import RecordedCell, RecordedTrail, SentSource, TrailSource
from kernel_gateway.replay.selecting import ReplayRequest, Treatment
from lambda_kernel.contract import keys
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

RUNNING_AT_ONCE = 4
"""More would wait for a container, and say so in their output."""
REASON = "the replay is over"
CONTENT = ("code", "silent", "store_history", "user_expressions")
NO_STDIN = "StdinNotImplementedError"


@dataclass(slots=True, kw_only=True)
class Replay:
    """One replay of a trail.

    Args:
        registry: where its kernels are started.
        files: S3, for the workspaces.
        trail: what is replayed.
        source: where its entries are.
        request: how.
        replayer: who asks, and as whom the cells run.
        caller: the same, for the journal.
        readable: see RecordedStates.

    Attributes:
        replay_id: names its part of the replayer's prefix, and its scope.
        kernel_ids: of the kernels it has started: each has a journal of its own.
        states: what recorded cells began with and left.
    """

    registry: KernelRegistry
    files: VersionedFiles
    trail: RecordedTrail
    source: TrailSource
    request: ReplayRequest
    replayer: Identity
    caller: Caller
    readable: str | None
    replay_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    kernel_ids: list[str] = field(default_factory=list)
    states: RecordedStates = field(init=False)
    _discarded: cut_off.DiscardedReplay | None = field(init=False, default=None)
    _running: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        services = self.registry.services
        self._running = asyncio.Semaphore(RUNNING_AT_ONCE)
        self.states = RecordedStates(
            self.trail, services.store, self.files, services.stack, readable=self.readable
        )

    async def set_up(self) -> None:
        """Have its files deleted, where nobody wants to keep them, whatever becomes of the gateway.

        Raises:
            StorageError: S3 does not answer.
        """
        if not self.request.keeps_files:
            self._discarded = await cut_off.DiscardedReplay.begin(
                self.registry.services, self.replayer.user, self.replay_id
            )

    async def begin(self, cell: RecordedCell, *, in_place: bool = False) -> Found | None:
        """Return the copied commit that a cell begins with; as RecordedStates.begin."""
        scope = self._options(cell).scope_of(self.replayer, self.replay_id)
        return await self.states.begin(cell, scope, in_place=in_place)

    async def start_pinned(self, cell: RecordedCell) -> LambdaKernel:
        """Return a new kernel with what a cell began with; raises as its states, and `start`."""
        user, states = self.replayer.user, self.states
        inputs = await states.inputs(
            cell, functools.partial(keys.replay_inputs_prefix, user, self.replay_id)
        )
        source = self._readable_scope(cell)
        found = await self.begin(cell, in_place=source is not None)
        chunks = {} if source is None else await states.chunks(cell)
        pinned = Pinned(inputs=inputs, scope=source, chunks=chunks)
        return await self.start(cell, found, pinned=pinned)

    async def start(
        self, cell: RecordedCell, found: Found | None, *, pinned: Pinned | None = None
    ) -> LambdaKernel:
        """Return a new kernel for a cell.

        Raises:
            NotFound: its environment is not here.
            StorageError: S3 does not answer.
        """
        assert cell.facts is not None  # noqa: S101  (else it is not run)
        session = cell.facts.session
        kernel_id = str(uuid.uuid4())
        self.kernel_ids.append(kernel_id)
        try:
            return await self.registry.begin(
                self.replayer,
                spec_name=session.spec_name,
                options=self._options(cell, pinned),
                kernel_id=kernel_id,
                workdir_name=_workdir_name(session.workdir_name),
                found=found,
                recorded_seeds=cell.facts.seeds,
            )
        except NotFound as problem:
            raise NotFound(f"cell {cell.number} cannot be run here: {problem}") from problem

    async def end(self, kernel: LambdaKernel) -> None:
        """End a kernel; its journal stays."""
        try:
            actor = Actor(door="replay", caller=self.caller)
            await self.registry.shutdown(kernel.kernel_id, REASON, actor)
        except NotFound:
            logger.info("a replay's kernel has ended already")

    async def pair(
        self, cell: RecordedCell, treated: Treatment, kernel: LambdaKernel | None = None
    ) -> CellPair:
        """Return a cell beside what it was, after running it where that is to be done.

        Raises:
            StorageError: S3 does not answer.
        """
        recorded = await self._recorded(cell)
        replayed, reason = None, treated.reason
        if kernel is not None and treated.runs:
            replayed, reason = await self._run(cell, kernel, recorded)
            reason = treated.reason or reason
        if not reason and recorded is None:
            reason = "unavailable: what it printed was removed, or is not in the trail"
        return CellPair(
            number=cell.number,
            cell_id=cell.started.cell_id,
            execution_count=cell.started.execution_count,
            source=cell.started.source,
            tags=cell.tags,
            recorded=recorded,
            replayed=None if reason else replayed,
            reason=reason,
            withheld=() if self.request.has_connectors else cell.connectors,
        )

    async def execute(
        self,
        kernel: LambdaKernel,
        content: dict[str, Any],
        metadata: dict[str, Any],
        answers: Sequence[Answer] = (),
    ) -> tuple[CellFinished | None, str]:
        """Run code, and return its end as the journal has it, or why there is none.

        Raises:
            StorageError: S3 does not answer.
        """
        async with self._running:
            running = RunningCell.begin(
                kernel,
                content,
                caller=self.caller,
                metadata=metadata,
                answer=RecordedAnswers.of(answers),
            )
            try:
                while not running.ended:
                    await running.news()
            finally:
                await running.cancel("replay")
        if running.refusal is not None:
            return None, f"unavailable: it did not start: {running.refusal}"
        await kernel.journal.flush()
        ends: dict[str, int] = {}
        async for entry in kernel.journal.newest_first():
            event = entry.event
            if isinstance(event, CellFinished):
                ends[event.request_id] = entry.number
            elif isinstance(event, CellStarted):
                if event.msg_id == running.msg_id and event.request_id in ends:
                    return await kernel.journal.end_of_cell(ends[event.request_id]), ""
                break
        return None, "unavailable: the journal of its replay does not have its end"

    async def _run(
        self, cell: RecordedCell, kernel: LambdaKernel, recorded: Execution | None
    ) -> tuple[Execution | None, str]:
        started = cell.started
        content = {name: started.content[name] for name in CONTENT if name in started.content}
        kernel.continue_at(started.execution_count - 1)
        answers = () if recorded is None else recorded.answers
        finished, reason = await self.execute(kernel, content, started.metadata, answers)
        if finished is None:
            return None, reason
        found = await asyncio.to_thread(execution_of, finished)
        if found.ename == NO_STDIN and (recorded is None or recorded.ename != NO_STDIN):
            return None, why_unanswered(answers)
        services = self.registry.services
        replay = kernel.options.replay
        replayed = Recorded(
            finished=finished,
            kernel_id=kernel.kernel_id,
            scope=kernel.scope,
            source=None if replay is None or replay.pinned is None else replay.pinned.scope,
        )
        return await with_state(found, replayed, services.store, services.stack.state), reason

    async def _recorded(self, cell: RecordedCell) -> Execution | None:
        if cell.finished is None:
            return None
        finished = await self.source.end(cell)
        if finished is None:
            return None
        found = await asyncio.to_thread(execution_of, finished)
        try:
            scope, commit = self.states.scope_of(cell), await self.states.commit(cell)
        except Unavailable:
            return found
        recorded = Recorded(
            finished=cell.finished, kernel_id=self.trail.kernel_id, scope=scope, commit=commit
        )
        services = self.registry.services
        return await with_state(found, recorded, services.store, services.stack.state)

    def _readable_scope(self, cell: RecordedCell) -> Scope | None:
        """Return whose chunks the cells may read in place; None = they need copies.

        What one user may read the sessions of its replay may; an admin's are not let into others'.
        """
        try:
            found = self.states.scope_of(cell)
        except Unavailable:
            return None
        return found if found.user == self.replayer.user else None

    def _options(self, cell: RecordedCell, pinned: Pinned | None = None) -> KernelOptions:
        assert cell.facts is not None  # noqa: S101
        session = cell.facts.session
        derived_from = DerivedFrom(
            kernel_id=self.trail.kernel_id,
            number=self.trail.number,
            digest=self.trail.digest,
            is_proven=not isinstance(self.source, SentSource),
        )
        replay = ReplayOptions(
            replay_id=self.replay_id,
            part=0 if pinned is None else cell.number,
            pinned=pinned,
            derived_from=derived_from,
            has_connectors=self.request.has_connectors,
        )
        try:
            return KernelOptions(
                workspace=session.workspace, projects=session.projects, replay=replay
            )
        except InvalidField as problem:
            raise BadRequest(f"cell {cell.number}: {problem}") from problem

    async def clean_up(self) -> None:
        """End what is left of it: kernels, variables, and files that nobody wants to keep."""
        services = self.registry.services
        for kernel in [k for k in self.registry.all() if k.kernel_id in self.kernel_ids]:
            await self.end(kernel)
        agent = self.replayer.agent if self.request.has_connectors else None
        scope = Scope(user=self.replayer.user, agent=agent, execution=self.replay_id)
        await cut_off.delete_state(services, scope)
        if self._discarded is not None:
            await self._discarded.end(services)


def _workdir_name(recorded: str | None) -> str | None:
    return recorded if recorded and re.fullmatch("[0-9a-f]{32}", recorded) else None
