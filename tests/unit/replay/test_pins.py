"""A replay begins with the recorded versions of files, never with others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_gateway.audit.facts import Inputs, Owner
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.replay.pins import Pin, RecordedStates, Unavailable
from kernel_gateway.replay.recorded import RecordedCell, RecordedTrail
from kernel_gateway.web.workspace_files import FileAttributes, MemoryFileStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import (
    Blob,
    Commit,
    CommittedFile,
    Namespace,
    StoredObject,
    digest_of,
)
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.contract.scope import Scope
from tests.unit.replay.trails import ROOT, a_cell, change, facts

KERNEL = "11111111-1111-1111-1111-111111111111"
TARGET = "users/u1/.replays/r/"


def states_of(
    *cells: RecordedCell, files: MemoryFileStore | None = None, readable: str | None = "users/u1/"
) -> RecordedStates:
    trail = RecordedTrail(kernel_id=KERNEL, number=1, digest="d", cells=cells)
    return RecordedStates(
        trail, MemoryObjectStore(), files or MemoryFileStore(), Stack(), readable=readable
    )


def stored(*versions: tuple[str, str]) -> MemoryFileStore:
    found = MemoryFileStore()
    for path, version in versions:
        attributes = FileAttributes(sha256=None, mtime_ns=0)
        found.versions[ROOT + path, version] = (version.encode(), attributes)
    return found


async def reason_of(states: RecordedStates, path: str, pin: Pin) -> str:
    try:
        await states.bring({path: pin}, TARGET)
    except Unavailable as gone:
        return str(gone)
    return ""


async def test_what_a_cell_found_is_what_it_left_without_what_it_did() -> None:
    files = stored(("kept", "v1"), ("changed", "v1"), ("changed", "v2"), ("gone", "v3"))
    attributes = FileAttributes(sha256=None, mtime_ns=0)
    files.versions[ROOT + "gone", "marker"] = (b"", attributes)
    cell = a_cell(
        1,
        files={"kept": "v1", "changed": "v2", "made": "v1"},
        changes=[
            change("made", "created", "v1"),
            change("changed", "modified", "v2"),
            change("gone", "deleted", "marker"),
            change("folder/", "created", "v9"),
        ],
    )

    found = await states_of(cell, files=files).files_before(cell)

    assert {path: pin.version_id for path, pin in found.items()} == {
        "kept": "v1", "changed": "v1", "gone": "v3",
    }  # fmt: skip


async def test_an_uncommitted_cell_found_what_the_cell_before_it_left() -> None:
    before, lost = a_cell(1, files={"a": "v1"}), a_cell(2, committed=False)
    found = await states_of(before, lost).files_before(lost)
    assert found == {"a": Pin(key=ROOT + "a", version_id="v1")}


async def test_the_recorded_version_is_copied_although_there_is_a_newer_one() -> None:
    files = stored(("a", "v1"), ("a", "v2"))
    pin = Pin(key=ROOT + "a", version_id="v1")
    assert await reason_of(states_of(a_cell(1), files=files), "a", pin) == ""
    assert files.files[TARGET + "a"][0] == b"v1"


async def test_a_version_that_is_gone_is_unavailable_never_another_one() -> None:
    files = stored(("a", "v2"))
    states = states_of(a_cell(1), files=files)
    gone = await reason_of(states, "a", Pin(key=ROOT + "a", version_id="v1"))
    assert gone == "a (version v1) is not kept any more"
    assert "not recorded" in await reason_of(states, "a", Pin(key=ROOT + "a", version_id=None))
    assert not files.files


async def test_files_of_others_and_paths_that_lead_out_are_not_copied() -> None:
    files = MemoryFileStore()
    attributes = FileAttributes(sha256=None, mtime_ns=0)
    for key in ("users/u2/w/a", ROOT + "../x", "users/u1/w/a"):
        files.versions[key, "v1"] = (b"secret", attributes)
    states = states_of(a_cell(1), files=files)
    theirs = Pin(key="users/u2/w/a", version_id="v1")
    assert "not yours" in await reason_of(states, "a", theirs)
    assert await reason_of(states, "../x", Pin(key=ROOT + "../x", version_id="v1"))
    nobodys = states_of(a_cell(1), files=files, readable=None)
    own = Pin(key="users/u1/w/a", version_id="v1")
    assert "not yours" in await reason_of(nobodys, "a", own)
    assert not files.files


async def test_a_trail_whose_cells_name_several_owners_reads_the_variables_of_one() -> None:
    own, other = a_cell(1), a_cell(2, gateway=facts(Owner(user="u2")))
    states = states_of(own, other)
    assert states.scope_of(own).user == "u1"
    try:
        found = states.scope_of(other).user
    except Unavailable:
        found = ""
    assert found == ""


async def test_a_deleted_file_is_the_version_that_the_cell_before_left_not_a_newer_one() -> None:
    before = a_cell(1, files={"a": "v1"})
    deleting = a_cell(2, files={}, changes=[change("a", "deleted", "marker")])
    # As where the time of all three is the same second.
    files = stored(("a", "v1"), ("a", "newer"), ("a", "marker"))

    found = await states_of(before, deleting, files=files).files_before(deleting)

    assert found == {"a": Pin(key=ROOT + "a", version_id="v1")}


async def test_what_the_entry_says_that_a_cell_found_comes_first() -> None:
    found = CommittedFile(key=ROOT + "a", version_id="v2", digest="d", size_bytes=1)
    before = a_cell(1, files={"a": "v1"})
    # Somebody stored another version between the two cells, which the second one then deleted.
    deleting = a_cell(
        2,
        changes=[change("a", "deleted", "marker")],
        inputs=Inputs(count=1, digest="d", files=(found,)),
    )

    assert await states_of(before, deleting).files_before(deleting) == {
        "a": Pin(key=ROOT + "a", version_id="v2")
    }


@pytest.mark.parametrize(
    "key", ["users/u1/../u2/w/a", "users/u1/w/..\\..\\u2\\a", "users/u1/./../u2/w/a"]
)
async def test_a_key_that_climbs_out_of_what_is_readable_is_never_asked_for(key: str) -> None:
    files = MemoryFileStore()
    files.versions[key, "v1"] = (b"theirs", FileAttributes(sha256=None, mtime_ns=0))

    reason = await reason_of(states_of(a_cell(1), files=files), "a", Pin(key=key, version_id="v1"))

    assert reason == "a was in a workspace that is not yours"
    assert not files.files


PREFIX = "users/u1/.replays/r/"


def shared_prefix(number: int) -> str:
    return f"{PREFIX}inputs/{number}/"


async def test_cells_that_found_the_same_files_share_one_copy_of_them() -> None:
    found: dict[str, str | None] = {"a": "v1", "b": "v1"}
    cells = [
        a_cell(1, files=found),
        a_cell(2, files={**found, "b": "v2"}, changes=[change("b", "modified", "v2")]),
        a_cell(3, files={**found, "b": "v2"}),
        a_cell(4, files={**found, "b": "v2"}),
    ]
    files = stored(("a", "v1"), ("b", "v1"), ("b", "v2"))
    states = states_of(*cells, files=files)

    prefixes = [await states.inputs(cell, shared_prefix) for cell in cells]

    first, second = shared_prefix(1), shared_prefix(2)
    assert prefixes == [first, first, second, second]
    assert {key: body for key, (body, _) in files.files.items()} == {
        f"{first}a": b"v1", f"{first}b": b"v1", f"{second}a": b"v1", f"{second}b": b"v2",
    }  # fmt: skip


async def test_a_file_that_is_gone_is_missing_for_every_cell_that_found_it() -> None:
    cells = [a_cell(n, files={"a": "v1"}) for n in (1, 2)]
    states = states_of(*cells, files=stored(("a", "v2")))
    for cell in cells:
        with pytest.raises(Unavailable, match="not kept any more"):
            await states.inputs(cell, shared_prefix)


async def test_what_a_pinned_cell_found_is_found_again_when_its_own_trail_is_replayed() -> None:
    names = {
        f"{PREFIX}inputs/3/data/a": "data/a",
        f"{PREFIX}7/made": "made",
        f"{PREFIX}8/other": None,
        "users/u1/.replays/r2/inputs/3/a": None,
    }
    listed = tuple(
        CommittedFile(key=key, version_id="v1", digest="d", size_bytes=1) for key in names
    )
    cell = a_cell(
        1,
        gateway=facts(prefix=f"{PREFIX}7/"),
        inputs=Inputs(count=len(listed), digest="d", files=listed),
    )

    found = await states_of(cell).files_before(cell)

    assert found == {
        path: Pin(key=key, version_id="v1") for key, path in names.items() if path is not None
    }


async def begun(*, in_place: bool, is_kept: bool) -> tuple[set[str], str]:
    """Return what a replay's scope holds once it has begun with a state, and why it has not."""
    store, own, replay = MemoryObjectStore(), Scope(user="u1"), Scope(user="u1", execution=KERNEL)
    chunk = Blob(digest="c" * 64, size_bytes=1, day=5)
    namespace = Namespace(objects=(StoredObject(id=1, size_bytes=1, chunks=(chunk,)),), index=1)
    commit = Commit(
        kernel_id=KERNEL,
        scope_hash=own.hash,
        seq=1,
        parent=None,
        request_id="0" * 32,
        execution_count=1,
        namespace=namespace,
        outcome=Outcome(status=Status.OK, started=True, committed=False, nonce="0" * 32),
    ).to_bytes()
    head, bucket = Head(seq=1, digest=digest_of(commit)), Stack().state
    await store.put(bucket, keys.commit_key(own, KERNEL, 1), commit)
    if is_kept:
        await store.put(bucket, keys.blob_key(own, chunk.digest, 5), b"x")
    cell = a_cell(2)
    cell = replace(cell, started=replace(cell.started, parent=head))
    trail = RecordedTrail(kernel_id=KERNEL, number=1, digest="d", cells=(a_cell(1), cell))
    states = RecordedStates(trail, store, MemoryFileStore(), Stack(), readable="users/u1/")
    reason = ""
    try:
        await states.begin(cell, replay, in_place=in_place)
    except Unavailable as gone:
        reason = str(gone)
    prefix = keys.scope_prefix(replay)
    return {key.removeprefix(prefix) async for key in store.list(bucket, prefix)}, reason


async def test_variables_stay_where_they_are_for_who_may_read_them_there() -> None:
    commit, chunk = f"kernels/{KERNEL}/0000000001", f"blobs/000005/{'c' * 64}"
    assert await begun(in_place=True, is_kept=True) == ({commit}, "")
    assert await begun(in_place=False, is_kept=True) == ({commit, chunk}, "")


@pytest.mark.parametrize("in_place", [True, False])
async def test_variables_that_are_gone_are_unavailable(in_place: bool) -> None:
    _, reason = await begun(in_place=in_place, is_kept=False)
    assert reason == "some of its variables are not kept any more"
