"""A cell asks its user: the question goes out, the answer comes in by a control object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lambda_kernel.contract import control
from lambda_kernel.contract.frames import FrameKind
from lambda_kernel.contract.invocation import CellMessage, Invocation, Limits
from lambda_kernel.contract.outcome import Status
from lambda_kernel.serving.memory import MemoryObjectStore
from tests.functional.serving.conftest import STACK, Answer, Kernel, tell

SAY = """
import json, os, select, socket, struct
frames = socket.socket(fileno=os.dup(900))
def ask(n, prompt="again"):
    content = {"prompt": prompt, "password": False}
    frame = {"kind": "message", "msg_type": "input_request", "content": content, "metadata": {}}
    text = json.dumps(frame).encode()
    body = struct.pack("!II", 1, len(text)) + text
    frames.sendall((struct.pack("!I", len(body)) + body) * n)
"""


def asking(kernel: Kernel, source: str, *, allow_stdin: bool = True, **fields: Any) -> Invocation:
    content = {"code": source, "allow_stdin": allow_stdin}
    message = CellMessage(header={"msg_id": "m"}, content=content)
    return kernel.invocation(source, msg=message, **fields)


def answering(
    kernel: Kernel, store: MemoryObjectStore, invocation: Invocation, answers: dict[str, str]
) -> Answer:
    """Send an invocation; answer each of its prompts as the gateway does."""

    def act(number: int, value: str) -> Callable[[], None]:
        return lambda: tell(store, invocation, control.input_name(number), {"value": value})

    for number, (prompt, value) in enumerate(answers.items(), start=1):
        kernel.on_text[prompt] = act(number, value)
    return kernel.send(invocation)


def test_input_and_getpass_return_what_the_user_answers(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    invocation = asking(
        kernel,
        "from getpass import getpass\nprint('before', end='')\n"
        "name = input('Name? '); word = getpass('Word? ')\nprint(name, len(word))",
    )
    answer = answering(kernel, store, invocation, {"Name": "Zoë \U0001f600", "Word": "hush-hush"})
    assert answer.contents("input_request") == [
        {"prompt": "Name? ", "password": False},
        {"prompt": "Word? ", "password": True},
    ]
    sent = [f.data["msg_type"] for f in answer.frames if f.kind is FrameKind.MESSAGE]
    assert sent[:4] == ["stream", "input_request", "input_request", "stream"]
    assert answer.text("stdout") == "beforeZoë \U0001f600 9\n"
    assert (answer.outcome.status, answer.outcome.committed) == (Status.OK, True)
    assert store.keys(STACK.overflow) == []
    assert not any(b"hush-hush" in str(frame.data).encode() for frame in answer.frames)
    assert kernel.run("name").result == "'Zoë \U0001f600'"


def test_a_long_answer_arrives_whole(kernel: Kernel, store: MemoryObjectStore) -> None:
    text = "é" * control.MAX_ANSWER_CHARACTERS
    invocation = asking(kernel, "print(len(input('?')))")
    answer = answering(kernel, store, invocation, {"?": text})
    assert answer.text("stdout") == f"{len(text)}\n"


def test_the_end_of_the_file_is_an_eof_error(kernel: Kernel, store: MemoryObjectStore) -> None:
    answer = answering(kernel, store, asking(kernel, "input('?')"), {"?": "\x04"})
    assert answer.reply["ename"] == "EOFError"


def test_without_allow_stdin_nobody_is_asked(kernel: Kernel) -> None:
    for call in ("input()", "__import__('getpass').getpass()"):
        answer = kernel.send(asking(kernel, call, allow_stdin=False))
        assert answer.reply["ename"] == "StdinNotImplementedError"
        assert "does not support input requests" in answer.reply["evalue"]
        assert answer.contents("input_request") == []


def test_a_question_that_nobody_answers_is_an_error_that_commits(kernel: Kernel) -> None:
    limits = Limits(input_timeout_s=0.3)
    answer = kernel.send(asking(kernel, "x = 1\ninput('?')\nx = 2", limits=limits))
    assert answer.reply["ename"] == "TimeoutError"
    assert answer.reply["evalue"] == "nobody answered the question within 0.3 s"
    assert (answer.outcome.status, answer.outcome.committed) == (Status.ERROR, True)
    assert kernel.run("x").result == "1"


def test_the_time_of_the_cell_goes_on_while_it_asks(kernel: Kernel) -> None:
    kernel.run("'what comes first takes longer'")
    limits = Limits(timeout_s=20, commit_grace_s=17)
    answer = kernel.send(asking(kernel, "x = 1\ninput('?')", limits=limits))
    assert answer.reply["ename"] == "CellTimeout"
    assert kernel.run("x").result == "1"


def test_an_interrupt_ends_the_question_and_a_late_answer_is_not_one_to_the_next(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    invocation = asking(
        kernel,
        "try:\n    input('first')\nexcept KeyboardInterrupt as e:\n    print(e)\n"
        "print(input('two'))",
    )
    kernel.on_text["first"] = lambda: tell(
        store, invocation, control.INTERRUPT, {"order": "interrupt"}
    )

    def late() -> None:
        tell(store, invocation, "input-1", {"value": "late"})
        tell(store, invocation, "input-2", {"value": "right"})

    kernel.on_text["two"] = late
    answer = kernel.send(invocation)
    assert answer.text("stdout") == "Interrupted by user\nright\n"


def test_a_pdb_session_takes_one_command_after_the_other(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    invocation = asking(
        kernel, "def f(x):\n    y = x + 1\n    breakpoint()\n    return y\nprint('got', f(1))"
    )
    commands = iter(["p x * 100", "y = 50", "c"])
    asked: list[int] = []

    def command() -> None:
        asked.append(len(asked) + 1)
        tell(store, invocation, control.input_name(asked[-1]), {"value": next(commands)})

    kernel.on_text["(Pdb)"] = command
    answer = kernel.send(invocation)
    assert len(asked) == 3
    assert "100\n" in answer.text("stdout")
    assert answer.reply["status"] == "ok"


def test_a_connector_value_in_a_question_is_masked(
    kernel: Kernel, store: MemoryObjectStore, secrets_reader: Any
) -> None:
    from lambda_kernel.contract.scope import Scope

    kernel.scope = Scope(user="u1", agent="a1")
    secrets_reader.secrets[STACK.connector_secret("a1")] = '{"c": {"K": "very-secret-value"}}'
    code = "import os\nprint(input('is it ' + os.environ['CONN_c_K']))"
    answer = answering(kernel, store, asking(kernel, code), {"is it": "yes"})
    assert answer.contents("input_request")[0]["prompt"] == "is it [CONN_c_K]"
    assert answer.text("stdout") == "yes\n"


def test_a_flood_of_questions_is_bounded_and_does_not_hold_up_the_cell(kernel: Kernel) -> None:
    answer = kernel.send(asking(kernel, f"{SAY}\nask(5000)\nprint('done')"))
    assert len(answer.contents("input_request")) == 100
    assert "4900 malformed messages" in answer.text("stderr")
    assert answer.text("stdout") == "done\n"
    assert answer.outcome.status is Status.OK


def test_code_that_has_asked_too_often_is_told_so(kernel: Kernel) -> None:
    code = f"{SAY}\nask(100)\nget_ipython().kernel.asker._asked_count += 100\ninput('one more')"
    answer = kernel.send(asking(kernel, code))
    assert answer.reply["ename"] == "StdinNotImplementedError"
    assert "100 questions of this cell were not answered" in answer.reply["evalue"]


def test_a_cell_that_reads_no_answer_holds_nothing_up(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    code = (
        f"{SAY}\nask(1, 'now')\nimport time\nwhile not select.select([frames], [], [], 1)[0]: pass"
    )
    invocation = asking(kernel, f"{code}\nprint('there')")
    answer = answering(kernel, store, invocation, {"now": "x" * control.MAX_ANSWER_CHARACTERS})
    assert answer.text("stdout") == "there\n"


def test_a_process_that_the_cell_starts_cannot_ask(kernel: Kernel) -> None:
    code = (
        "import os\npid = os.fork()\n"
        "if not pid:\n    try:\n        input('?')\n"
        "    except BaseException as e:\n        os.write(1, type(e).__name__.encode())\n"
        "    os._exit(0)\nos.waitpid(pid, 0)"
    )
    answer = kernel.send(asking(kernel, code))
    assert answer.text("stdout") == "StdinNotImplementedError"
    assert answer.contents("input_request") == []


@pytest.mark.parametrize("prompt", ["x" * 10_000_000, "\ud800", ""])
def test_no_prompt_is_too_odd(kernel: Kernel, store: MemoryObjectStore, prompt: str) -> None:
    invocation = asking(
        kernel, f"print('go', flush=True)\nprint(input({prompt[:1]!r} * {len(prompt)}))"
    )
    tell(store, invocation, "input-1", {"value": "answer"})
    answer = kernel.send(invocation)
    (asked,) = answer.contents("input_request")
    assert len(asked["prompt"]) == min(len(prompt), 64 * 1024)
    assert "answer\n" in answer.text("stdout")
