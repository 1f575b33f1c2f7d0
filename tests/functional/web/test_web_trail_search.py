"""Finding cells in all trails by REST and by command: everybody finds their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kernel_gateway.audit.trail_query import FILTERS, TrailQuery
from kernel_gateway.cli import main
from kernel_gateway.client.endpoint import BadInput, Unauthorized
from kernel_gateway.errors import BadRequest
from kernel_gateway.settings_command_line import parse
from kernel_gateway.settings_trail_options import given_filters
from kernel_gateway.web.trails_command import find, reindex, shown
from tests.functional.web.server import WebGateway, sha256


async def ran(gateway: WebGateway, code: str, token: str = "u1", **body: object) -> str:
    kernel_id = await gateway.start_kernel(token=token, **body)
    path = f"/api/kernels/{kernel_id}/execute"
    answer = await gateway.rest("POST", path, token=token, body={"code": code})
    assert answer.status == 200, answer.body
    return kernel_id


async def found(gateway: WebGateway, token: str = "u1", **filters: str) -> list[str]:
    query = "&".join(f"{name}={quote(value)}" for name, value in filters.items())
    answer = await gateway.rest("GET", f"/api/trails?{query}", token=token)
    assert answer.status == 200, answer.body
    assert answer.json["complete"] is True
    return [cell["kernel_id"] for cell in answer.json["cells"]]


@pytest.mark.parametrize("has_ended", [False, True])
async def test_everybody_finds_cells_of_kernels_that_they_may_see(
    gateway: WebGateway, has_ended: bool
) -> None:
    kernels = {token: await ran(gateway, "1", token) for token in ("u1", "u1-a1", "u1-a2", "u10")}
    if has_ended:
        for token, kernel_id in kernels.items():
            await gateway.rest("DELETE", f"/api/kernels/{kernel_id}", token=token)

    for token, visible in (
        ("u1", ("u1", "u1-a1", "u1-a2")),
        ("u1-a1", ("u1-a1",)),
        ("u1-a2", ("u1-a2",)),
        ("u10", ("u10",)),
        ("root", ("u1", "u1-a1", "u1-a2", "u10")),
    ):
        assert set(await found(gateway, token)) == {kernels[each] for each in visible}
    assert (await gateway.rest("GET", "/api/trails", token="no")).status == 403
    assert (await gateway.rest("GET", "/api/trails", token=None)).status == 403


@pytest.mark.parametrize("token", ["u10", "u1-a2"])
async def test_naming_another_finds_nothing_of_theirs(gateway: WebGateway, token: str) -> None:
    kernel_id = await ran(gateway, "the secret source", "u1-a1")
    digest = sha256(b"the secret source")

    assert await found(gateway, "u1", contains_digest=digest) == [kernel_id]
    for filters in (
        {"user": "u1"}, {"agent": "a1"}, {"user": "u1", "agent": "a1"}, {"status": "ok"},
        {"contains_digest": digest}, {"connector": "any"}, {"since": "2020-01-01"}, {"path": "x"},
    ):  # fmt: skip
        assert await found(gateway, token, **filters) == []


async def test_an_agent_named_like_a_user_is_not_that_user(gateway: WebGateway) -> None:
    mine = await ran(gateway, "1", "u1")
    agents = await ran(gateway, "1", "u1-a1")

    assert await found(gateway, "u1-a1", user="u1") == [agents]
    assert await found(gateway, "root", agent="u1") == []
    assert await found(gateway, "root", user="a1") == []
    assert set(await found(gateway, "root", user="u1")) == {mine, agents}


async def test_a_hit_says_what_an_auditor_needs_to_go_on(gateway: WebGateway) -> None:
    kernel_id = await ran(gateway, "print(1)", "u1-a1")
    digest = sha256(b"print(1)")

    answer = await gateway.rest("GET", f"/api/trails?contains_digest=sha256:{digest}")

    (cell,) = answer.json["cells"]
    assert cell | {"started": "", "finished": ""} == {
        "kernel_id": kernel_id, "entry": 2, "end_entry": 3, "kind": "cell", "execution_count": 1,
        "started": "", "finished": "", "status": "ok", "failure": None, "user": "u1",
        "agent": "a1", "caller": {"user": "u1", "agent": "a1"}, "workspace": "default",
        "environment": "default", "files": 0, "matched": ["source"],
        "export": f"kernel-gateway trail export {kernel_id}",
    }  # fmt: skip


async def test_a_cell_that_runs_is_found_as_incomplete(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    path = f"/api/kernels/{kernel_id}/execute"
    running = asyncio.create_task(gateway.rest("POST", path, body={"code": "hold"}))
    while not await found(gateway, status="incomplete"):
        assert not running.done()
    gateway.function.release.set()
    await running

    assert await found(gateway, status="incomplete") == []
    assert await found(gateway, status="ok") == [kernel_id]


async def test_pages_follow_each_other_without_gap_or_overlap(gateway: WebGateway) -> None:
    kernel_id = await ran(gateway, "1")
    path = f"/api/kernels/{kernel_id}/execute"
    for _ in range(4):
        await gateway.rest("POST", path, body={"code": "1"})
    counts: list[int] = []
    page: str | None = ""
    pages = 0
    while page is not None:
        answer = (await gateway.rest("GET", f"/api/trails?limit=2{page}")).json
        counts += [cell["execution_count"] for cell in answer["cells"]]
        page, pages = answer["next"] and f"&before={quote(answer['next'])}", pages + 1

    assert counts == [5, 4, 3, 2, 1]
    assert pages == 3


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("since=yesterday", "since"),
        ("until=2026-13-01", "until"),
        ("since=0001-01-01T00:00%2B23:59", "since"),
        ("status=fine", "status"),
        ("contains_digest=abc", "contains_digest"),
        ("contains_digest=%00", "contains_digest"),
        ("connector=a/b", "connector"),
        ("user=..", "user"),
        ("agent=a%20b", "agent"),
        ("path=../x", "path"),
        ("path=/", "path"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=%D9%A1", "limit"),
        ("before=x", "before"),
        ("nothing=1", "nothing"),
    ],
)
async def test_bad_input_is_named(gateway: WebGateway, query: str, named: str) -> None:
    answer = await gateway.rest("GET", f"/api/trails?{query}")

    assert answer.status == 400
    assert answer.json["message"].startswith(f"{named}: ")


async def test_only_an_admin_rebuilds_the_index(gateway: WebGateway) -> None:
    await ran(gateway, "1")
    for token in ("u1", "u1-a1"):
        with pytest.raises(Unauthorized):
            await asyncio.to_thread(reindex, gateway.endpoint(token))

    said = await asyncio.to_thread(reindex, gateway.endpoint("root"))

    assert said == "indexed 3 entries of 1 journals"


async def test_the_command_shows_a_table_that_a_terminal_can_take(gateway: WebGateway) -> None:
    kernel_id = await ran(gateway, "1", "u1-a1")
    text = await asyncio.to_thread(find, gateway.endpoint(), {"agent": "a1"}, as_json=False)
    with pytest.raises(BadInput):
        await asyncio.to_thread(find, gateway.endpoint(), {"status": "x"}, as_json=False)

    heading, line, *_, command = text.splitlines()
    assert heading.split() == ["STARTED", "KERNEL", "CELL", "ENTRY", "STATUS", "WHO", "MATCHED"]
    assert line.split()[1:6] == [kernel_id, "[1]", "2", "ok", "u1/a1"]
    assert command.strip() == f"kernel-gateway trail export {kernel_id}"


def test_what_a_cell_named_cannot_steer_the_terminal() -> None:
    cell = {
        "kernel_id": "k", "entry": 1, "kind": "cell", "execution_count": 1, "files": 1,
        "started": "2026-01-01T00:00:00.000000Z", "status": "ok", "failure": None, "user": "u",
        "agent": None, "caller": None, "matched": ["created \x1b]0;owned\x07a\u202eb\n\x1b[2Jc"],
        "export": "kernel-gateway trail export k",
    }  # fmt: skip

    answer: dict[str, Any] = {"cells": [cell], "next": None, "complete": True, "unreadable": {}}
    text = shown(answer)

    assert "created ab c" in text
    assert text.endswith("  kernel-gateway trail export k")
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


async def test_the_command_that_is_shown_names_the_state_directory_and_no_token(
    gateway: WebGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel_id = await ran(gateway, "1")
    for options, named in (
        (["--state-dir", "/a b"], "--state-dir '/a b' --token TOKEN"),
        (["--config", "c.toml"], "--config c.toml --token TOKEN"),
    ):
        where = ["--gateway-url", gateway.url, "--token", "u1"]
        assert await asyncio.to_thread(main, ["trail", "list", *where, *options]) == 0
        shown_last = capsys.readouterr().out.splitlines()[-1].strip()
        export = f"kernel-gateway trail export {kernel_id} --gateway-url {gateway.url}"
        assert shown_last == f"{export} {named}"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--since", "Tuesday"], "since"),
        (["--status", "fine"], "status"),
        (["--contains-digest", "12"], "contains_digest"),
        (["--limit", "0"], "limit"),
    ],
)
def test_bad_input_is_said_before_any_gateway_starts(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--state-dir", str(tmp_path / "none")]

    assert main(["trail", "list", *arguments, *where]) == 2

    assert capsys.readouterr().err.startswith(f"kernel-gateway: {named}: ")
    assert not (tmp_path / "none").exists()


def test_the_commands_options_are_the_routes_filters() -> None:
    arguments = ["trail", "list"]
    for name in FILTERS:
        arguments += [f"--{name.replace('_', '-')}", "x"]

    assert set(given_filters(parse(arguments)[0])) == set(FILTERS)
    with pytest.raises(BadRequest, match="since"):
        TrailQuery.of_text({"since": "x"})
