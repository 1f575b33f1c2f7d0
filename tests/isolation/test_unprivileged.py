"""A cell's namespaces in a container that an ordinary user of the host has made."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

import lambda_kernel
from kernel_gateway.local.bubblewrap import find_bwrap
from lambda_kernel.isolation import code
from tests.functional.test_local_container import run_as_ordinary_user

# Stands for the zygote: the real code makes the namespaces, and the child tells what it sees.
ASK = """
import base64, json, os, sys
with open("/tmp/packages.zip", "wb") as file:
    file.write(base64.b64decode(PACKAGES))
sys.path[:0] = ["/tmp/packages.zip"]
from lambda_kernel.child.confined import fork_confined
from lambda_kernel.isolation import linux, namespaces
from lambda_kernel.isolation.namespaces import Room

linux.prctl(linux.PR_SET_DUMPABLE, 0)
linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
for folder in ("/tmp/work", "/tmp/home", "/tmp/other"):
    os.mkdir(folder)
outside = namespaces.identities()
reader, writer = os.pipe()

def attempt(path, flags=os.O_RDONLY):
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return type(error).__name__
    return "succeeded"

def become():
    namespaces.let_in(("/tmp/work", "/tmp/home"))
    linux.drop_capabilities()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    facts = {
        "shared": [n for n in namespaces.NAMES if namespaces.identities()[n] == outside[n]],
        "ids": [os.getuid(), os.getgid(), os.getppid()],
        "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()),
        "tmp": sorted(os.listdir("/tmp")),
        "root": sorted({"opt", "var", ".old"} & set(os.listdir("/"))),
        "capabilities": sorted({status[n].strip() for n in status if n.startswith("Cap")}),
        "parent": [attempt(f"/proc/1/{name}") for name in ("environ", "mem", "maps")],
        "settings": [attempt(f"/proc/sys/{name}", os.O_WRONLY) for name in
                     ("kernel/core_pattern", "user/max_user_namespaces", "vm/overcommit_memory")],
    }
    try:
        linux.unshare(0x10000000)
        facts["again"] = "succeeded"
    except OSError as error:
        facts["again"] = error.errno
    os.write(writer, json.dumps(facts).encode())
    os._exit(7)

confined = fork_confined(os.fork, Room(tmp_bytes=1 << 20, shared_memory_bytes=1 << 20), become)
_, status = os.waitpid(confined.pid, 0)
result = json.loads(os.read(reader, 65536))
result["status"] = os.waitstatus_to_exitcode(confined.final_status(status))
"""

SEEN = {
    "shared": [],
    "ids": [993, 990, 1],
    "pids": [1, 2],
    "tmp": ["home", "work"],
    "root": [],
    "capabilities": ["0000000000000000"],
    "parent": ["PermissionError"] * 3,
    "settings": ["PermissionError"] * 3,
    "again": 28,
    "status": 7,
}


@pytest.fixture
def public_folder() -> Any:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lkg-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_an_ordinary_users_cells_get_namespaces_of_their_own(public_folder: Path) -> None:
    descriptor = code.sealed_package(Path(lambda_kernel.__file__).parent)
    packages = base64.b64encode(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    os.close(descriptor)

    seen = run_as_ordinary_user(f"PACKAGES = {packages!r}\n{ASK}", find_bwrap(), public_folder)

    assert seen == SEEN
