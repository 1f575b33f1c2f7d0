"""What a kernel's cells were and said, by REST: for its owner, whoever was connected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kernel_gateway.web.cells_command import cells, kernels
from tests.functional.web.server import WebGateway, execute_request
from tests.functional.web.test_web_channels import messages_until_idle


async def ran(gateway: WebGateway, *texts: str) -> tuple[str, list[str]]:
    """Run cells in a new kernel of u1; return its id and theirs."""
    kernel_id = await gateway.start_kernel()
    requests = [execute_request(text) for text in texts]
    async with gateway.channels(kernel_id) as socket:
        for each in requests:
            await socket.send(json.dumps(each))
            await messages_until_idle(socket, each["header"]["msg_id"])
    return kernel_id, [each["header"]["msg_id"] for each in requests]


async def test_cells_are_listed_with_their_outputs(gateway: WebGateway) -> None:
    kernel_id, ids = await ran(gateway, "one", "two", "three")

    listed = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?last=2")).json

    assert [cell["msg_id"] for cell in listed] == ids[1:]
    assert [(c["execution_count"], c["code"], c["status"]) for c in listed] == [
        (2, "two", "ok"),
        (3, "three", "ok"),
    ]
    assert listed[0]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "two"}]
    assert listed[0]["outputs_complete"] is True
    since = await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?since={ids[1]}")
    assert [cell["msg_id"] for cell in since.json] == ids[2:]


async def test_a_cell_that_runs_is_listed_as_running(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    message = execute_request("hold")
    async with gateway.channels(kernel_id) as socket:
        await socket.send(json.dumps(message))
        listed: list[Any] = []
        while not listed:
            listed = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells")).json
        gateway.function.release.set()
        await messages_until_idle(socket, message["header"]["msg_id"])
    assert [(c["msg_id"], c["status"], c["outputs"]) for c in listed] == [
        (message["header"]["msg_id"], "running", [])
    ]


@pytest.mark.parametrize(
    ("token", "status"), [("u1", 200), ("u1-a1", 404), ("u10", 404), ("root", 403), ("no", 403)]
)
async def test_only_the_owner_reads_them(gateway: WebGateway, token: str, status: int) -> None:
    kernel_id, _ = await ran(gateway, "one")

    answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells", token=token)

    assert answer.status == status
    assert ("one" in answer.body.decode()) == (status == 200)


@pytest.mark.parametrize("last", ["0", "-1", "x", "1001", "1e3", "9" * 5000, "%C2%B2"])
async def test_a_number_that_is_none_is_refused(gateway: WebGateway, last: str) -> None:
    kernel_id = await gateway.start_kernel()

    answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?last={last}")

    assert answer.status == 400


async def test_the_commands_show_kernels_and_cells_without_what_a_terminal_obeys(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "'\x1b]0;title\x07\x1b[31mred\u202e'\nsecond line")

    listed = await asyncio.to_thread(kernels, gateway.endpoint(), as_json=False)
    shown = await asyncio.to_thread(
        cells, gateway.endpoint(), kernel_id, last_count=1, as_json=False
    )

    assert kernel_id in listed
    assert "[1] ok" in shown
    assert shown.endswith("    'red'\n    second line\n'red'\nsecond line")
