"""The index of journals is found behind, damaged or missing, and says what the journals say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_gateway.audit import trail_index
from kernel_gateway.audit.chain import CellFinished, CellStarted, Entry, Event, SessionClosed
from kernel_gateway.audit.facts import (
    Credentials,
    EndFacts,
    HandlerFacts,
    Owner,
    RunsIn,
    Session,
    StartFacts,
)
from kernel_gateway.audit.index_rows import Segment
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.trail_index import Answer, TrailIndex
from kernel_gateway.audit.trail_query import TrailQuery
from kernel_gateway.errors import StorageError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from lambda_kernel.contract import keys
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import FileChange
from lambda_kernel.contract.witness import ContainerFacts, Witness
from tests.functional.kernels.conftest import FlakyStore, World

BUCKET = "records"
KERNELS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(9)]
SECRET = "lkg-connector-creds-a1"
FILE, OTHER = "f" * 64, "e" * 64


def facts(user: str, agent: str | None, connectors: tuple[str, ...] = ()) -> StartFacts:
    return StartFacts(
        session=Session(
            owner=Owner(user=user, agent=agent), spec_name="lambda-python", workspace="w",
            scope="agent", created="2026-01-01T00:00:00.000000Z",
        ),
        source_digest="a" * 64,
        environment=RunsIn(
            id="default", function="f", handler_digest="0" * 64, python="3.12", memory_mb=512,
            tier="process",
        ),
        credentials=Credentials(
            role_arn="arn", role_session_name="s", policy_digest="b" * 64, duration_s=900,
            connector_secret=None if agent is None else f"lkg-connector-creds-{agent}",
            connectors=connectors,
        ),
    )  # fmt: skip


def started(number: int, **known: Any) -> CellStarted:
    return CellStarted(
        request_id=f"r{number}", seq=number, parent=None, execution_count=number, timeout_s=9.0,
        header={"msg_id": f"m{number}", "msg_type": "execute_request", "session": "s"},
        content={"code": "x"}, gateway=facts(**known) if known else None,
    )  # fmt: skip


def finished(
    number: int, *files: FileChange, status: Any = "ok", got: tuple[str, ...] | None = None
) -> CellFinished:
    container = ContainerFacts(python="3.12", architecture="x86_64", packages="d" * 64)
    seen = Witness(begun_ms=1, ended_ms=2, container=container, connectors=got or ())
    said = HandlerFacts(status=status, files=files, witness=None if got is None else seen)
    return CellFinished(
        request_id=f"r{number}", status=status, head=Head(seq=number, digest="c" * 64),
        gateway=EndFacts(code_started="yes"), handler=said,
    )  # fmt: skip


def wrote(path: str, digest: str | None = FILE, change: Any = "created") -> FileChange:
    return FileChange(path=path, change=change, key=f"users/u1/w/{path}", digest=digest)


@dataclass
class Bench:
    """Journals in memory, and an index of them."""

    store: FlakyStore = field(default_factory=FlakyStore)
    journals: dict[str, Journal] = field(default_factory=dict)

    @property
    def index(self) -> TrailIndex:
        """What another gateway has of it."""
        return TrailIndex(self.store, BUCKET)

    async def add(self, kernel_id: str, events: Iterable[Event], minute: int = 0) -> None:
        new = Journal(self.store, BUCKET, kernel_id, is_new=True)
        journal = self.journals.setdefault(kernel_id, new)
        for event in events:
            time = f"2026-01-01T00:{minute:02}:00.000000Z"
            await journal.append(event, epoch=0, time=time)

    async def search(self, sees: Any = lambda start: True, **given: str) -> Answer:
        return await self.index.search(TrailQuery.of_text(given), sees)

    async def cells(self, **given: str) -> list[tuple[str, int]]:
        return [(c.kernel_id, c.start.number) for c in (await self.search(**given)).cells]

    async def all_entries(self) -> list[Entry]:
        found = []
        for kernel_id in self.journals:
            journal = Journal(self.store, BUCKET, kernel_id, is_new=False)
            async with aclosing(journal.newest_first()) as entries:
                found += [entry async for entry in entries]
        return found

    def read_entries(self) -> list[str]:
        """Return the entries that were read since this was asked last."""
        read = [key for key in self.store.get_keys if key.startswith("audit/")]
        self.store.get_keys.clear()
        return read

    def index_keys(self) -> list[str]:
        return sorted(k for _, k in self.store.objects if k.startswith(keys.TRAIL_INDEX_PREFIX))


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    known = {"user": "u1", "agent": "a1"}
    await made.add(KERNELS[1], [started(1, **known), finished(1, wrote("data/out.csv"))], 1)
    await made.add(
        KERNELS[2],
        [
            started(1, user="u2", agent=None),
            finished(1, wrote("other"), wrote("b", None, "deleted")),
        ],
        2,
    )
    await made.add(KERNELS[1], [started(2, **known, connectors=("crm",))], 3)
    await made.add(KERNELS[2], [started(2, user="u2", agent=None), finished(2, status="error")], 4)
    await made.add(KERNELS[2], [SessionClosed(reason="shut down")], 5)
    made.read_entries()
    return made


@pytest.mark.parametrize(
    ("filters", "hits"),
    [
        ({}, [(2, 3), (1, 3), (2, 1), (1, 1)]),
        ({"contains_digest": FILE}, [(2, 1), (1, 1)]),
        ({"contains_digest": FILE, "user": "u1"}, [(1, 1)]),
        ({"contains_digest": OTHER}, []),
        ({"contains_digest": "a" * 64}, [(2, 3), (1, 3), (2, 1), (1, 1)]),
        ({"contains_digest": "c" * 64, "status": "error"}, [(2, 3)]),
        ({"path": "data/out.csv"}, [(1, 1)]),
        ({"path": "data/"}, [(1, 1)]),
        ({"path": "data"}, []),
        ({"path": "b"}, [(2, 1)]),
        ({"connector": "crm"}, [(1, 3), (1, 1)]),
        ({"connector": "mail"}, [(1, 1)]),
        ({"agent": "a1"}, [(1, 3), (1, 1)]),
        ({"agent": "u2"}, []),
        ({"status": "incomplete"}, [(1, 3)]),
        ({"status": "lost"}, []),
        ({"since": "2026-01-01T00:03"}, [(2, 3), (1, 3)]),
        ({"until": "2026-01-01T00:03"}, [(2, 1), (1, 1)]),
        ({"since": "2026-01-01", "until": "2026-01-01"}, [(2, 3), (1, 3), (2, 1), (1, 1)]),
        ({"since": "2026-01-02"}, []),
        ({"since": "2026-01-01T01:03+01:00"}, [(2, 3), (1, 3)]),
    ],
)
async def test_each_filter_leaves_what_it_says(
    bench: Bench, filters: dict[str, str], hits: list[tuple[int, int]]
) -> None:
    expected = [(KERNELS[kernel], entry) for kernel, entry in hits]
    # First the index is made, then it is used.
    assert await bench.cells(**filters) == expected
    assert await bench.cells(**filters) == expected


async def test_a_second_search_reads_no_entry_and_a_later_one_only_what_is_new(
    bench: Bench,
) -> None:
    await bench.search()
    assert len(bench.read_entries()) == 8
    await bench.search()
    assert bench.read_entries() == []

    await bench.add(KERNELS[1], [finished(2, wrote("late"))], 9)

    assert await bench.cells(path="late") == [(KERNELS[1], 3)]
    assert bench.read_entries() == [keys.journal_key(KERNELS[1], 4)]
    assert await bench.cells(status="incomplete") == []


async def test_each_cell_is_its_own_kernels_owners_also_where_an_id_had_two(bench: Bench) -> None:
    await bench.add(KERNELS[2], [started(7, user="u1", agent=None), finished(7)], 9)

    answer = await bench.search(lambda start: start.user == "u1")

    assert [(cell.kernel_id, cell.start.execution_count) for cell in answer.cells] == [
        (KERNELS[2], 7), (KERNELS[1], 2), (KERNELS[1], 1),
    ]  # fmt: skip


async def test_what_a_cell_got_decides_and_not_what_it_asked_for(bench: Bench) -> None:
    known = {"user": "u1", "agent": "a1"}
    await bench.add(
        KERNELS[3],
        [
            started(1, **known), finished(1, got=()),
            started(2, **known), finished(2, got=("mail",)),
            started(3, **known, connectors=("crm",)), finished(3, got=()),
            started(4, **known, connectors=("crm", "mail")), finished(4, got=("crm", "mail")),
        ],
        9,
    )  # fmt: skip
    for _ in range(2):
        hits = {
            name: [
                (cell.start.execution_count, cell.matched)
                for cell in (await bench.search(connector=name, since="2026-01-01T00:09")).cells
            ]
            for name in ("crm", "mail", "other")
        }
        assert hits == {
            "crm": [(4, ("connector crm",))],
            "mail": [(4, ("connector mail",)), (2, ("connector mail",))],
            "other": [],
        }


async def test_what_matched_is_said(bench: Bench) -> None:
    for filters, said in (
        ({"contains_digest": FILE, "user": "u1"}, ("created data/out.csv",)),
        ({"connector": "crm", "status": "incomplete"}, ("asked for connector crm",)),
        ({"connector": "crm", "status": "ok"}, (f"asked for every connector of {SECRET}",)),
        ({"path": "b"}, ("deleted b",)),
    ):
        (cell,) = (await bench.search(**filters)).cells
        assert cell.matched == said


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"schema":9,"last":4}', b"\xff\x00"])
async def test_an_index_that_cannot_be_read_is_made_anew(bench: Bench, damage: bytes) -> None:
    expected = await bench.cells()
    for key in bench.index_keys():
        await bench.store.put(BUCKET, key, damage)

    assert await bench.cells() == expected
    for key in bench.index_keys():
        assert Segment.from_bytes(bench.store.objects[BUCKET, key]).last in {3, 5}


async def test_an_index_that_lies_is_put_right_by_a_rebuild(bench: Bench) -> None:
    expected = await bench.cells()
    first, *_ = bench.index_keys()
    stray = keys.trail_index_key(KERNELS[8], 3)
    await bench.store.put(BUCKET, first, Segment(last=10**6).to_bytes())
    await bench.store.put(BUCKET, stray, Segment(last=10**6).to_bytes())
    assert await bench.cells() != expected

    made = await bench.index.rebuild()

    assert (made.kernels, made.entries, made.unreadable) == (2, 8, 0)
    assert await bench.cells() == expected
    assert stray not in bench.index_keys()


async def test_an_entry_that_is_missing_is_said_and_hides_no_other(bench: Bench) -> None:
    await bench.store.delete(BUCKET, keys.journal_key(KERNELS[2], 2))
    await bench.store.put(BUCKET, keys.journal_key(KERNELS[2], 3), b"not an entry")
    for _ in range(2):
        answer = await bench.search(user="u2")
        assert answer.unreadable == {KERNELS[2]: (2, 3)}
        assert [(cell.start.number, cell.status) for cell in answer.cells] == [(1, "incomplete")]


async def test_storage_that_does_not_answer_fails_a_search_and_is_no_gap_in_the_index(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        async def refuses(bucket: str, key: str) -> Any:
            raise StorageError("S3 did not answer")

        patch.setattr(bench.store, "get", refuses)
        with pytest.raises(StorageError):
            await bench.search()

    answer = await bench.search()
    assert len(answer.cells) == 4
    assert answer.unreadable == {}


async def test_an_index_that_cannot_be_written_because_others_do_is_no_error(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.search() for _ in range(5)))

    assert {tuple(c.place for c in answer.cells) for answer in answers} == {
        tuple(c.place for c in answers[0].cells)
    }
    assert len(answers[0].cells) == 4


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["start", "end", "search", "catch up", "forget"]), st.integers(1, 3)
        ),
        max_size=30,
    ),
    size=st.integers(1, 5),
)
async def test_whenever_it_is_written_it_says_what_a_rebuild_says(
    steps: list[tuple[str, int]], size: int
) -> None:
    bench, counts = Bench(), dict.fromkeys(range(4), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trail_index, "SEGMENT_ENTRIES", size)
        for minute, (what, number) in enumerate(steps):
            kernel_id = KERNELS[number]
            if what == "start":
                counts[number] += 1
                await bench.add(kernel_id, [started(counts[number], user="u", agent=None)], minute)
            elif what == "end" and counts[number]:
                await bench.add(kernel_id, [finished(counts[number])], minute)
            elif what == "search":
                await bench.search()
            elif what == "catch up":
                await bench.index.catch_up(kernel_id)
            elif bench.index_keys():
                key = bench.index_keys()[number % len(bench.index_keys())]
                await bench.store.delete(BUCKET, key)
        before = await bench.cells(limit="1000")
        stored = {key: bench.store.objects[BUCKET, key] for key in bench.index_keys()}
        await bench.index.rebuild()

        assert before == await bench.cells(limit="1000")
        assert stored == {key: bench.store.objects[BUCKET, key] for key in bench.index_keys()}
        starts = [e for e in await bench.all_entries() if isinstance(e.event, CellStarted)]
        assert len(before) == len(starts)


async def test_old_segments_are_not_read_where_only_newer_cells_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trail_index, "SEGMENT_ENTRIES", 2)
    bench = Bench()
    now = 1_767_225_600.0  # 2026-01-01
    bench.store.now = lambda: now
    for number in range(1, 4):
        await bench.add(KERNELS[1], [started(number, user="u", agent=None), finished(number)], 1)
        await bench.search()
        now += 86_400
    bench.store.get_keys.clear()

    await bench.search(since="2026-01-03T00:00")
    assert bench.store.get_keys == [keys.trail_index_key(KERNELS[1], 2)]
    bench.store.get_keys.clear()
    await bench.search(since="2026-01-09")
    assert bench.store.get_keys == []


async def test_a_gateway_indexes_after_the_reply_and_a_killed_one_is_caught_up(
    world: World,
) -> None:
    registry = await world.reopen(index_pause_s=0.0)
    kernel = await registry.start(
        Identity(user="u1", agent="a1"), spec_name="lambda-python", options=KernelOptions()
    )
    client = world.attached(kernel)
    world.store.put_keys.clear()
    await client.run("print 1")
    await world.quiet()
    journal, written = keys.journal_prefix(kernel.kernel_id), world.store.put_keys
    index_key = keys.trail_index_key(kernel.kernel_id, 0)
    while index_key not in written:
        await world.turns()
        await world.quiet()
    assert [key for key in written if key.startswith((journal, index_key))] == [
        f"{journal}00000001.json", f"{journal}00000002.json", index_key,
    ]  # fmt: skip

    # Another gateway, which indexes nothing by itself, finds what the index does not have.
    registry.services.recorder.indexing.close()
    await client.run("print 2")
    await world.quiet()
    answer = await TrailIndex(world.store, "lkg-records").search(TrailQuery(), lambda start: True)
    assert [cell.start.execution_count for cell in answer.cells] == [2, 1]
    assert [cell.start.agent for cell in answer.cells] == ["a1", "a1"]
    await registry.close()


async def test_a_cell_waits_for_no_index(world: World) -> None:
    registry = await world.reopen(index_pause_s=0.0)
    kernel = await registry.start(
        Identity(user="u1"), spec_name="lambda-python", options=KernelOptions()
    )
    client = world.attached(kernel)
    await client.run("print 1")
    await world.quiet()
    world.store.put_keys.clear()
    world.store.get_keys.clear()
    told = client.execute("wait")
    await world.function.began.wait()

    assert not [k for k in (*world.store.put_keys, *world.store.get_keys) if "trail-index" in k]
    world.function.release.set()
    await client.done(told)
    await registry.close()
