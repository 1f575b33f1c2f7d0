"""With ``audit.required = false``, cells run although the journal cannot be written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kernel_gateway.audit.chain import CellStarted
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.later_events import CellsUnrecorded
from kernel_gateway.audit.redaction import Redactor
from tests.functional.kernels.test_kernel_journal import RECORDS, journal_of, kinds

if TYPE_CHECKING:
    from kernel_gateway.messaging.message import OutMessage
    from tests.functional.kernels.conftest import Client, World

LENIENT = Keeping(is_required=False, redactor=Redactor.of({"pin": "pin=[0-9]+"}, b"k"))


async def a_client(world: World) -> Client:
    made = await world.client()
    lenient = await world.reopen(keeping=LENIENT)
    await world.registry.close()
    world.registry = lenient
    return world.attached(lenient.get(made.kernel.kernel_id))


def warnings(messages: list[OutMessage]) -> list[str]:
    texts = [str(m.content.get("text", "")) for m in messages if m.msg_type == "stream"]
    return [text for text in texts if "unrecorded" in text]


async def test_cells_run_and_the_next_entry_says_which_are_missing(world: World) -> None:
    client = await a_client(world)
    await client.run("print a")
    await world.quiet()
    world.store.failing_puts.add(RECORDS)

    first = await client.run("print pin=1234")
    second = await client.run("print c")

    assert world.function.ran == ["print a", "print pin=1234", "print c"]
    assert len(warnings(first)) == 1
    assert "audit.required = false" in warnings(first)[0]
    assert warnings(second) == []
    world.store.failing_puts.clear()
    last = await client.run("print d")
    await world.quiet()
    entries = journal_of(world, client.kernel)
    assert kinds(entries) == [
        "CellStarted", "CellFinished", "CellsUnrecorded", "CellStarted", "CellFinished",
    ]  # fmt: skip
    gap, start = entries[2].event, entries[3].event
    assert isinstance(gap, CellsUnrecorded)
    assert isinstance(start, CellStarted)
    assert (gap.count, [cell.execution_count for cell in gap.cells]) == (2, [2, 3])
    assert "S3 did not answer" in gap.reason
    assert start.execution_count == 4
    assert warnings(last) == []
    # The digest is that of a redacted source: four digits are soon guessed.
    written = hashlib.sha256(b"print [redacted:pin]").hexdigest()
    assert gap.cells[0].source_digest == written


async def test_a_second_gap_is_told_again(world: World) -> None:
    client = await a_client(world)
    counts = []
    for fails in (False, True, True, False, True):
        world.store.failing_puts.clear()
        if fails:
            world.store.failing_puts.add(RECORDS)
        counts.append(len(warnings(await client.run("print x"))))
        await world.quiet()

    assert counts == [0, 1, 0, 0, 1]


async def test_a_kernel_that_ends_in_a_gap_says_so_in_its_last_entries(world: World) -> None:
    client = await a_client(world)
    await client.run("print a")
    await world.quiet()
    world.store.failing_puts.add(RECORDS)
    await client.run("print x")
    world.store.failing_puts.clear()

    await world.registry.shutdown(client.kernel.kernel_id)

    entries = journal_of(world, client.kernel)
    assert kinds(entries)[-2:] == ["CellsUnrecorded", "SessionClosed"]


async def test_another_gateways_entry_still_refuses_the_cell(world: World) -> None:
    client = await a_client(world)
    await client.run("print a")
    await world.quiet()
    other = await world.reopen(keeping=LENIENT)
    await world.attached(other.get(client.kernel.kernel_id)).run("print b")
    await world.quiet()

    (reply,) = [m for m in await client.run("print c") if m.msg_type == "execute_reply"]

    assert reply.content["ename"] == "AuditUnavailable"
    assert world.function.ran == ["print a", "print b"]
