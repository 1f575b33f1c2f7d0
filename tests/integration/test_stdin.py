"""A cell asks its user: input, passwords and debuggers, over websocket, Lambda and S3."""

from __future__ import annotations

import hashlib
import json
import subprocess
import uuid
from pathlib import Path

import nbformat
import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.driver import COMMAND, Gateway, NotebookClient, a_gateway


def test_input_reaches_the_client_and_its_answer_the_cell(kernel: NotebookClient) -> None:
    run = kernel.execute(
        "name = input('Who? ')\nprint('Hello', name)\nprint(input())",
        answers=["Zoë \U0001f600", ""],
    )
    assert run.of("input_request") == [
        {"prompt": "Who? ", "password": False},
        {"prompt": "", "password": False},
    ]
    asked = [m for m in run.messages if m["header"]["msg_type"] == "input_request"]
    assert {m["channel"] for m in asked} == {"stdin"}
    assert run.stdout == "Hello Zoë \U0001f600\n\n"
    assert kernel.execute("name").result == "'Zoë \U0001f600'"


def test_a_password_is_in_no_message_log_or_stored_object(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    secret = f"pw-{uuid.uuid4().hex}"
    run = kernel.execute(
        "import getpass, hashlib\nword = getpass.getpass('Password: ')\n"
        "print(hashlib.sha256(word.encode()).hexdigest()[:8]); del word",
        answers=[secret],
    )
    assert run.of("input_request") == [{"prompt": "Password: ", "password": True}]
    assert run.reply["status"] == "ok"
    kernel.request("history_request", {"hist_access_type": "tail", "n": 10, "output": True})
    assert secret not in json.dumps(run.messages)
    files = [path for path in gateway.state_dir.rglob("*") if path.is_file()]
    files += gateway.state_dir.parent.glob("*.log")
    found = [path for path in files if secret.encode() in path.read_bytes()]
    assert found == []
    with gateway.owners_client("s3") as s3:
        listed = s3.list_objects_v2(Bucket="lkg-overflow", Prefix="control/")
        request_id = run.reply_metadata["request_id"]
        assert not [o for o in listed.get("Contents", ()) if request_id in o["Key"]]


SEARCH = """
import ctypes, hashlib, os, re
digest, found, seen_bytes = {digest!r}, [], 0
def look(place, text):
    global seen_bytes
    seen_bytes += len(text)
    for match in re.finditer(rb"pw-[0-9a-f]{{32}}", text):
        if hashlib.sha256(match[0]).hexdigest() == digest: found.append(place)
for line in open("/proc/self/maps").read().splitlines():
    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
    if line.split()[1][0] == "r" and "[v" not in line and " /" not in line:
        look(line, ctypes.string_at(begin, end - begin))
for number in os.listdir("/proc/self/fd"):
    try: look(number, os.pread(int(number), 1 << 24, 0))
    except OSError: pass
for top in ("/tmp", "/dev/shm", os.environ["HOME"]):
    for folder, _, names in os.walk(top):
        for name in names:
            try: look(name, open(os.path.join(folder, name), "rb").read(1 << 24))
            except OSError: pass
print(seen_bytes > 1 << 20, found)
"""


def test_a_password_is_nowhere_in_the_container_for_a_later_cell(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    secret = f"pw-{uuid.uuid4().hex}"
    search = SEARCH.format(digest=hashlib.sha256(secret.encode()).hexdigest())
    asks = "import getpass\nword = getpass.getpass()\n"
    # What is looked for is found while it is there.
    here = kernel.execute(f"{asks}{search}", answers=[secret])
    assert here.stdout.startswith("True ['"), here.messages
    assert kernel.execute("%reset -f").reply["status"] == "ok"

    for client in (kernel, gateway.session()):
        later = client.execute(search)
        assert later.stdout == "True []\n", later.messages


SESSIONS = {
    "breakpoint": (
        "def f(x):\n    y = x + 1\n    breakpoint()\n    return y\nprint('got', f(1))",
        ["p x * 111", "y = 5", "c"],
        ["111\n", "got 5\n"],
    ),
    "set_trace": (
        "import pdb\ndef f(x):\n    y = x + 1\n    pdb.set_trace()\n    y *= 7\n    return y\n"
        "print('got', f(1))",
        ["n", "p y * 3", "c"],
        ["42\n", "got 14\n"],
    ),
    "debug": (
        "try:\n    z = 111; 1 / 0\nexcept ZeroDivisionError:\n"
        "    get_ipython().showtraceback()\n%debug\nprint('got', 3)",
        ["p z * 3", "q"],
        ["333\n", "got 3\n"],
    ),
    "pdb on": (
        "%pdb on\nz = 111\ntry:\n    1 / 0\nfinally:\n    z += 1",
        ["p z * 2", "q"],
        ["224\n"],
    ),
}


@pytest.mark.parametrize(("code", "commands", "said"), SESSIONS.values(), ids=SESSIONS.keys())
def test_a_debugger_takes_one_command_after_the_other(
    kernel: NotebookClient, code: str, commands: list[str], said: list[str]
) -> None:
    run = kernel.execute(code, answers=commands)
    prompts = {content["prompt"] for content in run.of("input_request")}
    assert prompts in ({"(Pdb) "}, {"ipdb> "})
    assert [text for text in said if text not in run.stdout] == []
    assert kernel.execute("1 + 1").result == "2"


@pytest.mark.parametrize("call", ["input()", "__import__('getpass').getpass()", "breakpoint()"])
def test_a_client_that_cannot_be_asked_gets_stdin_not_implemented_error(
    kernel: NotebookClient, call: str
) -> None:
    run = kernel.execute(call, allow_stdin=False)
    assert run.reply["ename"] == "StdinNotImplementedError"
    assert run.of("input_request") == []


def test_a_client_that_reconnects_is_asked_again(gateway: Gateway, kernel: NotebookClient) -> None:
    execution = kernel.submit("print('got', input('Who? '))", allow_stdin=True)
    question = kernel.asked(execution)
    other = NotebookClient(gateway, kernel.kernel_id, gateway.token)
    # The same client session, though its old connection still stands.
    back = NotebookClient(gateway, kernel.kernel_id, gateway.token, kernel.session_id)
    assert back.asked(execution)["header"]["msg_id"] == question["header"]["msg_id"]
    kernel.close()
    other.answer("a stranger to this question")
    back.answer("me again")
    back.wait(execution)
    assert execution.stdout == "got me again\n"
    other.close()
    back.close()


def test_another_client_is_asked_where_the_one_that_was_asked_is_gone(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    execution = kernel.submit("print('got', input('Who? '))", allow_stdin=True)
    kernel.asked(execution)
    kernel.close()
    with pytest.raises(ConnectionClosed):
        kernel.receive(5)
    other = NotebookClient(gateway, kernel.kernel_id, gateway.token)
    other.asked(execution)
    other.answer("another")
    # The reply is for the session that asked for the cell; everybody sees that it is over.
    while {"execution_state": "idle"} not in execution.of("status"):
        execution.messages.append(other.receive(60))
    assert execution.stdout == "got another\n"
    other.close()


def test_an_answer_that_nobody_asked_for_changes_nothing(kernel: NotebookClient) -> None:
    kernel.answer("early")
    run = kernel.execute("x = input('?'); x", answers=["right"])
    kernel.answer("late")
    assert run.result == "'right'"
    assert kernel.execute("x").result == "'right'"


def test_a_question_that_nobody_answers_ends_in_an_error_that_says_so(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[environment]]\nid = "hasty"\ninput_timeout_s = 1\n')
    with a_gateway(tmp_path / "state", "--config", str(config)) as running:
        client = running.session(name="lambda-hasty")
        run = client.execute("x = 1\ninput('?')\nx = 2", allow_stdin=True)
        assert run.error == "TimeoutError: nobody answered the question within 1 s"
        assert client.execute("x").result == "1"
        client.close()


def test_a_notebook_that_is_run_by_command_is_not_asked(gateway: Gateway, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("input('?')")])
    path = tmp_path / "asks.ipynb"
    nbformat.write(notebook, path)
    state = ["--state-dir", str(gateway.state_dir)]
    done = subprocess.run(
        [COMMAND, "run", str(path), *state], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "StdinNotImplementedError" in done.stderr + done.stdout


def test_a_cell_reaches_neither_the_objects_nor_the_key_of_its_control_channel(
    kernel: NotebookClient,
) -> None:
    run = kernel.execute(
        "import os\nprint(sorted(k for k in os.environ if 'KEY' in k or 'TOKEN' in k))\n"
        "import boto3\ns3 = boto3.client('s3', region_name='us-east-1')\n"
        "place = f\"control/{os.environ['LKG_REQUEST_ID']}/input-1\"\n"
        "s3.get_object(Bucket='lkg-overflow', Key=place)"
    )
    assert run.stdout == "[]\n"
    assert run.reply["ename"] in ("NoCredentialsError", "EndpointConnectionError")
