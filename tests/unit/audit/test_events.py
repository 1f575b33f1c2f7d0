"""Events about no single cell, and objects beside a journal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from kernel_gateway.audit.chain import CellFinished, CellStarted, Entry, Event
from kernel_gateway.audit.events import ConnectorsGranted, PolicyChanged, changes_between
from kernel_gateway.audit.facts import (
    Credentials,
    HandlerFacts,
    Inputs,
    Owner,
    RunsIn,
    Session,
    StartFacts,
    Workspace,
)
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.references import BlobShelf, blobs_of
from kernel_gateway.audit.verifying import OK, UNPROVEN, Report, verify
from kernel_gateway.kernels.watch import Watch
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract.witness import ContainerFacts, SecretVersion, Witness
from tests.unit.audit.trails import KERNEL_ID, a_journal, a_trail, ran, trail_text

FACTS = StartFacts(
    session=Session(
        owner=Owner(user="u1"), spec_name="s", workspace="w", scope="agent", created="now"
    ),
    environment=RunsIn(
        id="default", function="f", handler_digest="d", python="3.11", memory_mb=512, tier="t"
    ),
    credentials=Credentials(
        role_arn="r",
        role_session_name="one cell's",
        policy_digest="one cell's",
        policy_template="a" * 64,
        duration_s=900,
    ),
)


def finished(*connectors: str) -> CellFinished:
    witness = Witness(
        begun_ms=1,
        ended_ms=2,
        container=ContainerFacts(python="3.11", architecture="x86_64", packages="b" * 64),
        connectors=connectors,
        secret=SecretVersion(arn="arn", version_id="v1") if connectors else None,
    )
    said = HandlerFacts(
        status="ok",
        witness=witness,
        packages="b" * 64,
        inputs=Inputs(count=300, digest="c" * 64, blob="c" * 64),
        workspace=Workspace(count=300, blob="c" * 64),
    )
    return CellFinished(request_id="r1", status="ok", handler=said)


def test_what_is_another_for_each_cell_is_no_change() -> None:
    credentials = replace(FACTS.credentials, role_session_name="another", policy_digest="another")

    assert changes_between(FACTS, replace(FACTS, credentials=credentials)) == ()


def test_a_change_names_what_is_different() -> None:
    environment = replace(FACTS.environment, memory_mb=1024, tier="process")
    credentials = replace(FACTS.credentials, policy_template="e" * 64)

    assert changes_between(
        FACTS, replace(FACTS, environment=environment, credentials=credentials)
    ) == ("credentials.policy_template", "environment.memory_mb", "environment.tier")


def test_a_change_is_said_once() -> None:
    watch = Watch()
    other = replace(FACTS, environment=replace(FACTS.environment, handler_digest="new"))

    said = [watch.before(KERNEL_ID, facts) for facts in (FACTS, FACTS, other, other)]

    assert said == [None, None, PolicyChanged(changed=("environment.handler_digest",)), None]


def test_connectors_are_granted_from_the_cell_on_that_could_read_them() -> None:
    watch = Watch()
    ends = [finished(), finished("gh"), finished("gh"), finished("db", "gh"), finished()]

    said = [watch.after(KERNEL_ID, each) for each in ends]

    secret = SecretVersion(arn="arn", version_id="v1")
    assert said == [
        None,
        ConnectorsGranted(request_id="r1", connectors=("gh",), secret=secret),
        None,
        ConnectorsGranted(request_id="r1", connectors=("db", "gh"), secret=secret),
        ConnectorsGranted(request_id="r1", connectors=(), secret=None),
    ]


def test_an_entry_with_such_an_event_is_read_again() -> None:
    for event in (PolicyChanged(changed=("network",)), finished("gh")):
        entry = Entry(kernel_id=KERNEL_ID, number=1, previous="", epoch=0, time="now", event=event)

        assert Entry.from_bytes(entry.to_bytes()) == entry


def test_the_objects_that_an_entry_names_are_each_named_once() -> None:
    started = CellStarted(
        request_id="r1",
        seq=1,
        parent=None,
        execution_count=1,
        timeout_s=1,
        header={},
        content={},
        gateway=FACTS,
    )

    assert blobs_of(started) == ("a" * 64,)
    assert blobs_of(finished()) == ("b" * 64, "c" * 64)
    assert blobs_of(PolicyChanged(changed=())) == ()


class Counting(MemoryObjectStore):
    """A store that counts what it is given."""

    put_count = 0

    async def put(self, *arguments: object, **options: object) -> str:
        self.put_count += 1
        return await super().put(*arguments, **options)  # type: ignore[arg-type]


async def test_an_object_of_a_journal_is_stored_once() -> None:
    store = Counting()
    shelf = BlobShelf(store, "records")

    digests = {shelf.keep("k", b"policy") for _ in range(3)}
    await shelf.flush()
    shelf.keep("k", b"policy")
    await shelf.flush()

    assert digests == {hashlib.sha256(b"policy").hexdigest()}
    assert store.put_count == 1
    assert store.objects["records", f"audit/k/b/{digests.pop()}"] == b"policy"


async def test_what_entries_name_and_nobody_stored_is_named_by_verify(tmp_path: Path) -> None:
    start, end = ran(1, "1")
    assert isinstance(start, CellStarted)
    assert isinstance(end, CellFinished)
    events: list[Event] = [replace(start, gateway=FACTS), replace(end, handler=finished().handler)]
    keys, store = KeyFolder(tmp_path), MemoryObjectStore()
    journal = await a_journal(events, keys, store=store)

    async def verified() -> Report:
        return verify(read_trail((await trail_text(journal)).encode()), keys.keys())

    # As a gateway leaves it that is killed before it has stored them.
    for digest, names in (("a", "abc"), ("c", "bc"), ("b", "b")):
        report = await verified()
        assert [text.split()[6][0] for text in report.unproven] == list(names)
        assert all(text.startswith("content-missing: cell 2 ") for text in report.unproven)
        assert (report.exit_code, report.problems) == (UNPROVEN, [])
        await store.put("records", f"audit/{KERNEL_ID}/b/{digest * 64}", b"")

    assert (await verified()).exit_code == OK


async def test_what_a_file_says_is_not_stored_counts_only_where_its_entries_name_it(
    tmp_path: Path,
) -> None:
    trail = await a_trail(tmp_path, ran(1, "1"))
    for absent in (["a" * 64, "\x1b[2J", 7, None], "a" * 64, {"a": 1}):
        trail["cells"][1]["metadata"]["lambda_kernel"]["audit"]["absent"] = absent
        read = read_trail(json.dumps(trail).encode())

        report = verify(read, KeyFolder(tmp_path).keys())

        assert (report.exit_code, report.unproven) == (OK, [])
