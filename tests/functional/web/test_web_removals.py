"""What cells have said is removed from a trail by REST and on the command line, by admins only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.client.endpoint import ApiError
from kernel_gateway.settings_command_line import parse
from kernel_gateway.web.trail_command import export, remove_content, shown, trail_in, verified_file
from lambda_kernel.contract import keys
from tests.functional.web.server import WebGateway, a_web_gateway, execute_request
from tests.functional.web.test_web_cells import ran


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[WebGateway]:
    """A server that keeps what cells say apart from the signed entries."""
    async with a_web_gateway(tmp_path, keeping=Keeping(is_removable=True)) as running:
        yield running


def path(kernel_id: str) -> str:
    return f"/api/kernels/{kernel_id}/trail/content-removals"


@pytest.mark.parametrize("has_ended", [False, True])
async def test_an_admin_removes_what_a_cell_said(
    gateway: WebGateway, tmp_path: Path, has_ended: bool
) -> None:
    kernel_id, _ = await ran(gateway, "secret words", "other words")
    if has_ended:
        await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")
    file = tmp_path / "trail.ipynb"
    store, rendered = gateway.function.store, ("lkg-records", keys.rendered_trail_key(kernel_id))
    await store.put(*rendered, b"secret words")

    said = await asyncio.to_thread(
        remove_content, gateway.endpoint("root"), kernel_id, execution_count=1, reason="asked for"
    )

    assert said == "removed what was said by [1]: the trail says so"
    assert rendered not in store.objects
    await asyncio.to_thread(export, gateway.endpoint("root"), kernel_id, file, with_blobs=True)
    report = verified_file(file, trail_in(file), {})
    assert report.problems == []
    assert "content-removed: cell 2 of the file, [1]: root removed" in shown(report)
    assert "asked for" in shown(report)
    stored = [each.read_text() for each in (tmp_path / "blobs" / "sha256").iterdir()]
    blobs = [text for text in stored if "messages" in text]
    assert len(blobs) == 1
    assert "secret words" not in blobs[0]
    if not has_ended:
        cells = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?last=2")).json
        assert "was removed" in cells[0]["outputs"][0]["text"]
        assert "other words" in cells[1]["outputs"][0]["text"]
        await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "more"})
        blob = await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/blobs/3")
        assert blob.status == 404


@pytest.mark.parametrize(("token", "status"), [("u1", 403), ("u1-a1", 403), ("no", 403)])
async def test_nobody_else_does(gateway: WebGateway, token: str, status: int) -> None:
    kernel_id, _ = await ran(gateway, "words")

    answer = await gateway.rest("POST", path(kernel_id), token=token, body={"reason": "mine"})

    assert answer.status == status
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/blobs/3")).status == 200


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "body.reason"),
        ({"reason": " "}, 400, "body.reason"),
        ({"reason": "x" * 501}, 400, "at most 500"),
        ({"reason": "x", "cell": "1"}, 400, "body.cell"),
        ({"reason": "x", "cell": 9}, 404, "no cell [9]"),
        ({"reason": "x", "more": 1}, 400, "body.more"),
    ],
)
async def test_a_wrong_request_is_refused_by_name(
    gateway: WebGateway, body: dict[str, object], status: int, text: str
) -> None:
    kernel_id, _ = await ran(gateway, "words")

    answer = await gateway.rest("POST", path(kernel_id), token="root", body=body)

    assert answer.status == status
    assert text in answer.json["message"]


async def test_nothing_is_removed_while_a_cell_runs(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "words")
    async with gateway.channels(kernel_id) as socket:
        await socket.send(json.dumps(execute_request("hold")))
        while json.loads(await socket.recv())["content"].get("execution_state") != "busy":
            pass

        answer = await gateway.rest("POST", path(kernel_id), token="root", body={"reason": "x"})

    assert answer.status == 409
    assert "a cell runs" in answer.json["message"]


async def test_where_nothing_stands_apart_the_command_says_why(tmp_path: Path) -> None:
    async with a_web_gateway(tmp_path) as plain:
        kernel_id, _ = await ran(plain, "words")

        with pytest.raises(ApiError, match=r"audit\.removable"):
            await asyncio.to_thread(
                remove_content,
                plain.endpoint("root"),
                kernel_id,
                execution_count=None,
                reason="x",
            )


@pytest.mark.parametrize("action", ["export k", "verify k", "remove-content k --reason r", "list"])
def test_each_action_is_one_of_the_command_trail(action: str) -> None:
    assert parse(["trail", *action.split()])[0].command == "trail"
