"""HOME: saved where it changed, restored where it is missing, out of reach of other scopes."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import home_packs, home_saving, home_tree, homes
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.home_manifest import HomeEntry, HomeManifest
from lambda_kernel.serving.homes import HomeLimits, Homes, HomeTooLarge, SavedHome
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.parallel import CallCount, Pool

SCOPE = Scope(user="u1")
OTHER = Scope(user="u1", agent="a1")
BUCKET = "state"


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def container(tmp_path: Path, store: MemoryObjectStore) -> Iterator[Callable[..., Homes]]:
    """Make the homes of a new container."""
    pool = Pool(CallCount(), threads=4)

    def make(**limits: Any) -> Homes:
        root = tmp_path / f"container-{len(list(tmp_path.iterdir()))}"
        root.mkdir()
        return Homes(store, BUCKET, pool, str(root), HomeLimits(**limits))

    yield make
    pool.close()


def restore(own: Homes, scope: Scope = SCOPE, committed: str | None = None) -> Path:
    own.clear_others(scope)
    return Path(own.restore(scope, own.fetch_head(scope), committed))


def save(own: Homes, scope: Scope = SCOPE) -> SavedHome:
    saved = own.save(scope)
    assert saved is not None
    return saved


def commit(own: Homes, scope: Scope = SCOPE) -> list[str]:
    return own.publish(scope, save(own, scope))


def reads(store: MemoryObjectStore) -> list[str]:
    return [key.split("/home/")[1].split("/")[0] for operation, key in store.calls]


def test_a_home_survives_its_container(container: Callable[..., Homes]) -> None:
    first = container()
    path = restore(first)
    tool = path / ".local" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!")
    tool.chmod(0o755)
    os.utime(tool, ns=(5, 1_000_000_007))
    (path / "link").symlink_to("/usr/bin/python3")
    (path / "dangling").symlink_to("nowhere")
    (path / "empty").mkdir(mode=0o711)
    (path / "nothing").touch()
    os.utime(path / "nothing", ns=(-5, -5))
    (path / os.fsdecode(b"not-utf8-\xff")).write_text("x")
    commit(first)
    second = container()
    path = restore(second)
    found = (path / ".local" / "bin" / "tool").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o755, 1_000_000_007)
    assert (path / "link").readlink() == Path("/usr/bin/python3")
    assert (path / "dangling").is_symlink()
    assert (path / "empty").stat().st_mode & 0o777 == 0o711
    assert (path / "nothing").read_bytes() == b""
    assert (path / "nothing").stat().st_mtime_ns == -5
    assert (path / os.fsdecode(b"not-utf8-\xff")).read_text() == "x"
    assert second.save(SCOPE) is None


def test_many_small_files_are_few_objects(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    path = restore(container())
    own = container()
    path = restore(own)
    for i in range(500):
        (path / f"f{i}").write_text(str(i))
    commit(own)
    assert len(store.keys(BUCKET)) == 3
    store.calls.clear()
    path = restore(container())
    assert (path / "f499").read_text() == "499"
    assert reads(store) == ["head", "manifests", "packs"]


def test_an_unchanged_home_costs_no_request_but_its_head(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    (restore(own) / "f").write_text("x")
    commit(own)
    store.calls.clear()
    restore(own)
    assert own.save(SCOPE) is None
    assert store.calls == [("get", keys.home_head_key(SCOPE))]


def test_a_file_that_was_touched_but_not_changed_is_not_stored_again(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    file = restore(own) / "f"
    file.write_text("x")
    os.utime(file, ns=(7, 7))
    commit(own)
    store.calls.clear()
    file.write_text("x")
    os.utime(file, ns=(7, 7))
    assert own.save(SCOPE) is None
    os.utime(file, ns=(8, 8))
    commit(own)
    assert reads(store) == ["manifests", "head"]


def test_only_what_changed_is_packed(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    path = restore(own)
    (path / "big").write_bytes(os.urandom(100_000))
    commit(own)
    before = set(store.keys(BUCKET))
    (path / "small").write_text("small")
    shutil.copy(path / "big", path / "copy")
    (path / "big").rename(path / "moved")
    commit(own)
    packs = [key for key in set(store.keys(BUCKET)) - before if "/packs/" in key]
    assert [store.body(BUCKET, key) for key in packs] == [b"small"]
    found = restore(container())
    assert (found / "moved").read_bytes() == (found / "copy").read_bytes()
    assert not (found / "big").exists()


def test_a_file_larger_than_a_pack_is_cut_and_joined(
    container: Callable[..., Homes],
    store: MemoryObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home_packs, "PACK_BYTES", 1000)
    own = container()
    path = restore(own)
    content = os.urandom(12_345)
    (path / "a").write_text("a" * 700)
    (path / "big").write_bytes(content)
    (path / "z").write_text("z")
    commit(own)
    assert sum("/packs/" in key for key in store.keys(BUCKET)) == 14
    found = restore(container())
    assert (found / "big").read_bytes() == content
    assert (found / "z").read_text() == "z"


def test_many_small_packs_are_written_anew(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    path = restore(own)
    for i in range(home_packs.SMALL_PACKS + 3):
        (path / f"f{i}").write_text(f"content {i}")
        commit(own)
    (digest,) = {own.saved_digest(SCOPE)}
    stored = store.body(BUCKET, keys.home_manifest_key(SCOPE, str(digest)))
    assert stored is not None
    manifest = HomeManifest.from_bytes(stored, str(digest))
    packs = {extent.pack for entry in manifest.entries.values() for extent in entry.extents}
    assert len(packs) <= 3
    found = restore(container())
    assert (found / "f0").read_text() == "content 0"


def test_a_home_that_another_container_changed_is_brought_up_to_date(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    first, second = container(), container()
    path = restore(first)
    (path / "kept").write_bytes(os.urandom(1000))
    (path / "gone").write_text("x")
    commit(first)
    other = restore(second)
    (other / "new").write_text("new")
    (other / "gone").unlink()
    commit(second)
    store.calls.clear()
    path = restore(first)
    assert sorted(p.name for p in path.iterdir()) == ["kept", "new"]
    assert reads(store) == ["head", "manifests", "packs"]
    assert first.save(SCOPE) is None


def test_two_cells_that_change_a_home_at_once_lose_nothing(
    container: Callable[..., Homes],
) -> None:
    first, second = container(), container()
    for name in ("both", "theirs", "gone"):
        (restore(first) / name).write_text("old")
    commit(first)
    here, there = restore(first), restore(second)
    (there / "both").write_text("second")
    (there / "new" / "deep").mkdir(parents=True)
    (there / "new" / "deep" / "file").write_text("second")
    (here / "both").write_text("first")
    (here / "mine").write_text("first")
    (here / "gone").unlink()
    assert commit(second) == []
    (told,) = commit(first)
    assert "at the same time" in told
    assert "'both'" in told
    for own in (first, second, container()):
        found = restore(own)
        assert {p.name: p.read_text() for p in found.iterdir() if p.is_file()} == {
            "both": "first",
            "mine": "first",
            "theirs": "old",
        }
        assert (found / "new" / "deep" / "file").read_text() == "second"


def test_a_folder_against_a_file_is_decided_by_the_later_writer(
    container: Callable[..., Homes],
) -> None:
    first, second = container(), container()
    here, there = restore(first), restore(second)
    (there / "x").write_text("a file")
    (here / "x" / "y").mkdir(parents=True)
    (here / "x" / "y" / "z").write_text("in a folder")
    commit(second)
    commit(first)
    assert (restore(container()) / "x" / "y" / "z").read_text() == "in a folder"


def test_a_commit_whose_head_was_never_written_is_brought_in(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    first, second = container(), container()
    (restore(first) / "f").write_text("committed")
    lost = save(first)
    (restore(second) / "g").write_text("other kernel")
    commit(second)
    found = restore(second, committed=lost.digest)
    assert sorted(p.name for p in found.iterdir()) == ["f", "g"]
    store.calls.clear()
    restore(container(), committed=lost.digest)
    assert [key for operation, key in store.calls if operation == "put"] == []


def test_a_committed_state_that_the_head_forgot_is_not_brought_in_again(
    container: Callable[..., Homes],
) -> None:
    own = container()
    path = restore(own)
    (path / "f").write_text("old")
    old = save(own)
    own.publish(SCOPE, old)
    for i in range(70):
        (path / "f").write_text(str(i))
        commit(own)
    assert (restore(container(), committed=old.digest) / "f").read_text() == "69"


def test_what_an_uncommitted_cell_did_is_undone_without_reading_all_again(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    path = restore(own)
    (path / "kept").write_bytes(os.urandom(100_000))
    (path / "f").write_text("1")
    (path / "d").mkdir()
    commit(own)
    (path / "f").write_text("2")
    (path / "d").rmdir()
    (path / "d").symlink_to("/etc")
    (path / "planted").mkdir()
    own.distrust(SCOPE)
    store.calls.clear()
    path = restore(own)
    assert sorted(p.name for p in path.iterdir()) == ["d", "f", "kept"]
    assert (path / "f").read_text() == "1"
    assert (path / "d").is_dir()
    assert not (path / "d").is_symlink()
    assert reads(store) == ["head", "packs"]
    assert own.save(SCOPE) is None


def test_a_failed_save_leaves_the_saved_state_in_force(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    path = restore(own)
    (path / "f").write_text("1")
    commit(own)
    (path / "f").write_text("2")

    def refuse(operation: str, key: str) -> None:
        if "/packs/" in key:
            raise StorageUnavailable("S3 did not answer")

    store.refuse = refuse
    with pytest.raises(StorageUnavailable):
        own.save(SCOPE)
    store.refuse = lambda operation, key: None
    assert (restore(own) / "f").read_text() == "1"


@pytest.mark.parametrize("kind", ["packs", "manifests"])
def test_tampered_bytes_are_refused(
    container: Callable[..., Homes], store: MemoryObjectStore, kind: str
) -> None:
    own = container()
    (restore(own) / "f").write_text("good")
    commit(own)
    (key,) = [key for key in store.keys(BUCKET) if f"/{kind}/" in key]
    store.put(BUCKET, key, b"evil")
    with pytest.raises(StorageUnavailable, match="digest"):
        restore(container())


def test_a_write_through_a_mapping_that_changes_no_time_is_saved(
    container: Callable[..., Homes],
) -> None:
    own = container()
    file = restore(own) / ".local" / "library.db"
    file.parent.mkdir()
    file.write_bytes(b"0" * 20_000_000)
    commit(own)
    before = file.stat()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapping:
        assert mapping[0:1] == b"0"
        mapping[0:1] = b"1"
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    commit(own)
    assert (restore(container()) / ".local" / "library.db").read_bytes()[:2] == b"10"


def test_without_knowing_what_was_written_small_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "c").write_text("x")
    seen = home_tree.look(str(tmp_path))
    entries = dict.fromkeys(seen.facts, HomeEntry(kind="file"))
    assert home_saving.suspects(seen, seen.facts, entries, None).changed == ("f",)
    assert not home_saving.suspects(seen, seen.facts, entries, set())


def test_a_dormant_home_is_nowhere_on_disk_and_comes_back_without_s3(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    path = restore(own)
    (path / "f").write_text("secret")
    (path / "link").symlink_to("f")
    commit(own)
    other = restore(own, OTHER)
    assert [p.name for p in other.parent.iterdir()] == [other.name]
    store.calls.clear()
    path = restore(own)
    assert (path / "f").read_text() == "secret"
    assert (path / "link").readlink() == Path("f")
    assert reads(store) == ["head"]
    assert own.save(SCOPE) is None


def test_a_parked_home_that_is_out_of_date_is_completed_from_s3(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    first, second = container(), container()
    path = restore(first)
    (path / "a").write_text("a")
    commit(first)
    restore(first, OTHER)
    (restore(second) / "b").write_text("b")
    commit(second)
    found = restore(first)
    assert sorted(p.read_text() for p in found.iterdir()) == ["a", "b"]


def test_what_an_uncommitted_cell_wrote_is_not_parked(container: Callable[..., Homes]) -> None:
    own = container()
    path = restore(own)
    (path / "f").write_text("1")
    commit(own)
    (path / "f").write_text("2")
    own.distrust(SCOPE)
    restore(own, OTHER)
    assert (restore(own) / "f").read_text() == "1"


def test_parked_homes_leave_when_there_is_no_room(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container(dormant_bytes=1500)
    scopes = [Scope(user="u1", agent=f"a{i}") for i in range(3)]
    for scope in scopes:
        (restore(own, scope) / "f").write_bytes(os.urandom(1000))
        commit(own, scope)
    restore(own)
    store.calls.clear()
    restore(own, scopes[2])
    assert "packs" not in reads(store)
    restore(own, scopes[0])
    assert "packs" in reads(store)


def test_where_others_are_hidden_homes_stay_on_disk(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container(others_hidden=True, dormant_bytes=1500)
    scopes = [Scope(user="u1", agent=f"a{i}") for i in range(3)]
    for scope in scopes:
        (restore(own, scope) / "f").write_bytes(os.urandom(1000))
        commit(own, scope)
    assert len(own.on_disk) == 2
    assert (restore(own, scopes[0]) / "f").stat().st_size == 1000


def test_a_home_over_the_limit_is_not_saved_and_says_what_is_large(
    container: Callable[..., Homes],
) -> None:
    own = container(saved_bytes=10_000)
    path = restore(own)
    (path / "f").write_text("kept")
    commit(own)
    (path / ".cache" / "models").mkdir(parents=True)
    with (path / ".cache" / "models" / "holes").open("wb") as file:
        file.truncate(10**12)
    (path / "f").write_text("changed")
    with pytest.raises(HomeTooLarge, match=r"\.cache/models/ 1000000\.0 MB") as raised:
        own.save(SCOPE)
    assert "'.cache/models/holes', 'f'" in str(raised.value)
    path = restore(own)
    assert [p.name for p in path.iterdir()] == ["f"]
    assert (path / "f").read_text() == "kept"


def test_what_cannot_be_saved_does_not_stay(
    container: Callable[..., Homes], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = container()
    path = restore(own)
    os.mkfifo(path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(path)
        server.bind("socket")
    (path / "f").write_text("x")
    commit(own)
    assert [p.name for p in path.iterdir()] == ["f"]


def test_files_and_folders_that_refuse_their_owner_are_saved(
    container: Callable[..., Homes],
) -> None:
    own = container()
    path = restore(own)
    (path / "d").mkdir()
    (path / "d" / "f").write_text("x")
    (path / "d" / "f").chmod(0)
    (path / "d").chmod(0)
    path.chmod(0)
    commit(own)
    assert own.save(SCOPE) is None
    found = restore(container()) / "d" / "f"
    assert found.stat().st_mode & 0o777 == 0
    assert found.parent.stat().st_mode & 0o777 == 0o700


def test_a_home_that_was_replaced_by_a_symlink_is_saved_empty(
    container: Callable[..., Homes],
) -> None:
    own = container()
    path = restore(own)
    (path / "f").write_text("x")
    commit(own)
    shutil.rmtree(path)
    path.symlink_to("/etc")
    assert save(own).manifest.entries == {}
    assert not path.is_symlink()


def test_a_home_of_one_execution_is_empty_and_never_saved(
    container: Callable[..., Homes], store: MemoryObjectStore
) -> None:
    own = container()
    scope = Scope(user="u1", execution="12345678-1234-1234-1234-123456789012")
    path = restore(own, scope)
    (path / "f").write_text("x")
    assert own.save(scope) is None
    own.discard(scope)
    assert list(restore(own, scope).iterdir()) == []
    assert store.calls == []


def test_the_names_in_a_user_site_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "lib" / "python3.11" / "site-packages"
    (folder / "numpy").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "six-1.0.dist-info").mkdir()
    (folder / "six.py").write_text("")
    assert set(homes.user_site_names(str(tmp_path))) == {"numpy", "six"}
