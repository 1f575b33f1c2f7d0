"""Completion, inspection and history as front ends ask for them, on real parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import a_kernel
from tests.integration.driver import Gateway, NotebookClient, a_gateway

EVIL = """
import sys; sys.dont_write_bytecode = True
import os, pathlib, threading
changed = []
def evil():
    changed.append(1)
    print("printed by a question")
    os.write(1, b"written by a question")
    pathlib.Path("left.txt").write_text("1")
    pathlib.Path("kept.txt").write_text("changed")
    (pathlib.Path.home() / "left").write_text("1")
    os.environ["LEFT"] = "1"
    threading.Thread(target=lambda: None).start()
    if os.fork() == 0:
        import time
        while True:
            time.sleep(1)
class Evil:
    def __dir__(self):
        evil()
        return ["visible"]
    def __repr__(self):
        evil()
        return "evil"
    def __getattr__(self, name):
        if name.startswith("vi"):
            evil()
            return 1
        raise AttributeError(name)
e = Evil()
pathlib.Path("kept.txt").write_text("kept")
pathlib.Path("talking.py").write_text('def __dir__():\\n    print("loud")\\n    return ["said"]\\n')
import talking
None
"""


@pytest.fixture(scope="module", params=["namespaces", "process"])
def patient(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway of each tier whose questions wait for a container even on a busy machine."""
    folder = tmp_path_factory.mktemp("patient")
    config = folder / "config.toml"
    config.write_text(
        "[KernelGateway]\nquestion_wait_s = 30\n"
        f'[[environment]]\nid = "default"\ntier = "{request.param}"\n'
    )
    with a_gateway(folder / "state", "--config", str(config)) as running:
        yield running


@pytest.fixture
def asked(patient: Gateway) -> Iterator[NotebookClient]:
    """A fresh kernel there, in a workspace of its own."""
    yield from a_kernel(patient)


def complete(kernel: NotebookClient, code: str, **more: Any) -> list[str]:
    content = {"code": code, "cursor_pos": len(code), **more}
    reply = kernel.request("complete_request", content)
    assert reply["status"] == "ok", reply
    matches: list[str] = reply["matches"]
    return matches


def inspect(kernel: NotebookClient, code: str, cursor: int, level: int = 0) -> str:
    content = {"code": code, "cursor_pos": cursor, "detail_level": level}
    reply = kernel.request("inspect_request", content)
    return str(reply["data"].get("text/plain", ""))


def test_completion_knows_variables_files_keys_and_magics(asked: NotebookClient) -> None:
    kernel = asked
    kernel.execute("words = []; table = {'key one': 1}; open('data.csv', 'w').close()")

    assert "append" in complete(kernel, "words.app")
    assert complete(kernel, "table['") == ["key one"]
    assert "data.csv" in complete(kernel, "open('da")
    assert "%timeit" in complete(kernel, "%timei")


def test_a_tooltip_inside_a_call_shows_the_signature(asked: NotebookClient) -> None:
    kernel = asked
    kernel.execute("def area(width, height=2):\n    'The area.'\n    return width * height")

    shown = inspect(kernel, "area(1, ", 8)

    assert "width" in shown
    assert "The area." in shown
    assert "return" in inspect(kernel, "area", 4, level=1)


def test_a_question_changes_nothing_that_lasts(asked: NotebookClient) -> None:
    kernel = asked
    made = kernel.execute(EVIL)
    assert made.reply["status"] == "ok", made.error

    assert complete(kernel, "e.vis") == ["visible"]
    complete(kernel, "e.visible.")
    assert inspect(kernel, "e", 1)
    complete(kernel, "talking.sa")
    after = kernel.execute(
        "import os\n"
        "print(changed, sorted(os.listdir('.')), os.path.exists(os.path.expanduser('~/left')),\n"
        "      os.environ.get('LEFT'), open('kept.txt').read())"
    )

    assert after.stdout == "[] ['kept.txt', 'talking.py'] False None kept\n"
    assert after.stderr == ""


def test_nothing_is_published_for_a_question(kernel: NotebookClient) -> None:
    kernel.execute(EVIL)

    msg_id = kernel.send("complete_request", {"code": "e.vis", "cursor_pos": 5})
    told = []
    while "idle" not in told:
        message = kernel.receive(30)
        assert message["parent_header"]["msg_id"] == msg_id
        told.append(message["content"].get("execution_state", message["header"]["msg_type"]))

    assert told == ["busy", "complete_reply", "idle"]


def test_a_question_that_never_ends_gets_an_answer_and_leaves_the_container(
    kernel: NotebookClient,
) -> None:
    kernel.execute("class Slow:\n    def __dir__(self):\n        while True: pass\nslow = Slow()")

    assert complete(kernel, "slow.x") == []
    assert kernel.execute("1 + 1").result == "2"


def test_a_running_cell_does_not_keep_an_answer(kernel: NotebookClient) -> None:
    kernel.execute("price = 1")
    running = kernel.submit("input()", allow_stdin=True)
    kernel.asked(running)

    msg_id = kernel.send("complete_request", {"code": "pri", "cursor_pos": 3})
    matches = None
    while matches is None:
        message = kernel.receive(30)
        if message["parent_header"].get("msg_id") == msg_id:
            matches = message["content"].get("matches")
        elif message["parent_header"].get("msg_id") == running.msg_id:
            running.messages.append(message)

    assert not running.done
    assert {"price", "print"} <= set(matches)
    kernel.answer("")
    kernel.wait(running)
    assert running.reply["status"] == "ok"


def test_history_and_count_survive_the_gateway(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as gateway:
        first = gateway.session()
        for code in ("a = 1", "'\N{SNAKE}'", "1 / 0", "b = 2"):
            first.execute(code)
        first.close()
    with a_gateway(tmp_path / "state") as gateway:
        (listed,) = gateway.rest("GET", "/api/kernels").json()
        assert listed["lambda_kernel"]["execution_count"] is None
        found = gateway.rest("GET", f"/api/kernels/{listed['id']}").json()
        assert found["lambda_kernel"]["execution_count"] == 4
        again = NotebookClient(gateway, listed["id"], gateway.token)
        request = {"hist_access_type": "tail", "n": 3, "output": False, "raw": True}
        tail = again.request("history_request", request)["history"]
        assert tail == [[1, 2, "'\N{SNAKE}'"], [1, 3, "1 / 0"], [1, 4, "b = 2"]]
        request = {"hist_access_type": "search", "pattern": "*=*", "n": 9, "output": True}
        found = again.request("history_request", request)["history"]
        assert found == [[1, 1, ["a = 1", None]], [1, 4, ["b = 2", None]]]
        again.execute("c = 3")
        request = {"hist_access_type": "range", "session": 0, "start": 4, "stop": 6}
        assert again.request("history_request", request)["history"] == [
            [0, 4, "b = 2"],
            [0, 5, "c = 3"],
        ]
        again.close()


def test_kernel_info_tells_the_python_of_the_cells(kernel: NotebookClient) -> None:
    told = kernel.request("kernel_info_request", {})["language_info"]["version"]

    run = kernel.execute("import platform; platform.python_version()")
    assert run.result == repr(told)
