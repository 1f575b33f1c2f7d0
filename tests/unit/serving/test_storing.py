"""A working directory in and out: caches, conflicts, hostile files, cells that were lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, CommittedFile
from lambda_kernel.contract.invocation import CellMessage, Head, Invocation
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import leftovers, manifest, mirror, storing
from lambda_kernel.serving.cache import DownloadCache
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.mirror import Mirrored, MirrorPlan
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.storing import Stored

BUCKET = "w"
STATE = "s"
ROOT = "users/u1/default/"
KERNEL_ID = "12345678-1234-1234-1234-123456789012"
SCOPE = Scope(user="u1")


class Workspace:
    """One container's view of the workspace."""

    def __init__(self, store: MemoryObjectStore, folder: Path, pool: Pool) -> None:
        self.store = store
        self.pool = pool
        folder.mkdir()
        self.workdir = folder / "work"
        self.cache = DownloadCache.open(folder / "cache", 10**6)
        self.cache.claim("u1")
        self.plan = MirrorPlan(
            bucket=BUCKET, root=ROOT, workdir=str(self.workdir), max_bytes=10**6, cell="cell-1"
        )
        self.mirrored = Mirrored()
        self.stored = Stored()

    def mirror(self, session: leftovers.Session | None = None) -> Mirrored:
        for left in self.workdir.iterdir() if self.workdir.exists() else ():
            left.unlink()
        self.workdir.mkdir(exist_ok=True)
        listing = mirror.list_stored(self.store, self.plan, self.pool, self.cache.bounds)
        self.mirrored = mirror.mirror_in(
            self.store,
            self.plan,
            listing,
            self.cache,
            self.pool,
            lambda stamps: leftovers.undo(session, stamps) if session else (),
        )
        return self.mirrored

    def persist(self) -> list[str]:
        """Store what changed and return the notices."""
        self.cache.cell_ran()
        after, notices = storing.scan(self.plan, self.mirrored, self.cache)
        changes = manifest.difference(self.mirrored.tree, after)
        self.stored = Stored()
        storing.store_changes(
            self.store, self.plan, self.mirrored, changes, self.cache, self.pool, self.stored
        )
        return notices + self.stored.notices

    def roll_back(self) -> list[str]:
        return storing.roll_back(self.store, self.plan, self.mirrored, self.stored, self.pool)

    def body(self, path: str) -> bytes | None:
        return self.store.body(BUCKET, ROOT + path)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(CallCount(), threads=4)
    yield pool
    pool.close()


@pytest.fixture
def here(store: MemoryObjectStore, tmp_path: Path, pool: Pool) -> Workspace:
    return Workspace(store, tmp_path / "here", pool)


@pytest.fixture
def there(store: MemoryObjectStore, tmp_path: Path, pool: Pool) -> Workspace:
    return Workspace(store, tmp_path / "there", pool)


SOURCE = "users/u1/.replays/r/inputs/1/"


@pytest.fixture
def pinned(store: MemoryObjectStore, here: Workspace) -> Workspace:
    """Return a workspace whose files come from a prefix that others read, too."""
    for path in ("kept", "changed", "gone"):
        store.put(BUCKET, SOURCE + path, b"recorded")
    here.plan = replace(here.plan, source=SOURCE)
    here.mirror()
    (here.workdir / "changed").write_text("changed")
    (here.workdir / "made").write_text("made")
    (here.workdir / "gone").unlink()
    return here


def test_what_a_pinned_cell_does_to_its_inputs_stays_in_its_own_folder(
    store: MemoryObjectStore, pinned: Workspace
) -> None:
    assert pinned.persist() == []

    assert {c.path: (c.change, c.key) for c in pinned.stored.changes} == {
        "changed": ("modified", ROOT + "changed"),
        "made": ("created", ROOT + "made"),
        "gone": ("deleted", ROOT + "gone"),
    }
    assert (pinned.body("changed"), pinned.body("made")) == (b"changed", b"made")
    for path in ("kept", "changed", "gone"):
        assert store.body(BUCKET, SOURCE + path) == b"recorded"
        assert len(store.versions[BUCKET, SOURCE + path]) == 1
    after, _ = storing.scan(pinned.plan, pinned.mirrored, pinned.cache)
    named = storing.committed_files(pinned.plan, after, pinned.mirrored, pinned.stored)
    assert sorted(file.key for file in named) == sorted(
        [SOURCE + "kept", ROOT + "changed", ROOT + "made"]
    )
    # The next cell with the same inputs, in the same container.
    pinned.cache.cell_ran()
    pinned.mirror()
    assert (pinned.workdir / "changed").read_text() == "recorded"


def test_a_pinned_cell_that_is_lost_leaves_nothing_of_its_files(
    store: MemoryObjectStore, pinned: Workspace
) -> None:
    pinned.persist()
    assert pinned.roll_back() == []
    assert (pinned.body("changed"), pinned.body("made")) == (None, None)
    assert store.body(BUCKET, SOURCE + "changed") == b"recorded"


@pytest.mark.parametrize("created", [True, False])
def test_of_two_writers_the_last_wins_and_is_told(
    store: MemoryObjectStore, here: Workspace, there: Workspace, created: bool
) -> None:
    if not created:
        store.put(BUCKET, ROOT + "f", b"old")
    for side in (here, there):
        side.mirror()
    (there.workdir / "f").write_text("theirs")
    (here.workdir / "f").write_text("ours")
    (here.workdir / "alone").write_text("ours")
    assert there.persist() == []
    (notice,) = here.persist()
    theirs = there.stored.versions["f"]
    assert f"'f' ({theirs})" in notice
    assert "'alone'" not in notice
    assert here.body("f") == b"ours"
    assert b"theirs" in [v.body for v in store.versions[BUCKET, ROOT + "f"]]


def test_among_many_files_the_overtaken_one_is_told(here: Workspace, there: Workspace) -> None:
    for side in (here, there):
        side.mirror()
    (there.workdir / "f7").write_text("theirs")
    there.persist()
    for i in range(storing.CONDITIONAL_UPLOADS + 1):
        (here.workdir / f"f{i}").write_text("ours")
    (notice,) = here.persist()
    assert "'f7'" in notice
    assert "'f8'" not in notice


def test_a_deletion_of_what_another_changed_is_told(
    store: MemoryObjectStore, here: Workspace, there: Workspace
) -> None:
    store.put(BUCKET, ROOT + "f", b"old")
    store.put(BUCKET, ROOT + "g", b"old")
    for side in (here, there):
        side.mirror()
    (there.workdir / "f").write_text("theirs")
    there.persist()
    (here.workdir / "f").unlink()
    (here.workdir / "g").unlink()
    (notice,) = here.persist()
    assert "'f'" in notice
    assert "'g'" not in notice
    assert here.body("f") is None


def test_undoing_a_cell_leaves_what_another_wrote_meanwhile(
    here: Workspace, there: Workspace
) -> None:
    for side in (here, there):
        side.mirror()
    (there.workdir / "f").write_text("theirs")
    there.persist()
    (here.workdir / "f").write_text("ours")
    (here.workdir / "g").write_text("ours")
    here.persist()
    assert here.roll_back() == []
    assert here.body("f") == b"theirs"
    assert here.body("g") is None


def test_many_deletions_are_few_requests(store: MemoryObjectStore, here: Workspace) -> None:
    asked: list[int] = []
    for i in range(2500):
        store.put(BUCKET, f"{ROOT}f{i}", b"x")
    here.mirror()
    for path in here.workdir.iterdir():
        path.unlink()
    original = store.delete_many

    def count(bucket: str, object_keys: list[str]) -> dict[str, str | None]:
        asked.append(len(object_keys))
        return original(bucket, object_keys)

    store.delete_many = count  # type: ignore[method-assign, assignment]
    here.persist()
    assert sorted(asked) == [500, 1000, 1000]
    assert store.keys(BUCKET) == []


def test_a_refused_deletion_is_an_error_and_the_others_are_known(
    store: MemoryObjectStore, here: Workspace
) -> None:
    for name in "ab":
        store.put(BUCKET, ROOT + name, b"x")
    here.mirror()
    for path in here.workdir.iterdir():
        path.unlink()

    def refuse(operation: str, key: str) -> None:
        if operation == "delete" and key.endswith("a"):
            raise StorageUnavailable("no")

    store.refuse = refuse
    with pytest.raises(StorageUnavailable, match="'a'"):
        here.persist()
    assert [change.path for change in here.stored.changes] == ["b"]


def test_a_long_listing_is_asked_for_page_by_page_at_once(
    store: MemoryObjectStore, here: Workspace, pool: Pool
) -> None:
    for i in range(2500):
        store.put(BUCKET, f"{ROOT}f{i:04}", b"x")
    first = mirror.list_stored(store, here.plan, pool, here.cache.bounds)
    assert here.cache.bounds[ROOT] == (f"{ROOT}f0999", f"{ROOT}f1999")
    store.put(BUCKET, f"{ROOT}f0999x", b"x")
    store.put(BUCKET, f"{ROOT}a", b"x")
    store.calls.clear()
    again = mirror.list_stored(store, here.plan, pool, here.cache.bounds)
    assert len(store.calls) == 3
    assert again.files.keys() == first.files.keys() | {"a", "f0999x"}


def test_a_file_changed_in_place_harms_no_other_cell(
    store: MemoryObjectStore, here: Workspace
) -> None:
    store.put(BUCKET, ROOT + "f", b"good", metadata={"mtime-ns": "1000"})
    here.mirror()
    (here.workdir / "f").write_bytes(b"evil")
    os.utime(here.workdir / "f", ns=(1000, 1000))
    here.cache.cell_ran()
    here.mirror()
    assert (here.workdir / "f").read_bytes() == b"good"


def test_an_equal_digest_never_serves_another_user(
    store: MemoryObjectStore, here: Workspace
) -> None:
    store.put(BUCKET, ROOT + "f", b"same")
    here.mirror()
    here.cache.claim("u2")
    store.calls.clear()
    here.mirror()
    assert ("get", ROOT + "f") in store.calls


def test_an_object_that_is_not_what_its_metadata_says_is_refused(
    store: MemoryObjectStore, here: Workspace
) -> None:
    store.put(BUCKET, ROOT + "f", b"evil", metadata={"sha256": "0" * 64})
    with pytest.raises(StorageUnavailable, match="digest"):
        here.mirror()


def test_only_regular_files_are_stored(
    store: MemoryObjectStore, here: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(BUCKET, ROOT + "was-a-file", b"x")
    here.mirror()
    monkeypatch.chdir(here.workdir)
    Path("link").symlink_to("/etc/passwd")
    Path("folder-link").symlink_to("/etc")
    Path("was-a-file").unlink()
    Path("was-a-file").symlink_to("/etc/passwd")
    os.mkfifo("pipe")
    Path("control\nname").touch()
    deep = Path(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "f").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    notices = "\n".join(here.persist())
    for name in ("'link'", "'folder-link'", "'was-a-file'", "'pipe'", "'socket'", "control", "ddd"):
        assert name in notices
    assert all(len(key) < 1000 for key in store.keys(BUCKET))
    assert not any(b"root:" in (v.body or b"") for vs in store.versions.values() for v in vs)


def test_holes_are_stored_as_far_as_there_is_room(
    store: MemoryObjectStore, here: Workspace
) -> None:
    store.put(BUCKET, ROOT + "huge", b"stored")
    here.mirror()
    for name, size in (("small", 200_000), ("huge", 10**13)):
        with (here.workdir / name).open("wb") as file:
            file.truncate(size)
    (notice,) = here.persist()
    assert "'huge' (10000000.0 MB)" in notice
    assert here.body("small") == bytes(200_000)
    assert here.body("huge") == b"stored"


def test_a_hard_link_to_a_file_elsewhere_is_a_file_of_its_own(
    store: MemoryObjectStore, here: Workspace, tmp_path: Path
) -> None:
    here.mirror()
    outside = tmp_path / "outside"
    outside.write_text("shared")
    (here.workdir / "f").hardlink_to(outside)
    here.persist()
    outside.write_text("changed later")
    here.cache.cell_ran()
    here.mirror()
    assert here.body("f") == b"shared"
    assert (here.workdir / "f").read_text() == "shared"


def invocation(seq: int, request: str = "b") -> Invocation:
    return Invocation(
        request_id=request * 32,
        kernel_id=KERNEL_ID,
        seq=seq,
        scope=SCOPE,
        workdir_name="0" * 32,
        msg=CellMessage(header={"msg_id": "m"}, content={"code": ""}),
        execution_count=seq,
        write_prefix=ROOT,
        nonce="c" * 32,
    )


def committed(seq: int, files: dict[str, str | None], request: str = "a") -> Commit:
    return Commit(
        kernel_id=KERNEL_ID,
        scope_hash=SCOPE.hash,
        seq=seq,
        parent=None if seq == 1 else Head(seq=seq - 1, digest="0" * 64),
        request_id=request * 32,
        execution_count=seq,
        files=tuple(
            CommittedFile(key=ROOT + path, version_id=version, digest="0" * 64, size_bytes=1)
            for path, version in files.items()
        ),
        outcome=Outcome(status=Status.OK, started=True, committed=False, nonce="n"),
    )


def session(store: MemoryObjectStore, seq: int, parent: Commit | None) -> leftovers.Session:
    return leftovers.Session(
        store=store, workspaces=BUCKET, state=STATE, invocation=invocation(seq), parent=parent
    )


def stamped(store: MemoryObjectStore, path: str, body: bytes, stamp: str) -> str | None:
    return store.put(BUCKET, ROOT + path, body, metadata={"cell": stamp}).version_id


def test_what_a_killed_cell_had_stored_is_undone_by_the_next(
    store: MemoryObjectStore, here: Workspace
) -> None:
    first = leftovers.stamp(invocation(1, "a"))
    parent = committed(1, {"f": stamped(store, "f", b"committed", first)})
    lost = leftovers.stamp(invocation(2, "d"))
    stamped(store, "f", b"lost", lost)
    stamped(store, "new", b"lost", lost)
    stamped(store, "other", b"other kernel", lost.replace("1234567", "7654321", 1))
    (notice,) = here.mirror(session(store, 3, parent)).notices
    assert "'f'; 'new'" in notice
    assert sorted(p.read_text() for p in here.workdir.iterdir()) == ["committed", "other kernel"]
    assert here.body("new") is None
    assert here.mirror(session(store, 3, parent)).notices == []


def test_files_of_committed_cells_stay_also_after_a_restart(
    store: MemoryObjectStore, here: Workspace
) -> None:
    for seq in (1, 2):
        done = committed(seq, {})
        store.put(STATE, keys.commit_key(SCOPE, KERNEL_ID, seq), done.to_bytes())
        stamped(store, f"f{seq}", b"kept", leftovers.stamp(invocation(seq, "a")))
    store.calls.clear()
    assert here.mirror(session(store, 3, None)).notices == []
    assert len([key for _, key in store.calls if "/kernels/" in key]) == 1
    assert sorted(p.name for p in here.workdir.iterdir()) == ["f1", "f2"]


def test_a_number_that_another_attempt_committed_does_not_cover_a_lost_one(
    store: MemoryObjectStore, here: Workspace
) -> None:
    done = committed(1, {}, request="e")
    store.put(STATE, keys.commit_key(SCOPE, KERNEL_ID, 1), done.to_bytes())
    stamped(store, "f", b"lost", leftovers.stamp(invocation(1, "a")))
    assert here.mirror(session(store, 2, None)).notices != []
    assert list(here.workdir.iterdir()) == []


def test_what_a_killed_cell_had_deleted_is_there_again(
    store: MemoryObjectStore, here: Workspace
) -> None:
    first = leftovers.stamp(invocation(1, "a"))
    versions = {"f": stamped(store, "f", b"kept", first), "d/g": stamped(store, "d/g", b"g", first)}
    parent = committed(1, versions)
    leftovers.announce(session(store, 2, parent), {**versions, "empty/": None, "never": None})
    store.delete(BUCKET, ROOT + "f")
    store.delete(BUCKET, ROOT + "d/g")
    (notice,) = here.mirror(session(store, 3, parent)).notices
    assert notice.endswith("'d/g'; 'empty/'; 'f'")
    assert (here.workdir / "f").read_text() == "kept"
    assert (here.workdir / "d" / "g").read_text() == "g"
    assert (here.workdir / "empty").is_dir()
    assert list(store.list(STATE, "")) == []


def test_what_a_cell_deleted_that_committed_stays_deleted(
    store: MemoryObjectStore, here: Workspace
) -> None:
    version = stamped(store, "f", b"kept", leftovers.stamp(invocation(1, "a")))
    leftovers.announce(session(store, 2, committed(1, {"f": version})), {"f": version})
    store.delete(BUCKET, ROOT + "f")
    assert here.mirror(session(store, 4, committed(2, {}))).notices == []
    assert not list(here.workdir.iterdir())
