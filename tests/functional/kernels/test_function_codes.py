"""Which code of a function ran a cell: asked once per container, never in the way of a cell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kernel_gateway.audit.chain import CellFinished
from kernel_gateway.dispatch.function_codes import PAUSE_S, FunctionCodes
from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.function_code import FunctionCode
from tests.functional.kernels.test_kernel_journal import journal_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.functional.kernels.conftest import Client, World


async def nothing(payload: bytes) -> AsyncIterator[bytes]:
    """Answer nothing."""
    for chunk in list[bytes]():
        yield chunk


def codes_of(world: World, client: Client) -> list[FunctionCode | None]:
    events = [entry.event for entry in journal_of(world, client.kernel)]
    return [event.platform for event in events if isinstance(event, CellFinished)]


async def test_it_is_in_every_entry_and_asked_for_once_per_container(world: World) -> None:
    client = await world.client()
    for code in ("print a", "print b", "raise Trouble"):
        await client.run(code)
    await world.quiet()

    found = codes_of(world, client)

    assert [(code.version, code.code_sha256) for code in found if code is not None] == [
        ("$LATEST", "the code")
    ] * 3
    assert world.invoker.asked_count == 1


async def test_a_cell_that_was_never_sent_was_run_by_no_code(world: World) -> None:
    client = await world.client()
    await client.run("print '\ud800'")
    await client.run("print a")
    await world.quiet()

    assert [code is None for code in codes_of(world, client)][-1:] == [False]
    assert world.invoker.asked_count == 1


async def test_where_lambda_does_not_say_the_entry_says_why_and_cells_go_on(world: World) -> None:
    world.invoker.code_sha256 = None
    client = await world.client()
    for code in ("print a", "print b"):
        await client.run(code)
    await world.quiet()

    for said in codes_of(world, client):
        assert said is not None
        assert (said.version, said.code_sha256) == ("$LATEST", None)
        assert "AccessDenied" in str(said.problem)
    assert world.invoker.asked_count == 1


async def test_another_version_or_container_is_asked_for_and_a_failure_again_later() -> None:
    now_s = [0.0]
    invoker = InMemoryInvoker(nothing)
    codes = FunctionCodes(invoker, clock=lambda: now_s[0])
    same = [codes.of("f", "1", "c1"), codes.of("f", "1", "c1")]
    assert same[0] is same[1]
    await asyncio.gather(*same, codes.of("f", "2", "c1"), codes.of("f", "1", "c2"))
    assert invoker.asked_count == 3

    invoker.code_sha256 = None
    assert (await codes.of("f", "1", "c3")).problem
    assert (await codes.of("f", "1", "c3")).problem
    assert invoker.asked_count == 4
    invoker.code_sha256, now_s[0] = "mended", PAUSE_S
    assert (await codes.of("f", "1", "c3")).code_sha256 == "mended"
