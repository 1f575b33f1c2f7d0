"""Kernels that other programs start by ``argv``, with no gateway running."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from jupyter_client.session import Session

from tests.integration.driver import COMMAND, a_gateway
from tests.integration.installed_kernels import (
    SLEEP,
    TIMEOUT_S,
    Place,
    end_gateway,
    install,
    program_with_a_kernel,
    wait_for_end,
)

# jupyter_client leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


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
    with program_with_a_kernel(shared_place) as (program, pid):
        assert pid is not None
        program.kill()
        wait_for_end(pid)


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
