"""Cells that must give, message by message, what they give in stock ipykernel.

The cells stand in ``same_cells/<subject>.txt``, with a line of four dashes between two of them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from tests.integration.driver import Gateway, NotebookClient
from tests.notebooks.normalisation import rewritten

SUBJECTS = sorted(Path(__file__).with_name("same_cells").glob("*.txt"))
REPLY_FIELDS = (
    *("status", "execution_count", "payload", "user_expressions"),
    *("ename", "evalue", "traceback"),
)
DRAWN = re.compile(
    # Handles of displays; elements of figures; messages of ipykernel's.
    r"\b(?:[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}-[0-9a-f]{24}_\d+_\d+)\b"
)
SPEED = re.compile(r"\d+(?:\.\d+)?it/s")
SILENT = {"silent": True}
UNCOUNTED = {"store_history": False}
WITH_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("1 + 1", SILENT),
    ("print('a')", SILENT),
    ("1 / 0", SILENT),
    ("x = 7", UNCOUNTED),
    ("8", {}),
    ("_", {}),
    ("1 / 0", UNCOUNTED),
    ("display(5)", SILENT),
    ("", {}),
    ("  \n", {}),
    ("# only a comment", {}),
    ("9", {}),
    ("x = 1", {"user_expressions": {"a": "x + 1", "b": "1/0", "c": "x +"}}),
    ("from IPython.display import HTML", {"user_expressions": {"h": "HTML('<b>')", "n": "None"}}),
    ("1/0", {"user_expressions": {"a": "x"}}),
    ("x", {"silent": True, "user_expressions": {"a": "x"}}),
    ("y = 2", {"user_expressions": {"p": "print('said')", "d": "display(y)", "l": "[y] * 3"}}),
    ("y", {"user_expressions": {"q": "y = 3", "m": "%time", "s": "'a' * 20", "": "y"}}),
]
FAILS = "def f(n):\n    half = n / 2\n    return 1 / (half - half)"
WITH_ANSWERS: list[tuple[str, list[str]]] = [
    ("print('Hello', input('name? '))", ["Ada"]),
    (
        f"{FAILS}\ntry:\n    f(4)\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\n"
        "%debug",
        ["p half", "w", "u", "l", "q"],
    ),
    ("%debug f(6)", ["s", "n", "p n", "c"]),
    ("%%debug\ny = 5\nprint(y)", ["n", "p 6 * 7", "c"]),
    ("%pdb on\nf(8)", ["p half", "q"]),
    ("%pdb off\nf(8)", []),
]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """Yield stock ipykernel's process."""
    folder = tmp_path_factory.mktemp("stock")
    # Under pytest, ipykernel captures no descriptors.
    foreign = ("JUPYTER", "MPL", "PIP", "PYTEST")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(foreign)}
    # What a container of the gateway sets too.
    environment |= {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC", "HOME": str(folder)}
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    )
    environment |= {"SHELL": "/bin/bash", "PIP_CONFIG_FILE": os.devnull}
    # A cell is never root, of which pip would warn.
    environment["PIP_ROOT_USER_ACTION"] = "ignore"
    (folder / "work").mkdir()
    manager.start_kernel(cwd=str(folder / "work"), env=environment)
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture
def stock(manager: KernelManager) -> Iterator[BlockingKernelClient]:
    """Yield a client of stock ipykernel, freshly started."""
    manager.restart_kernel(now=True)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()


@pytest.fixture
def ours(gateway: Gateway) -> Iterator[NotebookClient]:
    """Yield a client of a new kernel in a workspace of its own."""
    session = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": f"same-{os.urandom(6).hex()}"})
    yield session
    session.close()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda path: path.stem)
def test_cells_give_the_same_as_in_ipykernel(
    stock: BlockingKernelClient, ours: NotebookClient, subject: Path
) -> None:
    cells = subject.read_text().removesuffix("\n").split("\n----\n")
    _check(stock, ours, [(cell, {}) for cell in cells])


def test_options_of_a_request_mean_the_same_as_in_ipykernel(
    stock: BlockingKernelClient, ours: NotebookClient
) -> None:
    _check(stock, ours, WITH_OPTIONS)


def test_questions_and_debuggers_say_the_same_as_in_ipykernel(
    stock: BlockingKernelClient, ours: NotebookClient
) -> None:
    _check(stock, ours, [(code, {"answers": answers}) for code, answers in WITH_ANSWERS])


def _check(
    stock: BlockingKernelClient, ours: NotebookClient, cells: list[tuple[str, dict[str, Any]]]
) -> None:
    """Fail with a diff of each cell whose messages differ."""
    found = []
    for number, (code, asked) in enumerate(cells, 1):
        answers = asked.get("answers", ())
        options = {k: v for k, v in asked.items() if k != "answers"}
        may_ask = {"allow_stdin": bool(answers)}
        expected = _shown(_run_stock(stock, code, options | may_ask, answers))
        given = _shown(ours.execute(code, **(asked if answers else asked | may_ask)).messages)
        if expected != given:
            lines = difflib.unified_diff(expected, given, "ipykernel", "gateway", "", "", 0, "")
            found.append("\n".join([f"cell {number}: {code}", *lines]))
    if found:
        pytest.fail("\n\n".join(found), pytrace=False)


def _run_stock(
    client: BlockingKernelClient, code: str, options: dict[str, Any], answers: Sequence[str]
) -> list[dict[str, Any]]:
    msg_id = client.execute(code, **options)
    # Where a question stands among the outputs depends on the speed of two sockets.
    messages: list[dict[str, Any]] = []
    for value in answers:
        messages.append(client.get_stdin_msg(timeout=60))
        client.input(value)
    while not messages or messages[-1]["content"].get("execution_state") != "idle":
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") == msg_id:
            messages.append(message)
    while True:
        reply = client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == msg_id:
            return [*messages, reply]


def _shown(messages: list[dict[str, Any]]) -> list[str]:
    """Return what a client is told, as lines: what differs by chance is the same in all."""
    told: list[tuple[str, Any]] = []
    reply: dict[str, Any] = {}
    questions = [m["content"] for m in messages if m["header"]["msg_type"] == "input_request"]
    for message in messages:
        msg_type, content = message["header"]["msg_type"], dict(message["content"])
        last_type, last = told[-1] if told else ("", {})
        if msg_type == "execute_reply":
            reply = {name: content.get(name) for name in REPLY_FIELDS}
        elif msg_type == "stream" == last_type and last["name"] == content["name"]:
            # How a text is cut into messages depends on when it was flushed.
            last["text"] += content["text"]
        elif msg_type not in ("status", "input_request"):
            told.append((msg_type, content))
    text = json.dumps(
        rewritten([*map(list, told), questions, reply]),
        indent=1,
        sort_keys=True,
        ensure_ascii=False,
    )
    # The working directory, and what is named at random.
    text = re.sub(r"(?:~|/[^\s\"']*)/work(?=[/\"' \\])|/tmp/\.[\w-]*-work-\w+", "WORK", text)
    return SPEED.sub("SPEED", DRAWN.sub("ID", text)).replace("\\n", "\n").splitlines()
