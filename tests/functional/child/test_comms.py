"""Comms and widgets in the child: they live in the session, and front ends speak to them."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from lambda_kernel.contract.cell_protocol import CellRequest
from lambda_kernel.contract.invocation import CellMessage

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook, Result


def message(
    notebook: Notebook,
    msg_type: str,
    content: dict[str, Any],
    *,
    metadata: dict[str, Any] | None = None,
    buffers: tuple[bytes, ...] = (),
) -> Result:
    """Send a comm message; keep what a serving process would commit."""
    request = CellRequest(
        kind="comm",
        msg=CellMessage(
            header={"msg_id": "c1", "session": "s", "msg_type": msg_type},
            content=content,
            metadata=metadata or {},
            buffers=tuple(base64.b64encode(part).decode() for part in buffers),
        ),
        execution_count=notebook.execution_count - 1,
        workdir=str(notebook.workdir),
        home=str(notebook.home),
    )
    result = notebook.zygote.finish(notebook.zygote.start(request, notebook.objects))
    assert result.failed is None, result.failed
    assert result.report is not None
    notebook.objects.commit(result.report, result.snapshot)
    return result


def update(notebook: Notebook, comm_id: str, **state: Any) -> Result:
    data = {"method": "update", "state": state, "buffer_paths": []}
    return message(notebook, "comm_msg", {"comm_id": comm_id, "data": data})


def opened(result: Result) -> dict[str, str]:
    """Return the ids of the comms that were opened, by model."""
    return {
        m["content"]["data"]["state"]["_model_name"]: m["content"]["comm_id"]
        for m in result.of_type("comm_open")
    }


def test_a_slider_that_is_moved_calls_its_observers_and_the_next_cell_has_the_value(
    notebook: Notebook,
) -> None:
    made = notebook.run(
        "import ipywidgets\nseen = []\ns = ipywidgets.IntSlider(3)\n"
        "def changed(change):\n    seen.append(change.new)\n    print('moved to', change.new)\n"
        "s.observe(changed, 'value')\ns"
    )
    models = opened(made)
    assert set(models) == {"LayoutModel", "SliderStyleModel", "IntSliderModel"}
    assert {m["metadata"]["version"] for m in made.of_type("comm_open")} == {"2.1.0"}
    (shown,) = made.of_type("execute_result")
    view = shown["content"]["data"]["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == models["IntSliderModel"]

    result = update(notebook, models["IntSliderModel"], value=7)

    assert result.stream("stdout") == "moved to 7\n"
    assert result.stream("stderr") == ""
    (echo,) = result.of_type("comm_msg")
    assert echo["content"]["data"]["method"] == "echo_update"
    assert result.content == {"status": "ok"}
    last = notebook.run(
        "s.value, seen, s is ipywidgets.widgets.widget._instances[s.model_id], "
        "s.comm is get_ipython().kernel.comm_manager.comms[s.model_id]"
    )
    assert last.text == "(7, [7], True, True)"
    assert not last.of_type("comm_open")
