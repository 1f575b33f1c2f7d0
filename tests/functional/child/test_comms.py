"""Comms and widgets in the child: they live in the session, and front ends speak to them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

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


def test_a_click_an_interact_and_an_output_widget_that_no_variable_holds(
    notebook: Notebook,
) -> None:
    button = opened(
        notebook.run(
            "import ipywidgets as w\nfrom IPython.display import display\nclicks = 0\n"
            "b = w.Button(description='go')\n"
            "def clicked(button):\n    global clicks\n    clicks += 1\n"
            "    print(button.description)\n"
            "b.on_click(clicked)\ndisplay(b)\ndel b"
        )
    )["ButtonModel"]
    slider = opened(
        notebook.run(
            "squares = []\n@w.interact(x=3)\ndef square(x):\n"
            "    squares.append(x * x)\n    return x * x"
        )
    )["IntSliderModel"]

    click = {"method": "custom", "content": {"event": "click"}}
    clicked = message(notebook, "comm_msg", {"comm_id": button, "data": click})
    moved = update(notebook, slider, value=5)

    assert clicked.stream("stdout") == "go\n"
    assert [m["content"]["data"]["text/plain"] for m in moved.of_type("display_data")] == ["25"]
    captures = [m["content"]["data"]["state"].get("msg_id") for m in moved.of_type("comm_msg")]
    assert captures[-2:] == ["c1", ""]
    assert notebook.run("clicks, squares").text == "(1, [9, 25])"


def test_all_states_are_sent_to_a_page_that_was_loaded_again(notebook: Notebook) -> None:
    made = notebook.run("import ipywidgets as w\nbox = w.HBox([w.IntSlider(1), w.Text('t')])")
    control = {"comm_id": "ctl", "target_name": "jupyter.widget.control", "data": {}}

    message(notebook, "comm_open", control, metadata={"version": "1.0.0"})
    states = message(notebook, "comm_msg", {"comm_id": "ctl", "data": {"method": "request_states"}})
    message(notebook, "comm_close", {"comm_id": "ctl", "data": {}})
    asked = message(
        notebook,
        "comm_msg",
        {"comm_id": opened(made)["HBoxModel"], "data": {"method": "request_state"}},
    )

    (sent,) = states.of_type("comm_msg")
    assert sent["content"]["data"]["method"] == "update_states"
    assert set(sent["content"]["data"]["states"]) == {
        m["content"]["comm_id"] for m in made.of_type("comm_open")
    }
    (state,) = asked.of_type("comm_msg")
    assert len(state["content"]["data"]["state"]["children"]) == 2
    names = "sorted(get_ipython().kernel.comm_manager.comms)"
    assert "ctl" not in notebook.run(names).text


def test_a_cell_reads_only_the_widgets_that_it_uses(notebook: Notebook) -> None:
    here = "len(get_ipython().kernel.comm_manager.comms.present())"
    notebook.run("import ipywidgets as w\na = w.IntSlider(1)\nb = w.Text('b')")

    assert notebook.run(here).text == "0"
    assert notebook.run(f"a.value = 2; {here}").text == "3"
    assert notebook.run("len(w.Widget.widgets), a.value, b.value").text == "(6, 2, 'b')"


def test_buffers_go_both_ways(notebook: Notebook) -> None:
    made = notebook.run("import ipywidgets as w\ni = w.FileUpload()\np = w.Image(value=b'abc')")
    (image,) = [m for m in made.of_type("comm_open") if m["buffers"]]
    assert image["buffers"] == (b"abc",)
    comm_id = image["content"]["comm_id"]
    data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}

    message(notebook, "comm_msg", {"comm_id": comm_id, "data": data}, buffers=(b"\x00\xff",))

    assert notebook.run("bytes(p.value)").text == r"b'\x00\xff'"


def test_an_error_in_a_callback_is_told_and_what_it_did_before_stays(notebook: Notebook) -> None:
    made = notebook.run(
        "import ipywidgets as w\ns = w.IntSlider(1)\nb = w.Button()\ndone = []\n"
        "def fail(change):\n    done.append(1)\n    raise ValueError('of the callback')\n"
        "s.observe(fail, 'value'); b.on_click(fail)"
    )

    moved = update(notebook, opened(made)["IntSliderModel"], value=2)
    click = {"method": "custom", "content": {"event": "click"}}
    clicked = message(notebook, "comm_msg", {"comm_id": opened(made)["ButtonModel"], "data": click})

    for result in (moved, clicked):
        (error,) = result.of_type("error")
        assert (error["content"]["ename"], error["content"]["evalue"]) == (
            "ValueError",
            "of the callback",
        )
    assert notebook.run("s.value, done").text == "(2, [1, 1])"


def test_a_widget_that_could_not_be_stored_says_why_and_is_closed(notebook: Notebook) -> None:
    made = notebook.run(
        "import ipywidgets as w\ns = w.IntSlider(1)\n"
        "def listener(rows):\n    return lambda change: next(rows)\n"
        "s.observe(listener(i for i in [1]), 'value')\ndel s"
    )
    assert "generator" in made.stream("stderr")
    comm_id = opened(made)["IntSliderModel"]

    result = update(notebook, comm_id, value=2)

    assert "this widget is inert: it could not be stored after In[1]" in result.stream("stderr")
    assert "generator" in result.stream("stderr")
    assert [m["content"]["comm_id"] for m in result.of_type("comm_close")] == [comm_id]


def test_a_comm_of_a_target_of_the_users(notebook: Notebook) -> None:
    notebook.run(
        "comms = get_ipython().kernel.comm_manager\nheard = []\n"
        "def opened(comm, message):\n    heard.append(message['content']['data'])\n"
        "    def told(m):\n        heard.append(m['content']['data'])\n"
        "        comm.send({'n': len(heard)})\n    comm.on_msg(told)\n"
        "    comm.on_close(lambda m: heard.append('closed'))\n"
        "comms.register_target('chat', opened)"
    )

    message(notebook, "comm_open", {"comm_id": "x y:z", "target_name": "chat", "data": {"a": 1}})
    answer = message(notebook, "comm_msg", {"comm_id": "x y:z", "data": {"b": 2}})
    message(notebook, "comm_close", {"comm_id": "x y:z", "data": {}})

    assert answer.of_type("comm_msg")[0]["content"]["data"] == {"n": 2}
    assert notebook.run("heard, list(comms.comms)").text == ("([{'a': 1}, {'b': 2}, 'closed'], [])")
    unknown = message(notebook, "comm_open", {"comm_id": "u", "target_name": "nobody"})
    assert unknown.of_type("comm_close")[0]["content"]["comm_id"] == "u"


def test_closed_widgets_are_forgotten(notebook: Notebook) -> None:
    made = notebook.run("import ipywidgets as w\ns = w.IntSlider(1)\nt = w.Text()")
    slider = opened(made)["IntSliderModel"]

    notebook.run("s.close()")

    assert notebook.run("sorted(type(x).__name__ for x in w.Widget.widgets.values())").text == (
        "['Layout', 'Layout', 'SliderStyle', 'Text', 'TextStyle']"
    )
    result = update(notebook, slider, value=2)
    assert "inert: its comm was closed" in result.stream("stderr")


def test_progress_bars_of_tqdm_go_on_in_the_next_cell(notebook: Notebook) -> None:
    made = notebook.run(
        "from tqdm.notebook import tqdm\nfor i in tqdm(range(3)): pass\nbar = tqdm(total=5)",
    )
    assert made.stream("stderr") == ""

    result = notebook.run("import ipywidgets as w\nbar.update(2)\nbar.n, len(w.Widget.widgets)")
    notebook.run("pass")
    closed = notebook.run("bar.update(3); bar.close()")

    assert "(2, 22)" in result.text
    assert "[state]" not in result.stream("stderr")
    states = [m["content"]["data"]["state"] for m in closed.of_type("comm_msg")]
    assert {"bar_style": "success"} in states
    assert not closed.of_type("comm_close")


def test_containers_links_and_options_keep_what_they_share(notebook: Notebook) -> None:
    notebook.run(
        "import ipywidgets as w\na = w.IntSlider(); t = w.IntText()\nl = w.jslink((a, 'value'), "
        "(t, 'value'))\ntab = w.Tab([a, t]); o = object()\n"
        "d = w.Dropdown(options=[('o', o), ('2', 2)])\nio = w.interactive_output(print, {'x': a})\n"
        "g = w.GridspecLayout(2, 2); g[0, 0] = a"
    )

    shared = notebook.run(
        "l.source[0] is a, l.target[0] is t, tab.children == (a, t), "
        "d.options[0][1] is o, g[0, 0] is a"
    )

    assert shared.text == "(True, True, True, True, True)"


def test_a_widget_answers_with_what_the_cell_before_did(notebook: Notebook) -> None:
    made = notebook.run(
        "import ipywidgets as w\nfactor = 2\ndef times(n):\n    return n * factor\n"
        "s = w.IntSlider(1)\ns.observe(lambda c: print(times(c.new)), 'value')"
    )
    notebook.run("factor = 100")

    assert update(notebook, opened(made)["IntSliderModel"], value=3).stream("stdout") == "300\n"


def test_echo_is_off_where_the_session_says_so(notebook: Notebook) -> None:
    made = notebook.run(
        "import os\nos.environ['JUPYTER_WIDGETS_ECHO'] = '0'\n"
        "import ipywidgets\ns = ipywidgets.IntSlider(1)"
    )

    assert not update(notebook, opened(made)["IntSliderModel"], value=2).of_type("comm_msg")
