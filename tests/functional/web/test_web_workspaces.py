"""Files of a workspace over REST: streamed, named well, one's own."""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.web.file_transfer import WorkspaceClient, plan_put
from kernel_gateway.web.rest_client import RestClient
from tests.functional.web.server import WebGateway, sha256

ROOT = "/api/workspaces/w1/files/"


async def test_a_file_comes_back_as_it_went(gateway: WebGateway) -> None:
    body = os.urandom(3_000_000)
    headers = {"Lambda-Kernel-Mode": "755", "Lambda-Kernel-Mtime-Ns": "1700000000123456789"}
    put = await gateway.rest("PUT", f"{ROOT}a/b.bin", data=body, headers=headers)
    assert put.status == 201
    assert put.json == {"path": "a/b.bin", "size_bytes": len(body), "sha256": sha256(body)}
    _, attributes = gateway.files.files["users/u1/w1/a/b.bin"]
    assert attributes.to_metadata() == {
        "sha256": sha256(body),
        "mode": "0755",
        "mtime-ns": "1700000000123456789",
    }
    got = await gateway.rest("GET", f"{ROOT}a/b.bin")
    assert got.body == body
    assert got.headers["Lambda-Kernel-Sha256"] == sha256(body)
    assert got.headers["Content-Length"] == str(len(body))
    assert got.headers["Content-Type"] == "application/octet-stream"


async def test_an_empty_file_and_an_empty_folder_are_kept(gateway: WebGateway) -> None:
    assert (await gateway.rest("PUT", f"{ROOT}empty", data=b"")).status == 201
    assert (await gateway.rest("PUT", f"{ROOT}folder/", data=b"")).status == 201
    assert (await gateway.rest("PUT", f"{ROOT}folder/", data=b"x")).status == 400
    assert (await gateway.rest("GET", f"{ROOT}empty")).body == b""
    paths = [e["path"] for e in (await gateway.rest("GET", ROOT)).json["entries"]]
    assert paths == ["empty", "folder/"]


async def test_a_listing_is_one_level_or_all_of_it(gateway: WebGateway) -> None:
    for path in ("a.txt", "d/b.txt", "d/e/c.txt"):
        await gateway.rest("PUT", ROOT + path, data=b"12")
    one = (await gateway.rest("GET", ROOT)).json["entries"]
    assert [(e["path"], e["type"], e["size_bytes"]) for e in one] == [
        ("a.txt", "file", 2),
        ("d/", "folder", 0),
    ]
    every = (await gateway.rest("GET", f"{ROOT}?recursive=true")).json["entries"]
    assert [e["path"] for e in every] == ["a.txt", "d/b.txt", "d/e/c.txt"]
    below = (await gateway.rest("GET", f"{ROOT}d/")).json["entries"]
    assert [e["path"] for e in below] == ["b.txt", "e/"]


async def test_files_and_folders_are_deleted(gateway: WebGateway) -> None:
    for path in ("a", "d/b", "d/c"):
        await gateway.rest("PUT", ROOT + path, data=b"1")
    assert (await gateway.rest("DELETE", f"{ROOT}a")).status == 204
    assert (await gateway.rest("DELETE", f"{ROOT}a")).status == 404
    assert (await gateway.rest("DELETE", f"{ROOT}d/")).status == 204
    assert (await gateway.rest("DELETE", f"{ROOT}d/")).status == 404
    assert (await gateway.rest("GET", ROOT)).json["entries"] == []


async def test_an_empty_folder_is_deleted_and_the_workspace_is_not(gateway: WebGateway) -> None:
    await gateway.rest("PUT", f"{ROOT}void/", data=b"")
    assert (await gateway.rest("DELETE", ROOT)).status == 400
    assert (await gateway.rest("DELETE", f"{ROOT}void/")).status == 204
    assert gateway.files.files == {}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("d", "d: there is a folder"),
        ("f/x", "f: is a file"),
        ("d/f/x/y", "d/f: is a file"),
        ("f/", "f: is a file"),
        ("void", "void: there is a folder"),
    ],
)
async def test_one_name_is_not_a_file_and_a_folder(
    gateway: WebGateway, path: str, said: str
) -> None:
    for there in ("d/f", "f", "void/"):
        assert (await gateway.rest("PUT", ROOT + there, data=b"")).status == 201
    answer = await gateway.rest("PUT", ROOT + path, data=b"")
    assert answer.status == 409
    assert said in answer.json["message"]
    assert (await gateway.rest("PUT", f"{ROOT}d/f", data=b"2")).status == 201
    assert (await gateway.rest("PUT", f"{ROOT}d/", data=b"")).status == 201


@pytest.mark.parametrize(
    "name", ["naïve ümläut.txt", "a b", "100%", "quote'\"", "#?&=+;", "日本.csv", "..."]
)
async def test_names_in_any_script_work(gateway: WebGateway, name: str) -> None:
    path = ROOT + quote(name)
    assert (await gateway.rest("PUT", path, data=b"x")).status == 201
    got = await gateway.rest("GET", path)
    assert got.body == b"x"
    assert quote(name) in got.headers["Content-Disposition"]


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "%2e%2e/%2e%2e/u10/w1/x",
        "a/./b",
        "a//b",
        "/a",
        "%0a",
        "a%00b",
        "x" * 256,
        "d/" * 500 + "x",
        "a%5cb",
        "%ff%fe",
    ],
)
async def test_a_name_that_may_not_be_is_a_400(gateway: WebGateway, path: str) -> None:
    for method in ("PUT", "GET", "DELETE"):
        answer = await gateway.rest(method, ROOT + path, data=b"x" if method == "PUT" else None)
        assert answer.status == 400, (method, answer.body)
    assert gateway.files.files == {}


@pytest.mark.parametrize("workspace", ["..", ".hidden", "a%2fb", "%20", "x" * 65, "*"])
async def test_a_workspace_name_that_may_not_be_is_a_400(
    gateway: WebGateway, workspace: str
) -> None:
    answer = await gateway.rest("PUT", f"/api/workspaces/{workspace}/files/x", data=b"x")
    assert answer.status in {400, 404}
    assert gateway.files.files == {}


async def test_files_are_the_users_whoever_asks(gateway: WebGateway) -> None:
    await gateway.rest("PUT", f"{ROOT}f", token="u1-a1", data=b"mine")
    assert (await gateway.rest("GET", f"{ROOT}f", token="u1")).body == b"mine"
    assert (await gateway.rest("GET", f"{ROOT}f", token="u1-a2")).body == b"mine"
    for token in ("u10", "root"):
        assert (await gateway.rest("GET", f"{ROOT}f", token=token)).status == 404
        assert (await gateway.rest("DELETE", f"{ROOT}f", token=token)).status == 404


async def test_without_a_token_nothing_is_stored(gateway: WebGateway) -> None:
    answer = await gateway.rest("PUT", f"{ROOT}f", token="wrong", data=b"x" * 100_000)
    assert answer.status == 403
    assert gateway.files.files == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"Lambda-Kernel-Sha256": "0" * 64},
        {"Lambda-Kernel-Mode": "rwx"},
        {"Lambda-Kernel-Mtime-Ns": "-1"},
        {"Lambda-Kernel-Mtime-Ns": "1e9"},
    ],
)
async def test_a_wrong_attribute_is_a_400_and_nothing_is_stored(
    gateway: WebGateway, headers: dict[str, str]
) -> None:
    answer = await gateway.rest("PUT", f"{ROOT}f", data=b"x", headers=headers)
    assert answer.status == 400
    assert next(iter(headers)) in answer.json["message"]
    assert gateway.files.files == {}


async def test_an_upload_that_breaks_off_stores_nothing(gateway: WebGateway) -> None:
    def break_off() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.server.port)
        connection.putrequest("PUT", f"{ROOT}f")
        connection.putheader("Authorization", "token u1")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b"only this")
        connection.close()

    import asyncio

    await asyncio.to_thread(break_off)
    assert (await gateway.rest("GET", ROOT)).json["entries"] == []
    assert gateway.files.files == {}


async def test_folders_go_up_and_come_down_whole(gateway: WebGateway, tmp_path: Path) -> None:
    import asyncio

    source = tmp_path / "src"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "void").mkdir()
    (source / "a b.txt").write_bytes(b"1")
    tool = source / "deep" / "er" / "tool"
    tool.write_bytes(b"2" * 700_000)
    tool.chmod(0o755)
    os.utime(tool, ns=(10**18, 10**18))
    client = WorkspaceClient(RestClient(gateway.endpoint()), "w1")

    def there_and_back() -> None:
        moved: list[int] = []
        for item in plan_put(source, "up"):
            client.put(item, moved.append)
        assert sum(moved) >= 700_001
        for item in client.plan_get("up", str(tmp_path / "got")):
            client.get(item, moved.append)
        for item in client.plan_get("up/a b.txt", str(tmp_path / "one.txt")):
            client.get(item, moved.append)
        with pytest.raises(BadRequest, match="-r"):
            client.remove("up")
        assert len(client.remove("up", recursive=True)) == 3
        assert client.entries("") == []
        with pytest.raises(NotFound):
            client.remove("up")

    await asyncio.to_thread(there_and_back)
    got = tmp_path / "got"
    found = sorted(p.relative_to(got).as_posix() for p in got.rglob("*"))
    assert found == ["a b.txt", "deep", "deep/er", "deep/er/tool", "void"]
    status = (got / "deep" / "er" / "tool").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o755, 10**18)
    assert (tmp_path / "one.txt").read_bytes() == b"1"
