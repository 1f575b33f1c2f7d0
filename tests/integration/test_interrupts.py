"""What the stop button does to a cell, whatever it is doing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.driver import Execution, Gateway, NotebookClient


def by_rest(gateway: Gateway, kernel: NotebookClient) -> None:
    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/interrupt").status_code == 204


def by_message(gateway: Gateway, kernel: NotebookClient) -> None:
    kernel.send("interrupt_request", {}, channel="control")


def begun(kernel: NotebookClient, code: str, **content: bool) -> Execution:
    """Return a cell that has said that it begins."""
    execution = kernel.submit(f"print('in', flush=True)\n{code}", **content)
    until(kernel, execution, "in")
    return execution


def until(kernel: NotebookClient, execution: Execution, word: str) -> None:
    while word not in execution.stdout:
        execution.messages.append(kernel.receive(60))


CODE = {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(600)",
    "await": "import asyncio; await asyncio.sleep(600)",
    "between awaits": "import asyncio, time; await asyncio.sleep(0); time.sleep(600)",
    "task": "import asyncio, time\nasync def f(): time.sleep(600)\nawait asyncio.create_task(f())",
    "timeout": "import asyncio\nasync with asyncio.timeout(600): await asyncio.sleep(600)",
    "subprocess": "import subprocess; subprocess.run(['sleep', '600'])",
    "numpy": "import numpy as np; a = np.ones((400, 400))\nwhile True: a = a @ a / 400",
    "sqlite": (
        "import sqlite3; db = sqlite3.connect(':memory:')\n"
        "while True: db.execute('with recursive c(x) as (select 1 union all select x + 1 from c "
        "where x < 10000) select sum(x) from c').fetchall()"
    ),
    "lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "thread": (
        "import threading, time\n"
        "t = threading.Thread(target=time.sleep, args=(600,), daemon=True); t.start(); t.join()"
    ),
}


@pytest.mark.parametrize("way", [by_rest, by_message])
@pytest.mark.parametrize("code", CODE.values(), ids=CODE.keys())
def test_an_interrupt_is_a_keyboard_interrupt_and_keeps_what_the_cell_did(
    gateway: Gateway,
    kernel: NotebookClient,
    code: str,
    way: Callable[[Gateway, NotebookClient], None],
) -> None:
    execution = begun(kernel, f"done = 'kept'\n{code}")
    way(gateway, kernel)
    kernel.wait(execution)
    (error,) = execution.of("error")
    assert execution.reply["ename"] == error["ename"] == "KeyboardInterrupt"
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "".join(error["traceback"]))
    assert code.splitlines()[-1] in shown
    assert kernel.execute("done").result == "'kept'"


def test_a_cell_that_asks_can_be_interrupted(gateway: Gateway, kernel: NotebookClient) -> None:
    execution = kernel.submit("done = 'kept'\ninput('?')", allow_stdin=True)
    kernel.asked(execution)
    by_rest(gateway, kernel)
    kernel.wait(execution)
    assert execution.error == "KeyboardInterrupt: Interrupted by user"
    kernel.answer("too late")
    assert kernel.execute("done").result == "'kept'"


AWAITING = """
import asyncio
try:
    await asyncio.sleep(600)
except KeyboardInterrupt:
    print("caught", flush=True)
async with asyncio.timeout(600):
    await asyncio.sleep(0.01)
print("went on")
"""


def test_code_that_catches_one_interrupt_goes_on(gateway: Gateway, kernel: NotebookClient) -> None:
    execution = begun(kernel, AWAITING)
    by_rest(gateway, kernel)
    kernel.wait(execution)
    assert execution.stdout == "in\ncaught\nwent on\n"
    assert execution.reply["status"] == "ok"


@pytest.mark.parametrize("wait", ["time.sleep(600)", "await asyncio.sleep(600)"])
def test_the_second_interrupt_kills_code_that_catches_them_and_says_so(
    gateway: Gateway, kernel: NotebookClient, wait: str
) -> None:
    kernel.execute("x = 1")
    code = f"while True:\n    try: {wait}\n    except KeyboardInterrupt: print('no', flush=True)"
    execution = begun(kernel, f"import asyncio, time\nx = 2\n{code}")
    by_rest(gateway, kernel)
    until(kernel, execution, "no")
    by_rest(gateway, kernel)
    kernel.wait(execution)
    assert execution.reply["ename"] == "CellInterrupted"
    text = "it went on after an interrupt: the second one killed its process"
    assert text in execution.reply["evalue"]
    assert "variables and files are as after cell [1]" in execution.reply["evalue"]
    assert kernel.execute("x").result == "1"


@pytest.mark.parametrize("way", [by_rest, by_message])
def test_an_interrupt_of_an_idle_kernel_does_nothing(
    gateway: Gateway, kernel: NotebookClient, way: Callable[[Gateway, NotebookClient], None]
) -> None:
    kernel.execute("x = 1")
    way(gateway, kernel)
    run = kernel.execute("import time; time.sleep(0.5); x")
    assert run.result == "1"


def test_an_interrupt_aborts_the_thousands_of_cells_that_wait(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    running = begun(kernel, "import time; time.sleep(600)")
    waiting = {kernel.submit(f"print({n})").msg_id for n in range(5000)}
    statuses: dict[str, str] = {}
    while len(statuses) < 4000:
        statuses |= replied(kernel.receive(90))
    # All of them came: as many as may wait do, and the others have been refused.
    by_rest(gateway, kernel)
    while len(statuses) < 5001:
        statuses |= replied(kernel.receive(90))
    assert statuses.pop(running.msg_id) == "KeyboardInterrupt"
    assert statuses.keys() == waiting
    assert Counter(statuses.values()) == {"QueueFull": 4000, "aborted": 1000}
    assert kernel.execute("6 * 7").result == "42"


def replied(message: dict[str, Any]) -> dict[str, str]:
    """Return the status by request of a message that is an execute_reply."""
    if message["header"]["msg_type"] != "execute_reply":
        return {}
    content = message["content"]
    return {message["parent_header"]["msg_id"]: content.get("ename", content["status"])}
