"""The kernelspec's ``argv`` as VS Code uses it: its own process, connection file and sockets.

Source: vscode-jupyter, ``kernels/raw``: its connection file, one routing id for all sockets that is
not the session's, pipes for stdio, an interrupt_request on shell, a stdin that stays open, and a
SIGTERM to the kernel's process and all below it in the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

from tests.integration.driver import a_gateway
from tests.integration.installed_kernels import (
    SLEEP,
    TIMEOUT_S,
    Place,
    end_gateway,
    ended,
    install,
    wait_for_end,
)
from tests.integration.processes import descendants

KEY = b"a key of the editor's"
NO_STDIN: dict[str, Any] = {"silent": False, "allow_stdin": False}


class Editor:
    """A client that has nothing but the connection file."""

    def __init__(self, connection_file: Path) -> None:
        facts = json.loads(connection_file.read_text())
        between = ":" if facts["transport"] == "tcp" else "-"
        self.context = zmq.Context()
        self.session = Session(key=KEY, session=uuid.uuid4().hex)
        routing_id = uuid.uuid4().hex.encode()
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        for name in ("shell", "control", "stdin", "iopub", "hb"):
            kind = {"iopub": zmq.SUB, "hb": zmq.REQ}.get(name, zmq.DEALER)
            socket = self.sockets[name] = self.context.socket(kind)
            socket.linger = 0
            socket.rcvtimeo = TIMEOUT_S * 1000
            if kind == zmq.DEALER:
                socket.identity = routing_id
            socket.connect(f"{facts['transport']}://{facts['ip']}{between}{facts[name + '_port']}")
        self.sockets["iopub"].subscribe(b"")

    def send(self, msg_type: str, channel: str = "shell", **content: Any) -> str:
        message = self.session.send(self.sockets[channel], msg_type, content)
        assert message is not None
        msg_id: str = message["header"]["msg_id"]
        return msg_id

    def receive(self, channel: str) -> dict[str, Any]:
        _, parts = self.session.feed_identities(self.sockets[channel].recv_multipart())
        message: dict[str, Any] = self.session.deserialize(parts)
        return message

    def reply_to(self, msg_id: str, channel: str = "shell") -> dict[str, Any]:
        while True:
            reply = self.receive(channel)
            if reply["parent_header"]["msg_id"] == msg_id:
                content: dict[str, Any] = reply["content"]
                return content

    def ask(self, msg_type: str, channel: str = "shell", **content: Any) -> dict[str, Any]:
        return self.reply_to(self.send(msg_type, channel, **content), channel)

    def connect(self) -> None:
        """Ask until an answer's status is seen on iopub too, as a client does at the start."""
        while not self.sockets["iopub"].poll(100):
            self.ask("kernel_info_request")

    def begin(self, code: str, **options: Any) -> str:
        """Send a cell that prints something first, and return its msg_id when it did."""
        msg_id = self.send("execute_request", code=code, **(NO_STDIN | options))
        while True:
            message = self.receive("iopub")
            is_ours = message["parent_header"].get("msg_id") == msg_id
            if is_ours and message["msg_type"] == "stream":
                return msg_id

    def printed(self, code: str) -> str:
        """Run a cell, and return what it printed."""
        msg_id = self.send("execute_request", code=code, **NO_STDIN)
        text = ""
        while True:
            message = self.receive("iopub")
            if message["parent_header"].get("msg_id") == msg_id:
                text += str(message["content"].get("text", ""))
                if message["content"].get("execution_state") == "idle":
                    return text

    def close(self) -> None:
        self.context.destroy(linger=0)


@dataclass
class Launched:
    """A kernel's process, and how to connect to it."""

    process: subprocess.Popen[bytes]
    connection_file: Path

    @contextmanager
    def editor(self) -> Iterator[Editor]:
        with closing(Editor(self.connection_file)) as editor:
            editor.connect()
            yield editor

    def dispose(self) -> None:
        """End it as VS Code does: all below it first."""
        for pid in descendants(self.process.pid):
            os.kill(pid, signal.SIGTERM)
        self.process.terminate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with a gateway in the foreground."""
    made = install(tmp_path_factory.mktemp("place"))
    with a_gateway(made.state_dir):
        yield made


def argv_of(place: Place, connection_file: Path) -> list[str]:
    path = place.folder / "share/jupyter/kernels/lambda-python/kernel.json"
    argv: list[str] = json.loads(path.read_text())["argv"]
    return [part.replace("{connection_file}", str(connection_file)) for part in argv]


def environment_of(place: Place, folder: Path) -> dict[str, str]:
    """Return what VS Code gives a kernel of a folder whose ``.env`` names a PYTHONPATH."""
    environ = {k: v for k, v in place.environ.items() if k != "JPY_PARENT_PID"}
    paths = [str(folder / "src"), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


@contextmanager
def launched(place: Place, folder: Path, **connection: Any) -> Iterator[Launched]:
    """Yield a kernel's process that was started as VS Code starts it.

    Args:
        place: whose kernelspec.
        folder: the editor's, where the process runs.
        connection: more facts of the connection file.
    """
    name = str(folder / f"kernel-v2-{uuid.uuid4().hex}.json")
    path, _facts = write_connection_file(name, key=KEY, **connection)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    argv = argv_of(place, Path(path))
    started = subprocess.Popen(argv, cwd=folder, env=environment_of(place, folder), **pipes)  # type: ignore[call-overload]
    with started, ended(started):
        yield Launched(started, Path(path))


def test_what_is_asked_before_it_listens_is_answered_and_its_folder_is_not_imported(
    place: Place, tmp_path: Path
) -> None:
    for name in ("zmq.py", "random.py"):
        (tmp_path / name).write_text("raise SystemExit('the folder of the notebook is searched')")
    with launched(place, tmp_path) as kernel, closing(Editor(kernel.connection_file)) as editor:
        asked = [editor.send("kernel_info_request") for _ in range(5)]
        replies = [editor.reply_to(msg_id) for msg_id in asked]
        assert {reply["status"] for reply in replies} == {"ok"}
        assert {reply["language_info"]["name"] for reply in replies} == {"python"}
        editor.connect()
        assert editor.printed("print(6 * 7)") == "42\n"
        kernel.process.terminate()
        said, problems = kernel.process.communicate(timeout=TIMEOUT_S)
        assert (kernel.process.returncode, said, problems) == (0, b"", b"")


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_its_heart_beats_while_a_cell_runs(place: Place, tmp_path: Path, transport: str) -> None:
    where = {"transport": "ipc", "ip": str(tmp_path / "socket")} if transport == "ipc" else {}
    with launched(place, tmp_path, **where) as kernel, kernel.editor() as editor:
        msg_id = editor.begin(SLEEP)
        editor.sockets["hb"].send(b"beat")
        assert editor.sockets["hb"].recv() == b"beat"
        assert editor.ask("interrupt_request", "control")["status"] == "ok"
        assert editor.reply_to(msg_id)["ename"] == "KeyboardInterrupt"


def by_message_on_shell(kernel: Launched, editor: Editor) -> None:
    editor.send("interrupt_request")


def by_message_on_control(kernel: Launched, editor: Editor) -> None:
    editor.send("interrupt_request", "control")


def by_signal(kernel: Launched, editor: Editor) -> None:
    kernel.process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("interrupt", [by_message_on_shell, by_message_on_control, by_signal])
def test_an_interrupt_ends_the_cell_only(
    place: Place, tmp_path: Path, interrupt: Callable[[Launched, Editor], None]
) -> None:
    with launched(place, tmp_path) as kernel, kernel.editor() as editor:
        editor.printed("kept = 7")
        msg_id = editor.begin(SLEEP)
        interrupt(kernel, editor)
        assert editor.reply_to(msg_id)["ename"] == "KeyboardInterrupt"
        assert editor.printed("print(kept)") == "7\n"


def test_two_editors_see_each_others_cells_and_get_their_own_replies(
    place: Place, tmp_path: Path
) -> None:
    with (
        launched(place, tmp_path) as kernel,
        kernel.editor() as one,
        kernel.editor() as two,
    ):
        first = one.send("execute_request", code="x = 20; print('of one')", **NO_STDIN)
        assert one.reply_to(first)["status"] == "ok"
        second = two.send("execute_request", code="print('of two', x)", **NO_STDIN)
        assert two.reply_to(second)["status"] == "ok"
        for editor in (one, two):
            told = iter(lambda: editor.receive("iopub"), None)  # noqa: B023
            texts = (m["content"]["text"] for m in told if m["msg_type"] == "stream")
            assert [next(texts), next(texts)] == ["of one\n", "of two 20\n"]
        assert not one.sockets["shell"].poll(50)
        assert not two.sockets["shell"].poll(50)


def test_a_question_comes_to_the_editor_that_asked(place: Place, tmp_path: Path) -> None:
    with (
        launched(place, tmp_path) as kernel,
        kernel.editor() as one,
        kernel.editor() as two,
    ):
        msg_id = one.send("execute_request", code="y = input('name? ')", allow_stdin=True)
        assert one.receive("stdin")["content"]["prompt"] == "name? "
        one.send("input_reply", "stdin", value="Ada")
        assert one.reply_to(msg_id)["status"] == "ok"
        assert not two.sockets["stdin"].poll(50)
        assert two.printed("print(y)") == "Ada\n"


def test_a_shutdown_is_answered_and_the_process_ends(place: Place, tmp_path: Path) -> None:
    before = set(place.kernel_ids())
    with launched(place, tmp_path) as kernel, kernel.editor() as editor:
        (kernel_id,) = set(place.kernel_ids()) - before
        reply = editor.ask("shutdown_request", "control", restart=False)
        assert reply == {"status": "ok", "restart": False}
        assert kernel.process.wait(TIMEOUT_S) == 0
        assert kernel_id not in place.kernel_ids()


def test_the_end_of_one_kernel_leaves_the_others_and_their_gateway_alone(tmp_path: Path) -> None:
    mine = install(tmp_path)
    with launched(mine, tmp_path) as first, first.editor():
        gateway = mine.run_file().pid
        with launched(mine, tmp_path) as second, second.editor() as editor:
            msg_id = editor.send(
                "execute_request", code="input(); print('went on')", allow_stdin=True
            )
            editor.receive("stdin")
            first.dispose()
            assert first.process.wait(TIMEOUT_S) == 0
            assert mine.run_file().pid == gateway
            editor.send("input_reply", "stdin", value="")
            assert editor.reply_to(msg_id)["status"] == "ok"
    end_gateway(mine)


def test_an_editor_that_is_killed_leaves_no_process_and_no_kernel(
    place: Place, tmp_path: Path
) -> None:
    path, _facts = write_connection_file(str(tmp_path / "kernel-v2.json"), key=KEY)
    code = "import subprocess, sys; pipe = subprocess.PIPE; "
    code += "kernel = subprocess.Popen(sys.argv[1:], stdin=pipe, stdout=pipe, stderr=pipe); "
    code += "print(kernel.pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *argv_of(place, Path(path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment_of(place, tmp_path),
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        before = place.kernel_ids()
        with closing(Editor(Path(path))) as editor:
            editor.connect()
            editor.begin(SLEEP)
            (kernel_id,) = set(place.kernel_ids()) - set(before)
            place.wait_until_kernel_is_dead(kernel_id, program.kill)
    wait_for_end(pid)
