"""Files that commands write: whole or not at all, and nothing but an ordinary file is replaced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_gateway.errors import ConfigError
from kernel_gateway.whole_files import check_folder, check_replaceable, replacing, write_together
from tests.full_disk import full_disk

LIMIT_BYTES = 64 * 1024
NOBODY = 65534


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    (path.parent / "target").write_text("kept")
    path.symlink_to(path.parent / "target")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


PLACES: list[Callable[[Path], None]] = [
    Path.mkdir, a_fifo, a_link, a_link_to_nothing, a_link_to_a_device,
]  # fmt: skip


@pytest.mark.parametrize("make", PLACES)
def test_what_is_no_ordinary_file_is_not_replaced(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "trail.ipynb"
    make(path)
    before = path.lstat()

    with pytest.raises(ConfigError, match=r"trail\.ipynb: is no ordinary file"):
        check_replaceable(path)
    with pytest.raises(ConfigError, match="is no ordinary file"), replacing(path) as file:
        file.write(b"new")
    with pytest.raises(ConfigError, match="is no ordinary file"):
        write_together(tmp_path, {"other": b"new", path.name: b"new"})

    assert path.lstat() == before
    assert {each.name for each in tmp_path.iterdir()} <= {path.name, "target"}


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(ConfigError, match="/dev/null: is no ordinary file"):
        check_replaceable(Path("/dev/null"))


@pytest.mark.parametrize("name", ["nowhere/trail.ipynb", "file/trail.ipynb", "a" * 300, "a\0b"])
def test_a_place_that_cannot_be_is_said_before_there_is_anything_to_write(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(ConfigError, match=r"no such folder|is no folder|cannot be written"):
        check_replaceable(tmp_path / name)


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_what_was_there_stays_where_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "trail.ipynb"
    path.write_bytes(b"old")

    with (
        full_disk(LIMIT_BYTES),
        pytest.raises(ConfigError, match="File too large"),
        replacing(path) as file,
    ):
        file.write(b"x" * (LIMIT_BYTES + 1))

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_files_that_belong_together_none_is_replaced_where_one_cannot_be_written(
    tmp_path: Path,
) -> None:
    for name in ("report.json", "report.html"):
        (tmp_path / name).write_bytes(b"old")

    with full_disk(LIMIT_BYTES), pytest.raises(ConfigError, match="File too large"):
        write_together(tmp_path, {"report.json": b"new", "report.html": b"x" * (LIMIT_BYTES + 1)})

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {
        "report.json": b"old",
        "report.html": b"old",
    }


def test_an_error_of_the_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "trail.ipynb"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_looked_at_and_not_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "report", is_made=True)
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "report"):
        with pytest.raises(ConfigError, match="file: is no folder"):
            check_folder(path, is_made=True)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="link: is no folder"):
        check_folder(tmp_path / "link", is_made=True)

    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Be asked for as somebody who may not write everywhere, as root may."""
    user = os.getuid()
    if user == 0:
        os.setresuid(NOBODY, -1, -1)
    yield
    os.setresuid(user, -1, -1)


@pytest.mark.usefixtures("ordinary_user")
def test_a_folder_of_others_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written to"):
        check_folder(tmp_path / "report", is_made=True)
