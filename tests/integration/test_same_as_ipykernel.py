"""Cells that must give, message by message, what they give in stock ipykernel.

The cells stand in ``same_cells/<subject>.txt``, with a line of four dashes between two of them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator
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
]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """Yield stock ipykernel's process."""
    folder = tmp_path_factory.mktemp("stock")
    # Under pytest, ipykernel captures no descriptors.
    foreign = ("JUPYTER", "MPL", "PYTEST")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(foreign)}
    # What a container of the gateway sets too.
    environment |= {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC", "HOME": str(folder)}
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    )
    environment["SHELL"] = "/bin/bash"
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


def _check(
    stock: BlockingKernelClient, ours: NotebookClient, cells: list[tuple[str, dict[str, Any]]]
) -> None:
    """Fail with a diff of each cell whose messages differ."""
    found = []
    for number, (code, options) in enumerate(cells, 1):
        asked = {"allow_stdin": False, **options}
        expected = _shown(_run_stock(stock, code, asked))
        given = _shown(ours.execute(code, **asked).messages)
        if expected != given:
            lines = difflib.unified_diff(expected, given, "ipykernel", "gateway", "", "", 0, "")
            found.append("\n".join([f"cell {number}: {code}", *lines]))
    if found:
        pytest.fail("\n\n".join(found), pytrace=False)


def _run_stock(
    client: BlockingKernelClient, code: str, options: dict[str, Any]
) -> list[dict[str, Any]]:
    msg_id = client.execute(code, **options)
    messages: list[dict[str, Any]] = []
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
    for message in messages:
        msg_type, content = message["header"]["msg_type"], dict(message["content"])
        last_type, last = told[-1] if told else ("", {})
        if msg_type == "execute_reply":
            reply = {name: content.get(name) for name in REPLY_FIELDS}
        elif msg_type == "stream" == last_type and last["name"] == content["name"]:
            # How a text is cut into messages depends on when it was flushed.
            last["text"] += content["text"]
        elif msg_type != "status":
            told.append((msg_type, content))
    text = json.dumps(
        rewritten([*map(list, told), reply]), indent=1, sort_keys=True, ensure_ascii=False
    )
    # The working directory, and the handles of displays that were drawn at random.
    text = re.sub(r"(?:~|/[^\s\"']*)/work(?=[/\"' \\])|/tmp/\.[\w-]*-work-\w+", "WORK", text)
    return re.sub(r"\b[0-9a-f]{16}\b", "ID", text).replace("\\n", "\n").splitlines()
