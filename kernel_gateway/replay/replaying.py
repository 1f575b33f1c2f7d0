"""Trails replayed: in one session, one cell after the other, or each cell from its own state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from kernel_gateway.errors import Conflict
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.replay import parameters
from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.pins import Unavailable
from kernel_gateway.replay.recorded import RecordedCell
from kernel_gateway.replay.running import RUNNING_AT_ONCE, Replay
from kernel_gateway.replay.selecting import Treatment, treatment
from kernel_gateway.replay.workspace import SessionWorkspace
from lambda_kernel.contract import keys

REPLACED = Treatment(runs=False, reason="skipped: the parameters of this replay replace it")
PINNED_AT_ONCE = 2 * RUNNING_AT_ONCE
"""While some run, the state of others is prepared, and what came of others is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A cell begins.

    Attributes:
        number: of the cell in its trail.
        place, count: it is which one of how many.
        source: its code.
    """

    number: int
    place: int
    count: int
    source: str


Event = Begun | CellPair


async def run(replay: Replay) -> AsyncGenerator[Event, None]:
    """Run the cells; yield each when it begins and when it has ended.

    Pinned cells end in any order. What ran for it is gone afterwards; the journals stay.

    Raises:
        BadRequest: cells that there are not are asked for.
        NotFound: their environment is not there.
        Conflict: parameters cannot be set.
        StorageError: S3 does not answer.
    """
    cells = replay.request.selected(replay.trail.cells)
    events = _pinned(replay, cells) if replay.request.is_pinned else _sequential(replay, cells)
    try:
        await replay.set_up()
        async with aclosing(events):
            async for event in events:
                yield event
    finally:
        await replay.clean_up()


async def _sequential(replay: Replay, cells: Sequence[RecordedCell]) -> AsyncGenerator[Event, None]:
    session = _Session(replay)
    values = replay.request.parameters
    parameters_after = parameters.place_of(cells) or 0
    for place, cell in enumerate(cells):
        if place == parameters_after:
            session.parameters = values
        yield _begun(cell, place, len(cells))
        if values and place == parameters_after and parameters.INJECTED_TAG in cell.tags:
            yield await replay.pair(cell, REPLACED)
        else:
            yield await session.pair(cell)
    await session.end()


async def _pinned(replay: Replay, cells: Sequence[RecordedCell]) -> AsyncGenerator[Event, None]:
    at_once = asyncio.Semaphore(PINNED_AT_ONCE)
    events: asyncio.Queue[Event] = asyncio.Queue(PINNED_AT_ONCE)

    async def run_one(place: int, cell: RecordedCell) -> None:
        async with at_once:
            await events.put(_begun(cell, place, len(cells)))
            await events.put(await _pinned_pair(replay, cell))

    tasks = [asyncio.create_task(run_one(n, cell)) for n, cell in enumerate(cells)]
    all_done = asyncio.gather(*tasks)
    try:
        for _ in range(2 * len(cells)):
            yield await _next(events, all_done)
    finally:
        all_done.cancel()
        await asyncio.wait(tasks) if tasks else None
        await asyncio.gather(all_done, return_exceptions=True)


async def _pinned_pair(replay: Replay, cell: RecordedCell) -> CellPair:
    treated = treatment(cell)
    if not treated.runs:
        return await replay.pair(cell, treated)
    kernel = None
    try:
        kernel = await replay.start_pinned(cell)
        return await replay.pair(cell, treated, kernel)
    except Unavailable as gone:
        return await replay.pair(cell, Treatment(runs=False, reason=f"unavailable: {gone}"))
    finally:
        if kernel is not None:
            await replay.end(kernel)


def _begun(cell: RecordedCell, place: int, count: int) -> Begun:
    return Begun(number=cell.number, place=place + 1, count=count, source=cell.started.source)


class _Session:
    """The one session of a sequential replay, and its workspace.

    Attributes:
        parameters: to be set before the next cell that is run.
    """

    def __init__(self, replay: Replay) -> None:
        self.parameters: Mapping[str, Any] = {}
        self._replay = replay
        self._kernel: LambdaKernel | None = None
        self._number: int | None = None
        self._broken = ""
        self._lacking: int | None = None
        target = keys.replay_prefix(replay.replayer.user, replay.replay_id)
        self._workspace = SessionWorkspace(states=replay.states, files=replay.files, target=target)

    async def pair(self, cell: RecordedCell) -> CellPair:
        """Return a cell beside what it was, with all that came before it in the replay."""
        treated = treatment(cell)
        if treated.runs and not self._broken:
            try:
                await self._prepare(cell)
                await self._set_parameters()
            except Unavailable as gone:
                # What comes later would begin with who knows what.
                self._broken = f"unavailable: {gone}"
        if treated.runs and self._broken:
            treated = Treatment(runs=False, reason=self._broken)
        pair = await self._replay.pair(cell, treated, self._kernel)
        if pair.replayed is None:
            return pair
        missing = self._workspace.missing
        pair = replace(pair, missing=missing, after=self._lacking)
        if missing and self._lacking is None:
            self._lacking = cell.number
        return pair

    async def end(self) -> None:
        """End the kernel; its journal stays."""
        if self._kernel is not None:
            await self._replay.end(self._kernel)
            self._kernel = None

    async def _set_parameters(self) -> None:
        values, self.parameters = self.parameters, {}
        if not values or self._kernel is None:
            return
        metadata = {"tags": [parameters.INJECTED_TAG]}
        content = {"code": parameters.source_of(values), "store_history": False}
        finished, reason = await self._replay.execute(self._kernel, content, metadata)
        if finished is None or finished.status != "ok":
            raise Conflict(f"the parameters could not be set: {reason or 'see the replay'}")

    async def _prepare(self, cell: RecordedCell) -> None:
        await self._workspace.prepare(cell)
        if self._kernel is not None and self._number == cell.session:
            return
        is_first = self._kernel is None
        await self.end()
        goes_on = is_first and self._replay.request.begin is not None
        found = await self._replay.begin(cell) if goes_on else None
        self._kernel = await self._replay.start(cell, found)
        self._number = cell.session


async def _next(events: asyncio.Queue[Event], all_done: asyncio.Future[Any]) -> Event:
    """Return the next event; raises what ended the work before there was one."""
    getting = asyncio.ensure_future(events.get())
    try:
        await asyncio.wait({getting, all_done}, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            await all_done
        return await getting
    finally:
        getting.cancel()
