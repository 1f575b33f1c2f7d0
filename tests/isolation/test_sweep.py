"""The sweep, as the first process of a container."""

from __future__ import annotations

from typing import Any

import pytest

START = """
import json, os, subprocess, sys, time
from pathlib import Path
from lambda_kernel.serving.sweep import Sweeper
sweeper = Sweeper.create(lambda_machine=False)
def tell(*values): print(json.dumps(values), flush=True)
"""
DAEMONS = """
for _ in range(20):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
"""
HOPPERS = """
for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
"""
BOMB = """
import resource
# The processes of other containers count, where these are of the same user.
for limit in range(100, 4000, 100):
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, 4000))
    try:
        child = os.fork()
    except OSError:
        continue
    break
if child == 0:
    while True:
        try:
            os.fork()
        except OSError:
            pass
time.sleep(0.3)
"""


@pytest.mark.parametrize("leave", [DAEMONS, HOPPERS, BOMB], ids=["daemons", "hoppers", "bomb"])
def test_no_process_of_a_cell_survives(in_container: Any, leave: str) -> None:
    clean, left, seen = in_container.result(
        f"{START}{leave}\nclean = sweeper.sweep_processes()\n"
        "tell(clean, sweeper.strangers(), [p for p in os.listdir('/proc') if p.isdecimal()])"
    )
    assert (clean, left, seen) == (True, [], ["1"])


def test_our_own_processes_stay(in_container: Any) -> None:
    (alive,) = in_container.result(
        f"{START}\nown = subprocess.Popen(['sleep', '600'])\nsweeper.adopt(own.pid)\n"
        "sweeper.sweep_processes(); tell(own.poll() is None)\nown.kill(); own.wait()"
    )
    assert alive


def test_planted_files_are_removed_and_ours_stay(in_container: Any) -> None:
    told = in_container.result(
        "from pathlib import Path\nPath('/tmp/ours').mkdir()\n"
        + START
        + """
Path('/tmp/a').mkdir(); Path('/tmp/a/b').write_text('x'); Path('/tmp/a').chmod(0)
Path('/tmp/home').mkdir(); Path('/dev/shm/m').write_text('x'); os.mkfifo('/tmp/pipe')
clean = sweeper.sweep_files({'/tmp/home'})
tell(clean, sorted(os.listdir('/tmp')), os.listdir('/dev/shm'))
"""
    )
    assert told == [True, ["home", "ours"], []]


def test_system_v_objects_are_removed(in_container: Any) -> None:
    before, clean, after = in_container.result(
        START
        + """
import ctypes
libc = ctypes.CDLL(None)
libc.shmget(1234, ctypes.c_size_t(4096), 0o1600)
libc.semget(1234, 1, 0o1600); libc.msgget(1234, 0o1600)
count = lambda: [len(Path(f'/proc/sysvipc/{kind}').read_text().splitlines()) - 1
                 for kind in ('shm', 'sem', 'msg')]
before = count(); clean = sweeper.sweep_files(); tell(before, clean, count())
"""
    )
    assert (before, clean, after) == ([1, 1, 1], True, [0, 0, 0])


def test_a_sweeper_outside_of_a_container_refuses_to_work() -> None:
    from lambda_kernel.serving.sweep import NotAlone, Sweeper

    with pytest.raises(NotAlone):
        Sweeper.create(lambda_machine=False)
