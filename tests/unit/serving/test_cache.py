"""The download cache: what it links is what was stored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lambda_kernel.serving.cache import CachedFile, DownloadCache
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.storage.s3_requests import ListedObject

BUCKET = "b"
KEY = "users/u1/default/f"


@pytest.fixture
def store() -> MemoryObjectStore:
    store = MemoryObjectStore()
    store.put(BUCKET, KEY, b"content", metadata={"mode": "755", "mtime-ns": "1000000000"})
    return store


@pytest.fixture
def cache(tmp_path: Path) -> DownloadCache:
    cache = DownloadCache.open(tmp_path / "cache", 1000)
    cache.claim("u1")
    return cache


def names(cache: DownloadCache) -> list[str]:
    return [path.name for path in cache.folder.iterdir()]


def listed(store: MemoryObjectStore, key: str = KEY) -> ListedObject:
    (found,) = store.list(BUCKET, key)
    return found


def fetch(cache: DownloadCache, store: MemoryObjectStore, key: str = KEY) -> CachedFile:
    return cache.fetch(listed(store, key), lambda write: store.download(BUCKET, key, write))


def test_an_object_is_found_again_with_mode_and_time(
    cache: DownloadCache, store: MemoryObjectStore, tmp_path: Path
) -> None:
    fetch(cache, store)
    entry = cache.find(listed(store))
    assert entry is not None
    cache.link(entry, str(tmp_path / "f"))
    status = (tmp_path / "f").stat()
    assert (tmp_path / "f").read_bytes() == b"content"
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o755, 1_000_000_000)


def test_another_version_of_the_object_is_not_found(
    cache: DownloadCache, store: MemoryObjectStore
) -> None:
    fetch(cache, store)
    store.put(BUCKET, KEY, b"content")
    assert cache.find(listed(store)) is None


def test_bytes_that_a_cell_changed_through_a_link_are_not_served(
    cache: DownloadCache, store: MemoryObjectStore, tmp_path: Path
) -> None:
    cache.link(fetch(cache, store), str(tmp_path / "f"))
    (tmp_path / "f").write_bytes(b"CONTENT")
    os.utime(tmp_path / "f", ns=(1_000_000_000, 1_000_000_000))
    cache.cell_ran()
    assert cache.find(listed(store)) is None


def test_a_mode_that_a_cell_changed_through_a_link_is_set_back(
    cache: DownloadCache, store: MemoryObjectStore, tmp_path: Path
) -> None:
    cache.link(fetch(cache, store), str(tmp_path / "f"))
    (tmp_path / "f").chmod(0)
    cache.cell_ran()
    assert cache.find(listed(store)) is not None
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o755


def test_a_file_put_in_place_of_an_entry_is_not_served(
    cache: DownloadCache, store: MemoryObjectStore
) -> None:
    name = fetch(cache, store).name
    (cache.folder / name).unlink()
    (cache.folder / name).symlink_to("/etc/passwd")
    cache.cell_ran()
    assert cache.find(listed(store)) is None


def test_planted_files_are_removed_after_the_cell(
    cache: DownloadCache, store: MemoryObjectStore
) -> None:
    kept = fetch(cache, store).name
    cache.settle()
    (cache.folder / "planted").mkdir()
    cache.cell_ran()
    assert names(cache) == [kept]


def test_a_folder_that_was_moved_away_is_made_anew(
    cache: DownloadCache, store: MemoryObjectStore, tmp_path: Path
) -> None:
    fetch(cache, store)
    cache.folder.rename(tmp_path / "stolen")
    cache.cell_ran()
    assert cache.find(listed(store)) is None
    assert fetch(cache, store).state.size_bytes == 7


def test_another_user_finds_nothing_on_disk(cache: DownloadCache, store: MemoryObjectStore) -> None:
    fetch(cache, store)
    cache.claim("u2")
    assert names(cache) == []
    assert cache.find(listed(store)) is None


def test_an_uploaded_file_is_served_without_a_download(
    cache: DownloadCache, store: MemoryObjectStore, tmp_path: Path
) -> None:
    state = fetch(cache, store).state
    (tmp_path / "f").write_bytes(b"content")
    os.utime(tmp_path / "f", ns=(state.mtime_ns, state.mtime_ns))
    stored = store.put(BUCKET, KEY, b"content")
    cache.adopt(KEY, str(tmp_path / "f"), state, stored)
    entry = cache.find(listed(store))
    assert entry is not None
    assert entry.version_id == stored.version_id


def test_the_least_recently_used_entries_leave(
    cache: DownloadCache, store: MemoryObjectStore
) -> None:
    for name in "abc":
        store.put(BUCKET, f"users/u1/{name}", name.encode() * 400)
        fetch(cache, store, f"users/u1/{name}")
    cache.settle()
    assert cache.size_bytes <= 1000
    assert cache.find(listed(store, "users/u1/a")) is None
    assert cache.find(listed(store, "users/u1/c")) is not None


def test_a_failed_download_leaves_no_file(cache: DownloadCache, store: MemoryObjectStore) -> None:
    found = listed(store)

    def fail(write: object) -> object:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        cache.fetch(found, fail)  # type: ignore[arg-type]
    assert names(cache) == []
