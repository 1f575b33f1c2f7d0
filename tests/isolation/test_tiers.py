"""What holds in every tier: credentials out of reach, the truth told, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lambda_kernel.isolation.probe import ATTACKS
from tests.isolation.tiers import DEGRADED, IMPOSSIBLE, PRELUDE, TIERS

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient

HOSTILE = {
    "asks to be traced": "libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGUSR1)",
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kills everything it can": "os.kill(-1, signal.SIGKILL)",
    "sends its serving process every signal": (
        "for number in range(1, 65):\n"
        "    try: os.kill(1, number)\n"
        "    except OSError: pass\n"
        "time.sleep(0.5)"
    ),
    "kills its group": "os.killpg(0, signal.SIGKILL)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "closes every descriptor": "os.closerange(0, 65536)",
    "leaves a fork bomb": (
        # The processes of other containers count, where these are of the same user.
        "import resource\n"
        "for limit in range(60, 1024, 60):\n"
        "    resource.setrlimit(resource.RLIMIT_NPROC, (limit, 1024))\n"
        "    try: child = os.fork()\n"
        "    except OSError: continue\n"
        "    break\n"
        "if child == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        try: os.fork()\n"
        "        except OSError: pass\n"
        "print('left', flush=True)"
    ),
    "leaves processes that fork on": (
        "for _ in range(10):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while os.fork() == 0: pass\n"
        "        os._exit(0)"
    ),
}


@pytest.fixture(scope="module", params=TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def cell(tiers: Gateway, tier: str) -> Iterator[NotebookClient]:
    client = tiers.session(name=TIERS[tier])
    yield client
    client.close()


def test_the_probe_says_what_is_real(cell: NotebookClient, tier: str) -> None:
    probe = cell.execute("1").reply_metadata["probe"]
    assert probe["tier"] == ("namespaces" if tier == "namespaces" else "process")
    assert probe["non_dumpable"] is True
    assert probe["clean_environment"] is True
    assert set(probe["refused"]) == set(ATTACKS)
    assert set(probe["refused"].values()) == {True}
    assert probe["reasons"] == {}


def test_the_parent_of_a_cell_answers_permission_error(cell: NotebookClient) -> None:
    run = cell.execute(
        f"{PRELUDE}\nprint(os.getppid() > 0)\n"
        "for name in ('environ', 'mem', 'maps'): attempt(read, f'/proc/{os.getppid()}/{name}')"
    )
    assert run.stdout == "True\n" + "EACCES " * 3, run.messages


def test_no_process_that_a_cell_sees_can_be_read(cell: NotebookClient) -> None:
    run = cell.execute(
        f"{PRELUDE}\nfor pid in (p for p in os.listdir('/proc') if p.isdigit()):\n"
        "    if int(pid) != os.getpid():\n"
        "        for name in ('environ', 'mem', 'maps', 'fd', 'task', 'auxv'):\n"
        "            path = f'/proc/{pid}/{name}'\n"
        "            try: os.listdir(path) if name == 'fd' else read(path)\n"
        "            except OSError: continue\n"
        "            print('read', path)"
    )
    assert run.reply["status"] == "ok", run.messages
    assert run.stdout == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_after_a_hostile_cell_the_next_one_works(cell: NotebookClient, name: str) -> None:
    cell.execute("marker = 1")
    begun = cell.submit(f"{PRELUDE}\nprint('begun', flush=True)\n{HOSTILE[name]}")
    if name == "stops itself":
        while not begun.stdout:
            begun.messages.append(cell.receive(60))
        cell.gateway.rest("POST", f"/api/kernels/{cell.kernel_id}/interrupt", token=cell.token)
    cell.wait(begun)
    assert begun.reply["status"] in {"ok", "error"}
    run = cell.execute("print('alive', marker)")
    assert run.stdout == "alive 1\n", (begun.messages, run.messages)
    if name == "sends its serving process every signal":
        assert begun.reply["status"] == "ok", begun.messages
    if name == "leaves a fork bomb":
        assert begun.stdout == "begun\nleft\n", begun.messages


def test_lambda_strict_refuses_what_lambda_refuses(tiers: Gateway) -> None:
    cell = tiers.session(name=TIERS["lambda-strict"])
    run = cell.execute(
        f"{PRELUDE}\n"
        "attempt(call, 'prctl', 4, 1, 0, 0, 0)\n"
        "attempt(call, 'ptrace', 0, 0, 0, 0)\n"
        "attempt(call, 'syscall', 317, 0, 0, 0)\n"
        "attempt(os.chroot, '/tmp')\n"
        "attempt(call, 'unshare', 0x10000000)\n"
        "attempt(call, 'mount', b'tmpfs', b'/tmp', b'tmpfs', ctypes.c_ulong(0), None)\n"
        "attempt(call, 'syscall', 56, 0x10000011, 0, 0, 0, 0)\n"
        "attempt(call, 'syscall', 435, 0, 0)\n"
    )
    cell.close()
    assert run.stdout == "EPERM " * 7 + "ENOSYS ", run.messages


def test_where_namespaces_cannot_be_made_no_cell_runs(tiers: Gateway) -> None:
    cell = tiers.session(name=IMPOSSIBLE)
    run = cell.execute("print('ran')")
    cell.close()
    assert run.stdout == ""
    assert run.reply["ename"] == "ProbeFailed"
    for words in ("namespaces of their own", "not permitted", 'tier = "process"', "Started: no"):
        assert words in run.reply["evalue"]


def test_only_an_explicit_setting_runs_cells_that_are_worse_isolated(tiers: Gateway) -> None:
    cell = tiers.session(name=DEGRADED)
    run = cell.execute("print('ran')")
    cell.close()
    assert run.stdout == "ran\n", run.messages
    probe = run.reply_metadata["probe"]
    assert probe["tier"] == "process"
    assert probe["reasons"].keys() == {"namespaces"} or "probe" in probe["reasons"], probe
