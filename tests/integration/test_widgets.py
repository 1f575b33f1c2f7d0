"""Widgets on a real gateway, with a client that plays the front end."""

from __future__ import annotations

import time
from typing import Any

from jupyter_server.services.kernels.connection.base import serialize_binary_message

from kernel_gateway.web.codec import decode_frame
from tests.integration.driver import Execution, Gateway, NotebookClient

SLIDER = (
    "import ipywidgets as w\nfrom IPython.display import display\nseen = []\n"
    "s = w.IntSlider(3)\n"
    "s.observe(lambda change: (seen.append(change.new), print('moved')), 'value')\n"
    "b = w.Button(description='go')\nb.on_click(lambda _: seen.append('clicked'))\n"
    "display(s, b)"
)


def comm(
    kernel: NotebookClient, msg_type: str, content: dict[str, Any], *, wait: bool = True
) -> Execution:
    """Send a comm message; return all that came of it, until the idle."""
    sent = Execution(kernel.send(msg_type, {"data": {}, **content}))
    return heard(kernel, sent) if wait else sent


def heard(kernel: NotebookClient, sent: Execution) -> Execution:
    deadline = time.monotonic() + 60
    while not any(m["content"].get("execution_state") == "idle" for m in sent.messages):
        message = kernel.receive(max(0.1, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") == sent.msg_id:
            sent.messages.append(message)
    return sent


def update(kernel: NotebookClient, comm_id: str, *, wait: bool = True, **state: Any) -> Execution:
    data = {"method": "update", "state": state, "buffer_paths": []}
    return comm(kernel, "comm_msg", {"comm_id": comm_id, "data": data}, wait=wait)


def models(execution: Execution) -> dict[str, str]:
    return {c["data"]["state"]["_model_name"]: c["comm_id"] for c in execution.of("comm_open")}


def test_a_slider_and_a_button_work_and_their_changes_are_in_the_next_cell(
    gateway: Gateway,
) -> None:
    kernel = gateway.session()
    made = models(kernel.execute(SLIDER))

    moved = update(kernel, made["IntSliderModel"], value=7)
    click = {"method": "custom", "content": {"event": "click"}}
    clicked = comm(kernel, "comm_msg", {"comm_id": made["ButtonModel"], "data": click})

    assert moved.stdout == "moved\n"
    assert moved.types[0] == moved.types[-1] == "status"
    assert not any(kind.endswith("_reply") for kind in moved.types + clicked.types)
    checked = kernel.execute("s.value, seen")
    assert checked.result == "(7, [7, 'clicked'])"
    assert checked.reply["execution_count"] == 2
    kernel.close()


def test_a_page_that_is_loaded_again_finds_the_widgets_and_after_a_restart_hears_they_are_gone(
    gateway: Gateway,
) -> None:
    kernel = gateway.session()
    assert kernel.request("comm_info_request", {})["comms"] == {}
    shown = kernel.execute(SLIDER)
    made = models(shown)
    update(kernel, made["IntSliderModel"], value=9)
    kernel.close()
    page = NotebookClient(gateway, kernel.kernel_id, kernel.token)

    info = page.request("comm_info_request", {"target_name": "jupyter.widget"})["comms"]
    control = {"comm_id": "ctl", "target_name": "jupyter.widget.control"}
    header = {"version": "1.0.0"}
    opened = Execution(page.send("comm_open", {**control, "data": {}}, metadata=header))
    heard(page, opened)
    states = comm(page, "comm_msg", {"comm_id": "ctl", "data": {"method": "request_states"}})

    assert info == {c["comm_id"]: {"target_name": "jupyter.widget"} for c in shown.of("comm_open")}
    (sent,) = states.of("comm_msg")
    assert sent["data"]["states"][made["IntSliderModel"]]["state"]["value"] == 9

    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/restart").status_code == 200
    stale = update(page, made["IntSliderModel"], value=1)
    assert "this widget is inert" in stale.stderr
    assert [c["comm_id"] for c in stale.of("comm_close")] == [made["IntSliderModel"]]
    assert page.request("comm_info_request", {})["comms"] == {}
    page.close()


def test_a_slider_that_is_dragged_while_a_cell_runs_is_one_call_and_every_message_is_answered(
    gateway: Gateway,
) -> None:
    kernel = gateway.session()
    slider = models(kernel.execute(SLIDER))["IntSliderModel"]

    slow = kernel.submit("input()", allow_stdin=True)
    kernel.asked(slow)
    moves = [update(kernel, slider, wait=False, value=i) for i in range(100)]
    kernel.answer("")
    seen: dict[str, list[str]] = {}
    while len(seen) < 101:
        message = kernel.receive(60)
        if message["content"].get("execution_state") == "idle":
            seen.setdefault(message["parent_header"]["msg_id"], []).append("idle")

    assert set(seen) == {slow.msg_id, *(move.msg_id for move in moves)}
    assert kernel.execute("s.value, seen").result == "(99, [99])"
    kernel.close()


def test_binary_data_goes_both_ways_with_a_client_that_sends_binary_frames(
    gateway: Gateway,
) -> None:
    kernel = gateway.session()
    shown = kernel.execute("import ipywidgets as w\npicture = w.Image(value=b'\\x00\\xff')")
    picture = models(shown)["ImageModel"]
    assert "binary data cannot pass this connection" in shown.stderr

    data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    message = kernel.message("comm_msg", {"comm_id": picture, "data": data})
    kernel.socket.send(serialize_binary_message({**message, "buffers": [b"\xfe\x01" * 5000]}))
    asked = kernel.message("comm_msg", {"comm_id": picture, "data": {"method": "request_state"}})
    kernel.socket.send(serialize_binary_message({**asked, "buffers": []}))
    frame = kernel.socket.recv(timeout=60)
    while (
        isinstance(frame, str)
        or decode_frame(frame, None).data["parent_header"]["msg_id"] != asked["header"]["msg_id"]
    ):
        frame = kernel.socket.recv(timeout=60)

    assert decode_frame(frame, None).buffers == (b"\xfe\x01" * 5000,)
    kernel.close()
