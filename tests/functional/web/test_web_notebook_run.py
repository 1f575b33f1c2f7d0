"""A notebook executed over the websocket by our own client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nbformat
import pytest

from kernel_gateway.client.endpoint import ApiError
from kernel_gateway.web.connection import LambdaWebsocketConnection
from kernel_gateway.web.notebook_run import run_notebook
from tests.functional.web.server import WebGateway


def notebook_of(*sources: str) -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), *cells])


async def run(gateway: WebGateway, notebook: Any, *, token: str = "u1", **changes: Any) -> Any:
    choices: dict[str, Any] = {
        "kernel_name": None,
        "timeout_s": None,
        "env": {},
        "report": lambda *_: None,
    }
    return await run_notebook(gateway.endpoint(token), notebook, **{**choices, **changes})


async def test_cells_run_in_order_and_outputs_are_put_in(gateway: WebGateway) -> None:
    notebook = notebook_of("one", "", "two")
    told: list[tuple[int, int, str]] = []
    assert await run(gateway, notebook, report=lambda *facts: told.append(facts)) is None
    assert told == [(1, 2, "one"), (2, 2, "two")]
    texts = [c.outputs[0].text for c in notebook.cells if c.cell_type == "code" and c.source]
    assert texts == ["one", "two"]
    assert [c.get("execution_count") for c in notebook.cells[1:]] == [1, None, 2]
    assert (await gateway.rest("GET", "/api/kernels")).json == []


async def test_ids_and_tags_of_cells_are_recorded_and_nothing_else_of_their_metadata(
    gateway: WebGateway,
) -> None:
    notebook = notebook_of("one", "two")
    plain, tagged = notebook.cells[1:]
    tagged.metadata.update(tags=["parameters", 7], lambda_kernel={"audit": "of another run"})

    assert await run(gateway, notebook) is None

    events = [
        json.loads(body)["event"]
        for (_, key), body in sorted(gateway.function.store.objects.items())
        if "/j/" in key
    ]
    sent = [event["metadata"] for event in events if "execution_count" in event]
    assert sent == [{"cellId": plain.id}, {"cellId": tagged.id, "tags": ["parameters"]}]


async def test_a_cell_that_takes_too_long_ends_the_run(gateway: WebGateway) -> None:
    failure = await run(gateway, notebook_of("hold", "never"), timeout_s=1)
    assert failure.cell_number == 1
    assert "CellTimeout" in failure.text


async def test_a_wrong_token_and_a_wrong_kernel_are_said_so(gateway: WebGateway) -> None:
    with pytest.raises(ApiError, match="token"):
        await run(gateway, notebook_of("x"), token="wrong")
    with pytest.raises(ApiError, match="no-such-kernel; there are lambda-python, lambda-small"):
        await run(gateway, notebook_of("x"), kernel_name="no-such-kernel")


async def test_a_gateway_that_goes_away_ends_the_run(gateway: WebGateway) -> None:
    def go_away(*_: object) -> None:
        asyncio.get_running_loop().call_later(0.2, LambdaWebsocketConnection.close_all)

    failure = await run(gateway, notebook_of("hold"), report=go_away)
    assert "lost" in failure.text
