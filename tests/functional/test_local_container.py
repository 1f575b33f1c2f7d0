"""Attacks from inside a container, on the host that runs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.local.bubblewrap import (
    SYNTHETIC_FILES,
    ContainerSpec,
    container_argv,
    find_bwrap,
    start_problem,
    top_level,
)
from kernel_gateway.local.interpreter import Interpreter
from tests.functional.test_local_lambda import run_inside

HOST_WRITES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/etc/passwd",
    "/usr/bin/planted",
    "/planted",
    "/dev/planted",
    "/var/runtime/bootstrap.py",
    "/var/runtime/planted",
)

TRY_WRITES = f"""
import os
result = []
for path in {HOST_WRITES!r}:
    create = 0 if path.startswith(("/proc", "/sys")) else os.O_CREAT
    try:
        os.close(os.open(path, os.O_WRONLY | create))
        result.append(path)
    except OSError:
        pass
"""

SEARCH = """
import os, stat, sys
result = []
known = ("/proc", "/usr", sys.prefix)
for folder, folders, files in os.walk("/", onerror=lambda error: None):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in known]
    for path in (os.path.join(folder, name) for name in files):
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as file:
                    if CANARY in file.read():
                        result.append(path)
        except OSError:
            pass
"""

FACTS = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
result = {
    "ids": [*os.getresuid(), *os.getresgid()],
    "groups": os.getgroups(),
    "capabilities": [status[name].strip() for name in ("CapPrm", "CapEff", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()),
    "host_name": os.uname().nodename,
    "fds": [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")],
    "root": sorted(os.listdir("/")),
    "umask": os.umask(0o022),
    "cwd": os.getcwd(),
}
try:
    os.setuid(0)
    result["root_again"] = True
except OSError:
    result["root_again"] = False
"""


@pytest.fixture
def host_secret(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> str:
    """A canary in the state directory and in a home's .aws folder."""
    canary = "canary-" + os.urandom(8).hex()
    (state_dir / "canary").write_text(canary)
    aws = state_dir.parent / ".aws"
    aws.mkdir(exist_ok=True)
    (aws / "credentials").write_text(canary)
    return canary


def test_no_canary_of_the_host_is_seen(lambda_client: Any, host_secret: str) -> None:
    # Written in two parts, so that the attack does not find its own source.
    head, tail = host_secret[:9], host_secret[9:]
    code = f"CANARY = ({head!r} + {tail!r}).encode()\n" + SEARCH

    assert run_inside(lambda_client, code) == []


def test_the_state_directory_and_homes_do_not_exist(lambda_client: Any, state_dir: Path) -> None:
    paths = [str(state_dir), str(Path.home() / ".aws"), "/home", "/run", "/etc/shadow", "/var/log"]
    code = f"import os; result = [path for path in {paths!r} if os.path.exists(path)]"

    assert run_inside(lambda_client, code) == []


def test_nothing_of_the_host_can_be_written(lambda_client: Any) -> None:
    assert run_inside(lambda_client, TRY_WRITES) == []


def test_the_process_is_lambdas_user_without_any_right(lambda_client: Any) -> None:
    facts = run_inside(lambda_client, FACTS)

    assert facts["ids"] == [993, 993, 993, 990, 990, 990]
    assert facts["groups"] in ([], [65534], [990])
    assert set(facts["capabilities"]) == {"0000000000000000"}
    assert facts["no_new_privileges"] == "1"
    assert facts["root_again"] is False
    assert facts["pids"] == [1]
    assert facts["host_name"] == "lambda"
    assert facts["cwd"] == "/opt"
    assert facts["umask"] == 0o022


def test_no_descriptor_of_the_host_is_inherited(lambda_client: Any) -> None:
    facts = run_inside(lambda_client, FACTS)

    kinds = [fd for fd in facts["fds"] if not fd.startswith(("pipe:", "/dev/null", "/proc/"))]
    assert len(kinds) <= 1, "the runtime's own connection and nothing else"
    assert all(kind.startswith("socket:") for kind in kinds)


def test_the_environment_is_lambdas_and_nothing_else(lambda_client: Any) -> None:
    environment = run_inside(lambda_client, "import os; result = dict(os.environ)")

    allowed = ("AWS_", "LKG_", "LAMBDA_TASK_ROOT", "_HANDLER", "TZ", "LANG", "PATH", "LC_CTYPE")
    assert [name for name in environment if not name.startswith(allowed)] == []
    assert environment["AWS_ACCESS_KEY_ID"].startswith("ASIA")
    assert set(environment["PATH"].split(":")) == {"/usr/local/bin", "/usr/bin", "/bin"}


def test_the_parents_environment_and_arguments_hold_no_secret(lambda_client: Any) -> None:
    code = """
result = [open(f"/proc/1/{name}", "rb").read().decode("latin-1") for name in ("cmdline",)]
"""
    (arguments,) = run_inside(lambda_client, code)

    assert arguments.rstrip("\0").split("\0")[1:] == ["/var/runtime/bootstrap.py"]


def test_temporary_files_fill_their_own_space_only(lambda_client: Any) -> None:
    code = """
import os
result = {path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
          for path in ("/tmp", "/dev/shm", "/opt")}
"""
    mib = 1024 * 1024
    assert run_inside(lambda_client, code) == {
        "/tmp": 2048 * mib,
        "/dev/shm": 2048 * mib,
        "/opt": 256 * mib,
    }


def test_packages_of_the_gateways_interpreter_are_there(lambda_client: Any) -> None:
    code = "import numpy, boto3, sys; result = [sys.prefix == sys.base_prefix, sys.flags.isolated]"

    assert run_inside(lambda_client, code) == [True, 0]


@pytest.fixture
def readable_bwrap() -> str:
    """Bubblewrap where an ordinary user may run it."""
    return find_bwrap()


def run_as_ordinary_user(code: str, bwrap: str, folder: Path) -> Any:
    """Return ``result`` of ``code``, run in a container that uid 65534 has made.

    The very command line, shim and protocol; only the host's user is another one. The interpreter
    is the system's, since root's own may lie where nobody else may read.
    """
    bootstrap = folder / "bootstrap.py"
    bootstrap.write_text(f"import json\n{code}\nprint(json.dumps(result))\n")
    shim = folder / "container_init.py"
    source = Path(sys.modules[container_argv.__module__].__file__ or "")
    shim.write_text(source.with_name("container_init.py").read_text())
    links, folders = top_level()
    spec = ContainerSpec(
        bwrap=bwrap,
        as_root=False,
        interpreter=Interpreter(executable="/usr/bin/python3", prefix="/usr"),
        bootstrap=str(bootstrap),
        shim=str(shim),
        links=links,
        folders=folders,
        ephemeral_bytes=1 << 28,
        shared_memory_bytes=1 << 26,
    )
    ours, theirs = socket.socketpair()
    info_read, info_write = os.pipe()
    files = {}
    for path, content in SYNTHETIC_FILES.items():
        files[path] = os.memfd_create("file")
        os.write(files[path], content.encode())
        os.lseek(files[path], 0, os.SEEK_SET)
    given = [theirs.fileno(), info_write, *files.values()]
    argv = container_argv(spec, control_fd=theirs.fileno(), info_fd=info_write, file_fds=files)
    become: dict[str, Any] = {}
    if os.geteuid() == 0:
        become = {"user": 65534, "group": 65534, "extra_groups": []}
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=given, env={}, **become
    )
    for fd in given[1:]:
        os.close(fd)
    theirs.close()
    with ours, process:
        _, fds, _, _ = socket.recv_fds(ours, 4096, 3)
        ours.sendall(b'{"env": {}}\n')
        output, errors = process.communicate(timeout=30)
    for fd in [*fds, info_read]:
        os.close(fd)
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


@pytest.fixture
def public_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lkg-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_an_ordinary_user_gets_the_same_container(readable_bwrap: str, public_folder: Path) -> None:
    facts = run_as_ordinary_user(FACTS, readable_bwrap, public_folder)

    assert facts["ids"] == [993, 993, 993, 990, 990, 990]
    assert set(facts["capabilities"]) == {"0000000000000000"}
    assert facts["root_again"] is False
    assert facts["pids"] == [1]


def test_an_ordinary_users_container_cannot_write_to_the_host(
    readable_bwrap: str, public_folder: Path
) -> None:
    assert run_as_ordinary_user(TRY_WRITES, readable_bwrap, public_folder) == []


@pytest.mark.parametrize(
    "said",
    [
        "bwrap: setting up uid map: Permission denied",
        "bwrap: No permissions to create a new namespace, likely because the kernel does not "
        "allow non-privileged user namespaces.",
        "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
    ],
)
def test_where_namespaces_are_refused_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def uid(number: int) -> Callable[[], int]:
        return lambda: number

    monkeypatch.setattr(os, "geteuid", uid(1000))
    text = start_problem(said)

    assert said in text
    assert "kernel.apparmor_restrict_unprivileged_userns" in text
    assert "user.max_user_namespaces" in text
