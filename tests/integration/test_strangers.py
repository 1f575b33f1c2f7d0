"""Clients that other people wrote, unchanged."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import jupyter_kernel_client
import nbformat
from websockets.sync.client import connect

from lambda_kernel.isolation.probe import ATTACKS
from tests.integration.driver import COMMAND

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient


def test_jupyter_kernel_client_executes(gateway: Gateway) -> None:
    with jupyter_kernel_client.JupyterKernelClient(
        server_url=gateway.url, token=gateway.token
    ) as client:
        reply = client.execute("x = 20\nprint('hello')\nx + 1")
        assert reply["status"] == "ok"
        text = json.dumps(reply["outputs"])
        assert "hello" in text
        assert "21" in text


def test_messages_without_channel_and_date_work_as_smolagents_sends_them(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    url = gateway.url.replace("http", "ws", 1)
    msg_id = str(uuid.uuid4())
    request = {
        "header": {
            "msg_id": msg_id,
            "username": "anonymous",
            "session": str(uuid.uuid4()),
            "msg_type": "execute_request",
            "version": "5.0",
        },
        "parent_header": {},
        "metadata": {},
        "content": {
            "code": "print('from an agent')",
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
        },
    }
    with connect(f"{url}/api/kernels/{kernel.kernel_id}/channels?token={gateway.token}") as socket:
        socket.send(json.dumps(request))
        outputs, replied = "", False
        while not replied:
            message = json.loads(socket.recv(timeout=60))
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if message["msg_type"] == "stream":
                outputs += message["content"]["text"]
            replied = message["msg_type"] == "execute_reply"
    assert outputs == "from an agent\n"


def test_a_failing_notebook_ends_with_exit_code_one_and_is_written(
    gateway: Gateway, tmp_path: Path
) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("x = 1; print('before')"),
            nbformat.v4.new_code_cell("x / 0"),
            nbformat.v4.new_code_cell("print('never')"),
        ]
    )
    source, output = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    nbformat.write(notebook, source)
    run = subprocess.run(
        [COMMAND, "run", str(source), "--output", str(output)]
        + ["--gateway-url", gateway.url, "--token", gateway.token],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1
    assert "ZeroDivisionError" in run.stderr
    assert "x / 0" in run.stderr
    cells = json.loads(output.read_text())["cells"]
    assert cells[0]["outputs"][0]["text"] in ("before\n", ["before\n"])
    assert cells[1]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert cells[2]["outputs"] == []


def test_files_go_in_and_come_out_by_the_command_line(gateway: Gateway, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a b.txt").write_bytes(b"content")
    common = ["--gateway-url", gateway.url, "--token", gateway.token, "--workspace", "cli"]

    def files(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, "files", *arguments, *common],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert files("put", str(folder), "up").returncode == 0
    assert "up/deep/a b.txt" in files("ls", "up").stdout
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "cli"})
    assert client.execute("print(open('up/deep/a b.txt').read())").stdout == "content\n"
    client.execute("open('made.txt', 'w').write('in a cell')")
    client.close()
    assert files("get", "made.txt", str(tmp_path / "got.txt")).returncode == 0
    assert (tmp_path / "got.txt").read_text() == "in a cell"
    assert files("rm", "made.txt").returncode == 0
    missing = files("get", "made.txt", str(tmp_path / "again.txt"))
    assert missing.returncode != 0
    assert "made.txt" in missing.stderr
    assert "Traceback" not in missing.stderr
    beside = files("put", str(folder / "deep" / "a b.txt"), "up/deep")
    assert (beside.returncode, beside.stdout) == (1, "")
    assert "409: up/deep: there is a folder of this name" in beside.stderr
    below = files("put", str(folder / "deep" / "a b.txt"), "up/deep/a b.txt/x")
    assert "409: up/deep/a b.txt: is a file" in below.stderr
    (folder / "void").mkdir()
    assert files("put", str(folder), "up").returncode == 0
    assert files("ls", "up/void").stdout.split()[-1] == "up/void/"
    assert files("rm", "-r", "up/void").returncode == 0
    assert files("ls", "up/void").returncode == 1
    assert files("rm", "-r", "up").returncode == 0
    assert files("ls").stdout == ""


def test_the_commands_that_a_gateway_prints_work(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('a module of the user')")
    for line, shown in zip(gateway.banner[2:], ("42", "[1/"), strict=True):
        command = line.partition(":")[2]
        run = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, run.stderr
        assert shown in run.stdout + run.stderr
    assert (tmp_path / "executed.ipynb").exists()


def test_the_probe_says_that_every_attack_was_refused(gateway: Gateway) -> None:
    probe = subprocess.run(
        [COMMAND, "probe", "--json", "--gateway-url", gateway.url, "--token", gateway.token],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    found = json.loads(probe.stdout)
    assert found["non_dumpable"] is True
    assert set(found["refused"]) == set(ATTACKS)
    assert set(found["refused"].values()) == {True}
