"""Kernels that other programs start by ``argv``, with no gateway running."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session
from websockets.sync.client import connect

from kernel_gateway.run_file import RunFile
from tests.integration.driver import COMMAND, a_gateway

# jupyter_client leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

TIMEOUT_S = 60
SLEEP = "print('begun'); import time; time.sleep(600)"


@dataclass
class Kernel:
    """A kernel that jupyter_client started, and a client of it."""

    manager: KernelManager
    client: BlockingKernelClient

    @property
    def pid(self) -> int:
        provisioner: Any = self.manager.provisioner
        pid: int = provisioner.pid
        return pid

    def execute(self, code: str) -> Ran:
        ran = Ran()
        ran.reply = self.client.execute_interactive(
            code, timeout=TIMEOUT_S, output_hook=ran.messages.append
        )["content"]
        return ran

    def begin(self, code: str) -> str:
        """Send a cell that prints something first, and return its msg_id when it did."""
        msg_id: str = self.client.execute(code)
        while self.client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "stream":
            pass
        return msg_id

    def reply_to(self, msg_id: str) -> dict[str, Any]:
        while True:
            reply = self.client.get_shell_msg(timeout=TIMEOUT_S)
            if reply["parent_header"]["msg_id"] == msg_id:
                content: dict[str, Any] = reply["content"]
                return content


@dataclass
class Ran:
    """What a cell gave."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream")


@dataclass
class Place:
    """A state directory and a kernelspec whose kernels use its gateway."""

    folder: Path

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def environ(self) -> dict[str, str]:
        names = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
        return names | {"JUPYTER_PATH": str(self.folder / "share" / "jupyter")}

    @contextmanager
    def kernel(self, env: dict[str, str] | None = None) -> Iterator[Kernel]:
        specs = KernelSpecManager(kernel_dirs=[str(self.folder / "share/jupyter/kernels")])
        manager = KernelManager(kernel_name="lambda-python", kernel_spec_manager=specs)
        manager.start_kernel(env=os.environ | (env or {}))
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=TIMEOUT_S)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.context.destroy(linger=0)

    def run_file(self) -> RunFile:
        found = RunFile.read(self.state_dir)
        assert found is not None
        return found

    def rest(self, method: str, path: str) -> requests.Response:
        run_file = self.run_file()
        headers = {"Authorization": f"token {run_file.token}"}
        url = f"{run_file.url.rstrip('/')}/api/{path}"
        return requests.request(method, url, headers=headers, timeout=TIMEOUT_S)

    def kernel_ids(self) -> list[str]:
        return [model["id"] for model in self.rest("GET", "kernels").json()]

    def wait_until_kernel_is_dead(self, kernel_id: str, kill: Any) -> None:
        """Connect to the kernel, do what kills it, and wait for the gateway to say so."""
        run_file = self.run_file()
        url = run_file.url.rstrip("/").replace("http", "ws", 1)
        with connect(f"{url}/api/kernels/{kernel_id}/channels?token={run_file.token}") as socket:
            kill()
            state = ""
            while state != "dead":
                state = json.loads(socket.recv(timeout=TIMEOUT_S))["content"].get(
                    "execution_state", ""
                )

    def processes(self) -> list[str]:
        """Return the command lines of processes that know of this place."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in line:
                found.append(line)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place of its own; its gateway is ended in the end."""
    made = install(tmp_path)
    yield made
    end_gateway(made)


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with a gateway in the foreground."""
    made = install(tmp_path_factory.mktemp("place"))
    with a_gateway(made.state_dir):
        yield made


def install(folder: Path) -> Place:
    subprocess.run(
        [COMMAND, "install", "--prefix", str(folder), "--state-dir", str(folder / "state")],
        check=True,
        capture_output=True,
    )
    return Place(folder)


def end_gateway(place: Place) -> None:
    found = RunFile.read(place.state_dir)
    if found is not None:
        os.kill(found.pid, signal.SIGTERM)
        wait_for_end(found.pid)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    with os.fdopen(os.pidfd_open(pid), "rb", buffering=0) as process:
        readable, _, _ = select.select([process], [], [], TIMEOUT_S)
        assert readable, f"process {pid} goes on"


def test_a_kernel_needs_no_gateway_and_leaves_none_behind(place: Place) -> None:
    with place.kernel() as kernel:
        kernel.execute("x = 20")
        assert kernel.execute("print(x + 1)").stdout == "21\n"
        kernel_id = place.kernel_ids()[0]
        place.wait_until_kernel_is_dead(kernel_id, lambda: os.kill(kernel.pid, signal.SIGKILL))
        assert place.kernel_ids() == []
        gateway = place.run_file().pid
    wait_for_end(gateway)
    assert place.processes() == []
    assert not (place.state_dir / "run" / "gateway.json").exists()


def test_kernels_that_start_at_once_share_one_gateway(place: Place) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        started = pool.map(lambda _: stack.enter_context(place.kernel()), range(4))
        kernels = list(started)
        printed = pool.map(lambda k: kernels[k].execute(f"x = {k}; print(x)").stdout, range(4))
        assert list(printed) == ["0\n", "1\n", "2\n", "3\n"]
        assert len(place.kernel_ids()) == 4
        serving = [p for p in place.processes() if "--end-when-unused" in p]
        assert len(serving) == 1


def test_a_kernel_outlives_its_gateway(place: Place) -> None:
    with place.kernel() as kernel:
        kernel.execute("x = 20")
        first = place.run_file()
        msg_id = kernel.begin(SLEEP)
        os.kill(first.pid, signal.SIGKILL)
        assert kernel.reply_to(msg_id)["status"] == "error"
        assert kernel.execute("print(x + 1)").stdout == "21\n"
        assert place.run_file().pid != first.pid


@pytest.mark.parametrize("how", ["message", "signal"])
def test_a_cell_is_interrupted(shared_place: Place, how: str) -> None:
    with shared_place.kernel() as kernel:
        msg_id = kernel.begin(SLEEP)
        if how == "message":
            kernel.manager.interrupt_kernel()
        else:
            os.kill(kernel.pid, signal.SIGINT)
        assert kernel.reply_to(msg_id)["ename"] == "KeyboardInterrupt"


def test_a_restart_forgets_variables_and_a_shutdown_the_kernel(shared_place: Place) -> None:
    before = set(shared_place.kernel_ids())
    with shared_place.kernel() as kernel:
        kernel.execute("x = 20")
        first = set(shared_place.kernel_ids()) - before
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=TIMEOUT_S)
        assert kernel.execute("x").reply["ename"] == "NameError"
        second = set(shared_place.kernel_ids()) - before
        assert not first & second
        kernel.manager.shutdown_kernel()
        assert not second & set(shared_place.kernel_ids())


def test_a_kernel_ends_with_the_program_that_started_it(shared_place: Place) -> None:
    code = "from jupyter_client.manager import start_new_kernel as start; import os, sys; "
    code += "m, c = start(kernel_name='lambda-python'); print(m.provisioner.pid, flush=True); "
    code += "sys.stdin.read(); os._exit(0)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=shared_place.environ,
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.kill()
        wait_for_end(pid)


def test_the_argv_alone_is_a_kernel_as_vs_code_starts_it(
    shared_place: Place, tmp_path: Path
) -> None:
    spec = json.loads(
        (shared_place.folder / "share/jupyter/kernels/lambda-python/kernel.json").read_text()
    )
    path, _facts = write_connection_file(str(tmp_path / "connection.json"), key=b"a key")
    argv = [path if part == "{connection_file}" else part for part in spec["argv"]]
    environ = {k: v for k, v in shared_place.environ.items() if k != "JPY_PARENT_PID"}
    (tmp_path / "zmq.py").write_text("raise SystemExit('the notebook folder is not searched')")
    with ended(subprocess.Popen(argv, env=environ, cwd=tmp_path)) as process:
        client = BlockingKernelClient(connection_file=path)
        client.load_connection_file()
        # A client without a manager takes for dead what has no sockets yet.
        heart = client.connect_hb()
        heart.rcvtimeo = TIMEOUT_S * 1000
        heart.send(b"beat")
        assert heart.recv() == b"beat"
        heart.close()
        client.start_channels()
        client.wait_for_ready(timeout=TIMEOUT_S)
        client.execute_interactive("x = 1", timeout=TIMEOUT_S)
        assert (
            client.execute_interactive("1 / 0", timeout=TIMEOUT_S)["content"]["status"] == "error"
        )
        client.stop_channels()
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    client.context.destroy(linger=0)


def test_a_message_with_another_key_runs_nothing(shared_place: Place) -> None:
    with shared_place.kernel() as kernel:
        stranger = Session(key=b"guessed", signature_scheme="hmac-sha256")
        socket = kernel.manager.connect_shell()
        content = {"code": "print('stranger')", "silent": False}
        stranger.send(socket, stranger.msg("execute_request", content))
        stranger.key = b""
        stranger.send(socket, stranger.msg("execute_request", content))
        socket.send_multipart([b"", b"\xff" * 100])
        # What comes after it on the same socket is answered, and nothing before.
        kernel.client.session.send(socket, "kernel_info_request", {})
        _, reply = kernel.client.session.recv(socket, mode=0)
        socket.close()
        assert reply["msg_type"] == "kernel_info_reply"
        assert kernel.execute("print('own')").reply["execution_count"] == 1


def test_the_environment_chooses_the_workspace(shared_place: Place) -> None:
    workspace = f"w{uuid.uuid4().hex[:12]}"
    with shared_place.kernel({"LAMBDA_KERNEL_WORKSPACE": workspace}) as kernel:
        kernel.execute("open('made.txt', 'w').write('here')")
    listed = subprocess.run(
        [COMMAND, "files", "ls", "--workspace", workspace]
        + ["--state-dir", str(shared_place.state_dir)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "made.txt" in listed.stdout
