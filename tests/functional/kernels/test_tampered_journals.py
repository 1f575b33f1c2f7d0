"""A journal that somebody changed in the bucket: said so, and neither a crash nor a loop."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.audit.journal import UnreadableJournal
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.past import past_cells
from lambda_kernel.contract import keys

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World

RECORDS = "lkg-records"
Journal = dict[int, bytes]
Change = Callable[[Journal], Any]


def swap(journal: Journal) -> None:
    journal[1], journal[3] = journal[3], journal[1]


def forge(journal: Journal) -> None:
    """Put a word into the code of the first cell; the entry stays well-formed."""
    journal[1] = journal[1].replace(b"print a", b"print z")


def renumber(journal: Journal) -> None:
    data = json.loads(journal[4])
    journal[10**9] = json.dumps(data | {"number": 10**9}).encode()


def odd_buffers(journal: Journal) -> None:
    data = json.loads(journal[4])
    data["event"]["outputs"]["messages"][0]["buffers"] = ["!"]
    journal[4] = json.dumps(data).encode()


def no_header(journal: Journal) -> None:
    data = json.loads(journal[4])
    data["event"]["outputs"]["messages"][0]["header"] = {}
    journal[4] = json.dumps(data).encode()


def of_another(journal: Journal) -> None:
    data = json.loads(journal[3])
    journal[3] = json.dumps(data | {"kernel_id": str(uuid.UUID(int=9))}).encode()


CHANGES: dict[str, Change] = {
    "missing": lambda journal: journal.pop(2),
    "the first one missing": lambda journal: journal.pop(1),
    "all but the newest missing": lambda journal: [journal.pop(number) for number in (1, 2, 3)],
    "another kernel's": of_another,
    "newest missing and a later one": renumber,
    "swapped": swap,
    "an older one once more": lambda journal: journal.update({4: journal[2]}),
    "forged": forge,
    "truncated": lambda journal: journal.update({4: journal[4][:-9]}),
    "nested": lambda journal: journal.update({4: b"[" * 100_000}),
    "a number too long": lambda journal: journal.update({4: b'{"schema":' + b"1" * 9999 + b"}"}),
    "no entry": lambda journal: journal.update({3: b"null"}),
    "odd buffers": odd_buffers,
    "no header": no_header,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_tampered_journal_is_said_to_be_one(world: World, change: Change) -> None:
    client = await world.client()
    await client.run("print a")
    await client.run("print b")
    await world.quiet()
    kernel_id = client.kernel.kernel_id
    names = {number: (RECORDS, keys.journal_key(kernel_id, number)) for number in range(1, 5)}
    journal = {number: world.store.objects.pop(name) for number, name in names.items()}
    change(journal)
    for number, stored in journal.items():
        world.store.objects[RECORDS, keys.journal_key(kernel_id, number)] = stored
    again = (await world.reopen()).get(kernel_id)

    with pytest.raises(UnreadableJournal, match="entry"):
        await past_cells(again.journal, last_count=9)
    late: Client = world.attached(again, "s9", Replay())
    await world.quiet()

    assert "earlier cells cannot be read now: entry" in late.messages[-1].content["text"]
    reply = (await late.run("print c"))[-2]
    assert reply.content["status"] == "ok" or reply.content["ename"] == "AuditUnavailable"
    await again.shutdown()
