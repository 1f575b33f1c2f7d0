"""A place with an installed kernelspec, and kernels that jupyter_client starts by it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from websockets.sync.client import connect

from kernel_gateway.run_file import RunFile
from tests.integration.driver import COMMAND

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


def install(folder: Path, *options: str) -> Place:
    """Return a place with a kernelspec, made with these options of ``kernel-gateway install``."""
    where = ["--prefix", str(folder), "--state-dir", str(folder / "state")]
    subprocess.run([COMMAND, "install", *where, *options], check=True, capture_output=True)
    return Place(folder)


def end_gateway(place: Place) -> None:
    """End the gateway of a place, if one runs there."""
    found = RunFile.read(place.state_dir)
    if found is not None:
        os.kill(found.pid, signal.SIGTERM)
        wait_for_end(found.pid)


@contextmanager
def program_with_a_kernel(place: Place) -> Iterator[tuple[subprocess.Popen[str], int | None]]:
    """Yield another program that has started a kernel, and the kernel's process if it has one."""
    code = "from jupyter_client.manager import start_new_kernel as start; import os, sys; "
    code += "m, c = start(kernel_name='lambda-python'); "
    code += "print(getattr(m.provisioner, 'pid', None), flush=True); sys.stdin.read(); os._exit(0)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=place.environ,
    ) as program:
        assert program.stdout is not None
        pid = program.stdout.readline().strip()
        yield program, int(pid) if pid.isdecimal() else None


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that is killed in the end."""
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
