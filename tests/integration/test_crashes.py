"""Containers killed at every point of a cell and of its commit: the session is as last committed.

Nothing in the product knows of these points: the calls to AWS are held up outside the container,
cells say themselves how far they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.driver import Execution, Gateway, NotebookClient, a_gateway
from tests.integration.processes import kill_containers
from tests.integration.storage_tap import Phase, StorageTap, Trap, tapped_storage

BEGIN = """
import os, pathlib, random, signal, sys, time
"""
CHANGE = """
{first}
n, data = {value}, random.Random({value}).randbytes(9_000_000)
for old in pathlib.Path().glob('only-*'):
    old.unlink()
for path in ('f', 'folder/g', f'only-{{n}}', pathlib.Path.home() / 'h'):
    pathlib.Path(path).parent.mkdir(exist_ok=True)
    pathlib.Path(path).write_text(str(n))
(pathlib.Path.home() / 'large').write_bytes(data[:3_000_000])
{last}
"""
LOOK = """
files = [pathlib.Path(p).read_text() for p in ('f', 'folder/g', pathlib.Path.home() / 'h')]
only = [p.name for p in pathlib.Path().glob('only-*')]
large = (pathlib.Path.home() / 'large').read_bytes()
equal = data == random.Random(n).randbytes(9_000_000), large == data[:3_000_000]
print(n, *equal, *files, *only, 'left' in globals())
"""
WRITES = [
    ("AssumeRole", 0),
    ("LIST", 0),
    ("GET HOME head", 0),
    ("PUT HOME pack", 0),
    ("PUT HOME manifest", 0),
    ("PUT blob", 1),
    ("PUT file", 1),
    ("PUT deletions", 0),
    ("DELETE files", 0),
    ("PUT commit", 0),
    ("DELETE deletions", 0),
    ("PUT HOME head", 0),
]
READS = ["GET file", "GET HOME manifest", "GET HOME pack", "GET blob"]
HOLD = "os.write(1, b'here'); time.sleep(60)"


@dataclass
class Crashing:
    """A session whose containers are killed."""

    gateway: Gateway
    client: NotebookClient
    tap: StorageTap
    value: int = 0
    """What the last committed cell left."""

    last: int = 0

    def change(self, first: str = "", last: str = "") -> tuple[int, str]:
        self.last += 1
        return self.last, CHANGE.format(value=self.last, first=first, last=last)

    def kill_containers(self) -> None:
        kill_containers(self.gateway.process.pid)

    def has_committed(self) -> bool:
        return any(call.label == "PUT commit" for call in self.tap.accepted)

    def look(self) -> None:
        """Check that a new cell sees what the last committed one left, and nothing else."""
        self.tap.begin()
        seen = self.client.execute(LOOK)
        assert seen.reply["status"] == "ok", seen.error
        n = self.value
        assert seen.stdout == f"{n} True True {n} {n} {n} only-{n} False\n"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashing]:
    folder = tmp_path_factory.mktemp("crashes")
    config = folder / "config.toml"
    config.write_text('[[environment]]\nid = "default"\npreload = []\n')
    with (
        a_gateway(folder / "state", "--config", str(config)) as gateway,
        tapped_storage(gateway) as tap,
    ):
        crashing = Crashing(gateway, gateway.session(), tap)
        crashing.client.execute(BEGIN)
        _, code = crashing.change()
        crashing.client.execute(code)
        crashing.value = crashing.last
        yield crashing
        crashing.client.close()


def assert_told(session: Crashing, run: Execution, value: int) -> None:
    """Check what the client was told of a cell whose container was killed."""
    if session.has_committed():
        session.value = value
        assert run.reply["status"] == "ok"
        assert run.reply_metadata["committed"]
        assert run.reply_metadata["adopted"]
        assert "variables and files are committed" in run.stderr
    else:
        assert run.reply["ename"] == "ContainerDied"
        assert "as after cell" in run.reply["evalue"]
        assert not run.reply_metadata["committed"]


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize(("label", "number"), WRITES)
def test_a_crash_at_a_call_to_aws_keeps_the_last_commit(
    session: Crashing, label: str, number: int, phase: Phase
) -> None:
    trap = Trap(label, number, phase, session.kill_containers)
    value, code = session.change()
    session.tap.begin(trap)
    run = session.client.execute(code)
    assert trap.sprung, session.tap.calls
    landed = label in ("PUT HOME head", "DELETE deletions") or (label, phase) == (
        "PUT commit",
        "after",
    )
    assert session.has_committed() == landed
    assert_told(session, run, value)
    session.look()


@pytest.mark.parametrize("phase", ["before", "after"])
def test_crashes_while_the_session_is_brought_in_keep_the_last_commit(
    session: Crashing, phase: Phase
) -> None:
    session.kill_containers()
    for label in READS:
        # Each one's container is new and holds nothing yet.
        trap = Trap(label, 0, phase, session.kill_containers)
        value, code = session.change(first="len(data)")
        session.tap.begin(trap)
        assert_told(session, session.client.execute(code), value)
        assert trap.sprung, session.tap.calls
    session.look()


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (HOLD, ""),
        ("", HOLD),
        ("", f"class Held:\n    def __reduce__(self):\n        {HOLD}\nleft = Held()"),
    ],
    ids=["at its first line", "at its last line", "while its variables are stored"],
)
def test_a_crash_in_user_code_keeps_the_last_commit(
    session: Crashing, first: str, last: str
) -> None:
    session.tap.begin()
    value, code = session.change(first, last)
    run = session.client.submit(code)
    while "here" not in run.stdout:
        run.messages.append(session.client.receive(30))
    session.kill_containers()
    session.client.wait(run)
    assert_told(session, run, value)
    assert "Started: yes" in run.reply["evalue"]
    session.look()


@pytest.mark.parametrize(
    "last", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "os.kill(0, signal.SIGKILL)"]
)
def test_a_process_that_ends_itself_keeps_the_last_commit(session: Crashing, last: str) -> None:
    session.tap.begin()
    _, code = session.change(last=last)
    run = session.client.execute(code)
    assert run.reply["ename"] == "CellProcessDied"
    assert not session.has_committed()
    session.look()


def test_a_crash_right_after_the_reply_loses_nothing(session: Crashing) -> None:
    session.tap.begin()
    value, code = session.change()
    run = session.client.submit(code)
    while "execute_reply" not in run.types:
        run.messages.append(session.client.receive(30))
    session.kill_containers()
    session.client.wait(run)
    assert run.reply["status"] == "ok"
    assert not run.reply_metadata["adopted"]
    session.value = value
    session.look()


@pytest.mark.parametrize("label", ["PUT blob", "PUT file", "PUT commit"])
def test_storage_that_is_down_at_the_commit_is_told_with_what_is_lost(
    session: Crashing, label: str
) -> None:
    session.tap.begin()
    session.tap.refuse = lambda call: call.label == label
    _, code = session.change(last="new = {}")
    run = session.client.execute(code)
    session.tap.refuse = lambda call: False
    assert run.reply["ename"] == "StorageUnavailable"
    told = run.reply["evalue"]
    assert "the cell ran, but what it changed could not be stored" in told
    assert "these changes are lost: variables and files are as after cell" in told
    for name in ("n (changed)", "data (changed)", "new (added)", "f (modified)"):
        assert name in told
    assert f"only-{session.last} (created)" in told
    assert f"only-{session.value} (deleted)" in told
    session.look()
