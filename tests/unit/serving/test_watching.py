"""What inotify tells of files that were open for writing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lambda_kernel.serving import home_tree
from lambda_kernel.serving.watching import WriteWatch


@pytest.fixture
def watch() -> Iterator[WriteWatch]:
    watch = WriteWatch()
    yield watch
    watch.close()


def cover(watch: WriteWatch, top: Path) -> None:
    watch.cover(str(top), home_tree.look(str(top)).folders(str(top)))


def test_files_that_were_open_for_writing_are_told_once(watch: WriteWatch, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("a", "d/b", "read"):
        (tmp_path / name).write_text("x")
    cover(watch, tmp_path)
    for name in ("a", "d/b"):
        (tmp_path / name).open("r+").close()
    (tmp_path / "read").read_text()
    assert watch.written() == {"a", "d/b"}
    assert watch.written() == set()


def test_folders_that_changed_places_are_told_by_their_new_names(
    watch: WriteWatch, tmp_path: Path
) -> None:
    for name in ("d", "e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in-{name}").write_text("x")
    cover(watch, tmp_path)
    (tmp_path / "d").rename(tmp_path / "t")
    (tmp_path / "e").rename(tmp_path / "d")
    (tmp_path / "t").rename(tmp_path / "e")
    cover(watch, tmp_path)
    (tmp_path / "e" / "in-d").open("r+").close()
    assert watch.written() == {"e/in-d"}


def test_a_folder_that_was_made_anew_is_watched_again(watch: WriteWatch, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").write_text("x")
        cover(watch, tmp_path)
        (tmp_path / "d" / "f").open("r+").close()
        assert watch.written() == {"d/f"}
        (tmp_path / "d" / "f").unlink()
        (tmp_path / "d").rmdir()


def test_more_events_than_the_kernel_keeps_are_told_as_unknown(
    watch: WriteWatch, tmp_path: Path
) -> None:
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    cover(watch, tmp_path)
    # Equal events that follow each other are told as one.
    for i in range(kept + 10):
        (tmp_path / "ab"[i % 2]).open("r+").close()
    assert watch.written() is None
    cover(watch, tmp_path)
    (tmp_path / "a").open("r+").close()
    assert watch.written() == {"a"}


def test_without_inotify_everything_is_unknown(watch: WriteWatch, tmp_path: Path) -> None:
    watch.cover(str(tmp_path), {"missing": 1})
    assert not watch.works
    assert watch.written() is None
