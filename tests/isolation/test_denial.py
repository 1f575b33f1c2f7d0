"""Denial of service stays inside the cell: it is told, the container goes on, others work."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.functional.conftest import wait_until
from tests.integration.driver import a_gateway
from tests.integration.test_life_cycle import local_service

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient

CONFIG = """
[[environment]]
id = "default"
memory_mb = 512
home_mb = 16

[[environment]]
id = "process"
tier = "process"
memory_mb = 512
home_mb = 16

[[environment]]
id = "strict"
tier = "process"
lambda_strict = true
memory_mb = 512
"""
SPECS = {"namespaces": "lambda-python", "process": "lambda-process"}
CONNECTIONS_OF_A_CONTAINER = 2 * 64 + 8 + 16
"""S3 twice, as each is carried on to storage."""
OTHERS = 32
"""The gateway's own connections come and go; the cell tries 4,000."""

HOLD = """
import resource, socket, time
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for number in range(4000):
    held.append(socket.socket())
    try:
        held[-1].connect(('127.0.0.1', 9000 + number % 3))
    except OSError:
        pass
print('holding', flush=True)
time.sleep(600)
"""

UNDER_WAY = """
import array, resource, socket, time
from contextlib import suppress
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
many = array.array('i', [0] * 253)
held, count = [], 0
try:
    while count < 100_000:
        held.append(socket.socketpair())
        with suppress(BlockingIOError):
            while True:
                held[-1][0].sendmsg([b'x'], [(1, socket.SCM_RIGHTS, many)], socket.MSG_DONTWAIT)
                count += 253
except OSError as error:
    print(error.errno, count < 2 * 4096, flush=True)
time.sleep(600)
"""

SYSV = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype, libc.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(64):
    at = libc.shmat(libc.shmget(0, 2**24, 0o1600), None, 0)
    ctypes.memset(at, 1, 2**24)
    libc.shmdt(at)
"""

MEMORY = {
    "a file in /dev/shm": (
        "import os, time\n"
        "f = open('/dev/shm/f', 'wb')\n"
        "for _ in range(400): f.write(bytes(2**20))\n"
        "x = os.urandom(200 * 2**20); time.sleep(600)"
    ),
    "detached SysV segments": SYSV,
    "many processes": (
        "import os, time\n"
        "for _ in range(12):\n"
        "    if os.fork() == 0:\n"
        "        x = os.urandom(2**26); time.sleep(600)\n"
        "time.sleep(600)"
    ),
}

EXHAUSTING = {
    "processes": (
        "import os, time\n"
        "count = 0\n"
        "while count < 3000:\n"
        "    try:\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(600)\n"
        "    except OSError as error:\n"
        "        print(type(error).__name__); break\n"
        "    count += 1"
    ),
    "threads": (
        "import threading, time\n"
        "try:\n"
        "    for _ in range(3000):\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "except RuntimeError: print('BlockingIOError')"
    ),
    "processors": (
        "import threading\n"
        "def spin():\n"
        "    while True: pass\n"
        "for _ in range(8): threading.Thread(target=spin, daemon=True).start()\n"
        "print('spinning')"
    ),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("denial")
    (folder / "config.toml").write_text(CONFIG)
    with a_gateway(folder / "state", "--config", str(folder / "config.toml")) as running:
        yield running


@pytest.fixture(params=SPECS)
def cell(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[NotebookClient]:
    client = gateway.session(name=SPECS[request.param])
    client.execute("marker = 1")
    yield client
    client.close()


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_connections_that_a_cell_hoards_cost_the_service_a_few_descriptors(
    gateway: Gateway,
) -> None:
    hoarder, other = (gateway.session(name="lambda-process") for _ in range(2))
    service = local_service(gateway)
    # Both have a container by now: what is counted below is the hoarder's.
    begun = hoarder.submit("input()", allow_stdin=True)
    hoarder.asked(begun)
    other.execute("1")
    hoarder.answer("")
    hoarder.wait(begun)
    before = open_files(service)
    holding = hoarder.submit(HOLD)
    while "holding" not in holding.stdout:
        holding.messages.append(hoarder.receive(60))
    # What is over the limit is accepted first and closed next.
    wait_until(lambda: open_files(service) <= before + CONNECTIONS_OF_A_CONTAINER + OTHERS)
    assert other.execute("6 * 7").result == "42"
    assert gateway.rest("GET", "/api/kernels").ok
    gateway.rest("POST", f"/api/kernels/{hoarder.kernel_id}/restart")
    hoarder.wait(holding)
    assert hoarder.execute("print('alive')").stdout == "alive\n"
    for client in (hoarder, other):
        client.close()


@pytest.mark.parametrize("spec", SPECS.values())
def test_descriptors_that_a_cell_sends_and_nobody_takes_stop_no_other_container(
    gateway: Gateway, spec: str
) -> None:
    sender, other = (gateway.session(name=spec) for _ in range(2))
    # Both have a container by now: the count is the user's, in all of them.
    begun = sender.submit("input()", allow_stdin=True)
    sender.asked(begun)
    other.execute("1")
    sender.answer("")
    sender.wait(begun)
    sending = sender.submit(UNDER_WAY)
    while not sending.stdout:
        sending.messages.append(sender.receive(60))
    run = other.execute("6 * 7")
    gateway.rest("POST", f"/api/kernels/{sender.kernel_id}/interrupt")
    sender.wait(sending)
    assert sending.stdout == f"{errno.ETOOMANYREFS} True\n"
    assert run.result == "42", run.messages
    for client in (sender, other):
        client.close()


@pytest.mark.parametrize("name", MEMORY)
def test_memory_that_is_not_mapped_counts_too(cell: NotebookClient, name: str) -> None:
    run = cell.execute(MEMORY[name])
    assert run.reply["ename"] == "CellOutOfMemory", run.messages
    after = cell.execute("print('alive', marker)")
    assert after.stdout == "alive 1\n", after.messages


@pytest.mark.parametrize("name", EXHAUSTING)
def test_a_cell_that_exhausts_something_is_answered(cell: NotebookClient, name: str) -> None:
    run = cell.execute(EXHAUSTING[name])
    expected = "spinning\n" if name == "processors" else "BlockingIOError\n"
    assert run.stdout == expected, run.messages
    after = cell.execute("print('alive', marker)")
    assert after.stdout == "alive 1\n", after.messages


@pytest.mark.parametrize("spec", ["lambda-process", "lambda-strict"])
def test_a_cell_that_ends_the_serving_process_loses_its_container_and_no_more(
    gateway: Gateway, spec: str
) -> None:
    client = gateway.session(name=spec)
    client.execute("marker = 1")
    # No signal reaches pid 1 from inside; a limit of its processor time does.
    run = client.execute(
        "import os, resource\nmarker = 2\n"
        "resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))\n"
        "while True: os.write(1, b'x' * 65536)"
    )
    assert run.reply["ename"] == "ContainerDied", run.messages
    assert "as after cell [1]" in run.reply["evalue"]
    assert client.execute("print('alive', marker)").stdout == "alive 1\n"
    client.close()


def test_a_full_disk_is_told_and_the_next_cell_has_room(cell: NotebookClient) -> None:
    run = cell.execute(
        "from pathlib import Path\n"
        "for name in (Path.home() / 'fill', '/tmp/fill'):\n"
        "    try:\n"
        "        with open(name, 'wb') as file:\n"
        "            while True: file.write(bytes(2**24))\n"
        "    except OSError as error: print(error.errno)\n"
    )
    assert run.stdout == "28\n28\n", run.messages
    assert "[home]" in run.stderr
    assert "fill" in run.stderr
    after = cell.execute(
        "for name in ('/tmp/fill', Path.home() / 'fill'):\n"
        "    with open(name, 'wb') as file: file.write(bytes(2**26))\n"
        "print('alive', marker)"
    )
    assert after.stdout == "alive 1\n", after.messages


def test_a_cell_cannot_fill_a_file_system_with_names(gateway: Gateway) -> None:
    client = gateway.session(name=SPECS["namespaces"])
    run = client.execute(
        "try:\n"
        "    for number in range(600_000): open(f'/dev/shm/{number}', 'w').close()\n"
        "except OSError as error: print(error.errno)"
    )
    assert run.stdout == "28\n", run.messages
    assert client.execute("print('alive')").stdout == "alive\n"
    client.close()


def test_the_service_may_open_as_many_files_as_it_ever_could(gateway: Gateway) -> None:
    limits = Path(f"/proc/{local_service(gateway)}/limits").read_text()
    soft, hard = limits.split("Max open files")[1].split()[:2]
    assert soft == hard
