"""``kernel-gateway files`` as people type it, on a gateway that runs."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from kernel_gateway.cli import main
from tests.functional.web.server import WebGateway


async def files(gateway: WebGateway, *arguments: str) -> int:
    common = ["--gateway-url", gateway.url, "--token", "u1", "--workspace", "w1"]
    return await asyncio.to_thread(main, ["files", *arguments, *common])


@pytest.fixture
async def filled(gateway: WebGateway, capsys: pytest.CaptureFixture[str]) -> WebGateway:
    """A workspace with a file, a folder and an empty folder."""
    for path in ("a.txt", "d/b.txt", "d/e/c.txt", "void/"):
        body = b"" if path.endswith("/") else b"12"
        answer = await gateway.rest("PUT", f"/api/workspaces/w1/files/{path}", data=body)
        assert answer.status == 201
    capsys.readouterr()
    return gateway


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("", ["a.txt", "d/b.txt", "d/e/c.txt", "void/"]),
        (".", ["a.txt", "d/b.txt", "d/e/c.txt", "void/"]),
        ("/", ["a.txt", "d/b.txt", "d/e/c.txt", "void/"]),
        ("a.txt", ["a.txt"]),
        ("d", ["d/b.txt", "d/e/c.txt"]),
        ("d/", ["d/b.txt", "d/e/c.txt"]),
        ("void", ["void/"]),
    ],
)
async def test_ls_lists_a_file_a_folder_or_all(
    filled: WebGateway, path: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await files(filled, "ls", path) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == shown


async def test_what_is_not_there_is_said_in_the_same_words(
    filled: WebGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in ("ls", "get", "rm"):
        assert await files(filled, action, "nothere") == 1
    (line,) = set(capsys.readouterr().err.splitlines())
    assert line.endswith("nothere: there is no such file or folder in workspace w1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rm", ""], "PATH: is empty"),
        (["rm", "."], "the workspace itself"),
        (["rm", "-r", "/"], "the workspace itself"),
        (["rm", "d"], "d: is a folder; -r deletes it"),
        (["rm", "void"], "void: is a folder; -r deletes it"),
        (["put", ""], "LOCAL: is empty"),
        (["get", ""], "REMOTE: is empty"),
        (["put", "/no/such"], "/no/such: No such file or directory"),
        (["put", "/dev/null"], "/dev/null: is a device"),
        (["get", "a.txt", "/proc/x"], "/proc/x"),
        (["get", "d", "/dev/null"], "/dev/null"),
    ],
)
async def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    filled: WebGateway, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(filled.files.files)
    assert await files(filled, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert set(filled.files.files) == before


async def test_rm_says_what_is_gone(filled: WebGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert await files(filled, "rm", "a.txt") == 0
    assert capsys.readouterr().err == "1 file, 2 B deleted\n"
    assert await files(filled, "rm", "-r", "d") == 0
    assert capsys.readouterr().err == "2 files, 4 B deleted\n"
    assert await files(filled, "rm", "void/", "--recursive") == 0
    assert filled.files.files == {}


async def test_put_and_get_take_a_dot_for_the_root_and_a_slash_for_into(
    filled: WebGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "n.txt").write_bytes(b"x" * 12_100)
    monkeypatch.chdir(tmp_path)
    assert await files(filled, "put", "new/n.txt", ".") == 0
    assert await files(filled, "put", "new", ".") == 0
    assert await files(filled, "put", "new") == 0
    assert capsys.readouterr().err == "1 file, 12.1 kB uploaded\n" * 3
    assert {"users/u1/w1/n.txt", "users/u1/w1/new/n.txt"} < set(filled.files.files)

    assert await files(filled, "get", "d/b.txt", "into/") == 0
    assert await files(filled, "get", ".", "all") == 0
    assert "5 files, 24.2 kB downloaded" in capsys.readouterr().err
    assert (tmp_path / "into" / "b.txt").read_bytes() == b"12"
    assert (tmp_path / "all" / "void").is_dir()
    assert (tmp_path / "all" / "d" / "e" / "c.txt").read_bytes() == b"12"
    assert await files(filled, "get", "void") == 0
    assert (tmp_path / "void").is_dir()


async def test_what_is_no_file_is_left_out_by_name(
    gateway: WebGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "s"
    (source / "only").mkdir(parents=True)
    (source / "f").write_bytes(b"1")
    (source / "link").symlink_to("f")
    (source / "dangling").symlink_to("nowhere")
    (source / "to-folder").symlink_to("only")
    os.mkfifo(source / "only" / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "sock"))
        assert await files(gateway, "put", str(source), ".") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "2 files, 2 B uploaded"
    assert len(lines) == 5
    for name, kind in {
        "dangling": "link",
        "to-folder": "link",
        "fifo": "FIFO",
        "sock": "socket",
    }.items():
        assert any(name in line and kind in line for line in lines)
    assert set(gateway.files.files) == {f"users/u1/w1/{name}" for name in ("f", "link", "only/")}


async def test_all_bad_names_are_told_at_once_and_escaped(
    gateway: WebGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "s"
    source.mkdir()
    for name in ("good", "line\nbreak", "back\\slash", "esc\x1b[31m"):
        (source / name).write_bytes(b"1")
    assert await files(gateway, "put", str(source)) == 2
    shown = capsys.readouterr().err
    for escaped in (r"line\nbreak", r"back\\slash", r"esc\x1b[31m"):
        assert escaped in shown
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 4
    assert gateway.files.files == {}


async def test_a_folder_that_cannot_be_read_is_one_line(
    gateway: WebGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    assert await files(gateway, "put", str(tmp_path / "dangling")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "dangling: No such file" in line
