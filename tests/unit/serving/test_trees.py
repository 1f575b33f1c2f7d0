"""Walking, reading and removing hostile trees."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from lambda_kernel.serving import trees


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(600):
        os.mkdir("d" * 100, dir_fd=folder)
        inner = os.open("d" * 100, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    trees.remove(top)
    assert not top.exists()


def test_folders_without_any_permission_are_removed(tmp_path: Path) -> None:
    inner = tmp_path / "top" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for folder in (inner, inner.parent, inner.parent.parent):
        folder.chmod(0)
    trees.remove(tmp_path / "top")
    assert not os.path.lexists(tmp_path / "top")


def test_removing_follows_no_symlink(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    trees.remove(top)
    (tmp_path / "top").symlink_to(outside)
    trees.remove(tmp_path / "top")
    assert (outside / "file").read_text() == "x"
    assert not os.path.lexists(tmp_path / "top")


def test_removing_nothing_is_no_error(tmp_path: Path) -> None:
    trees.remove(tmp_path / "missing")


def test_a_folder_is_made_in_place_of_whatever_stands_there(tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    (tmp_path / "work").symlink_to(target)
    trees.make_folder(tmp_path / "work")
    assert stat.filemode(os.lstat(tmp_path / "work").st_mode) == "drwx------"
    assert target.is_dir()


def test_a_walk_shows_special_files_and_enters_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert [found.path for found in trees.walk(str(tmp_path))] == ["d", "d/f", "link", "pipe"]


def test_a_walk_enters_folders_that_refuse_their_owner(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "d").chmod(0)
    assert [found.path for found in trees.walk(str(tmp_path))] == ["d", "d/f"]


@pytest.mark.parametrize("kind", ["symlink", "fifo", "socket", "folder"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "symlink":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    with pytest.raises(OSError, match=r"."), trees.reading(str(path)):
        raise AssertionError


def test_a_path_with_a_symlink_in_it_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "f").write_text("x")
    (tmp_path / "top" / "d").symlink_to("../secret")
    with (
        pytest.raises(OSError, match="d"),
        trees.reading_beneath(str(tmp_path / "top"), "d/f"),
    ):
        raise AssertionError


def test_a_file_that_refuses_its_owner_is_read_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    path.chmod(0)
    with trees.reading(str(path)) as descriptor:
        assert os.read(descriptor, 9) == b"x"
    assert path.stat().st_mode & 0o777 == 0
