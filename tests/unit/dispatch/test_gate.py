"""The gate in front of a function."""

from __future__ import annotations

import asyncio

import pytest

from kernel_gateway.dispatch.gate import ConcurrencyGate, Ticket, Withdrawn
from kernel_gateway.errors import InvokeThrottled


async def entered(gate: ConcurrencyGate, count: int) -> None:
    for _ in range(count):
        await gate.enter(Ticket(), print)


async def in_line(gate: ConcurrencyGate, tickets: list[Ticket]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(gate.enter(ticket, print)) for ticket in tickets]
    await asyncio.sleep(0)
    return tasks


async def test_places_are_given_in_the_order_of_arrival() -> None:
    gate = ConcurrencyGate(ceiling=1)
    await entered(gate, 1)
    first, second = await in_line(gate, [Ticket(), Ticket()])

    gate.leave()
    await first

    assert gate.waiting == 1
    assert not second.done()
    gate.leave()
    await second


async def test_a_cell_that_was_turned_away_keeps_its_place() -> None:
    gate = ConcurrencyGate(ceiling=2)
    early, late = Ticket(), Ticket()
    await entered(gate, 1)
    await gate.enter(early, print)
    (waiting,) = await in_line(gate, [late])

    gate.throttled()
    gate.leave()
    (again,) = await in_line(gate, [early])
    gate.leave()
    await again

    assert gate.limit == 1
    assert not waiting.done()
    gate.leave()
    await waiting


async def test_a_429_teaches_the_limit_and_waiting_cells_try_it_again() -> None:
    gate = ConcurrencyGate(ceiling=100, probe_interval_s=0.001)
    await entered(gate, 5)
    gate.throttled()
    gate.leave()

    assert gate.limit == 4
    (probing,) = await in_line(gate, [Ticket()])
    assert not probing.done()
    await probing
    assert gate.limit == 5


async def test_the_limit_grows_while_nobody_is_turned_away() -> None:
    gate = ConcurrencyGate(ceiling=12)
    for _ in range(5):
        gate.accepted()

    assert gate.limit == 12


async def test_a_429_without_anything_of_ours_in_flight_makes_a_pause() -> None:
    gate = ConcurrencyGate(ceiling=4)
    ticket = Ticket()
    await gate.enter(ticket, print)
    gate.throttled()
    gate.leave()

    (again,) = await in_line(gate, [ticket])

    assert gate.waiting == 1
    await again
    assert gate.running == 1


async def test_a_cell_gives_up_after_the_longest_wait() -> None:
    gate = ConcurrencyGate(ceiling=1, max_wait_s=0.001)
    await entered(gate, 1)

    with pytest.raises(InvokeThrottled, match="gave up"):
        await gate.enter(Ticket(), print)

    assert (gate.waiting, gate.running) == (0, 1)


async def test_a_withdrawn_cell_leaves_the_line() -> None:
    gate = ConcurrencyGate(ceiling=1)
    await entered(gate, 1)
    ticket = Ticket()
    (waiting,) = await in_line(gate, [ticket])

    ticket.withdraw()

    with pytest.raises(Withdrawn):
        await waiting
    with pytest.raises(Withdrawn):
        await gate.enter(ticket, print)
    assert (gate.waiting, gate.running) == (0, 1)


async def test_a_cell_that_is_cancelled_just_as_its_turn_comes_gives_it_back() -> None:
    gate = ConcurrencyGate(ceiling=1)
    await entered(gate, 1)
    (waiting,) = await in_line(gate, [Ticket()])

    gate.leave()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.running == 0


async def test_a_cell_that_waits_noticeably_is_told_how_many_are_before_it() -> None:
    gate = ConcurrencyGate(ceiling=1, notice_s=0)
    await gate.enter(Ticket(), print)
    told: asyncio.Queue[int] = asyncio.Queue()
    waiting = [asyncio.ensure_future(gate.enter(Ticket(), told.put_nowait)) for _ in range(2)]

    assert sorted([await told.get(), await told.get()]) == [0, 1]
    for task in waiting:
        gate.leave()
        await task
    assert told.empty()
