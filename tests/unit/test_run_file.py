"""The lock on a state directory and the file that says where its gateway is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kernel_gateway import run_file
from kernel_gateway.errors import ConfigError, StartError
from kernel_gateway.run_file import RunFile, StateLock, own_replica_id, started_gateway

RUNNING = RunFile(url="http://127.0.0.1:8888/", token="t", pid=4711)


async def test_a_running_gateway_is_found_and_its_file_is_the_owners_only(tmp_path: Path) -> None:
    assert await started_gateway(tmp_path) is None
    lock = StateLock.acquire(tmp_path)
    RUNNING.write(tmp_path)
    assert await started_gateway(tmp_path) == RUNNING
    assert (tmp_path / "run" / "gateway.json").stat().st_mode & 0o777 == 0o600
    assert "token" not in repr(RUNNING).replace("token=", "")
    lock.release()


async def test_a_file_that_a_killed_gateway_left_is_not_believed_and_goes(tmp_path: Path) -> None:
    lock = StateLock.acquire(tmp_path)
    RUNNING.write(tmp_path)
    lock.release()
    assert await started_gateway(tmp_path) is None
    again = StateLock.acquire(tmp_path)
    assert not (tmp_path / "run" / "gateway.json").exists()
    again.release()


async def test_a_gateway_that_is_starting_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = StateLock.acquire(tmp_path)
    waiting = asyncio.create_task(started_gateway(tmp_path))
    await asyncio.sleep(0)
    assert not waiting.done()
    RUNNING.write(tmp_path)
    assert await waiting == RUNNING
    RunFile.remove(tmp_path)
    monkeypatch.setattr(run_file, "START_TIMEOUT_S", 0)
    with pytest.raises(StartError, match="just starting"):
        await started_gateway(tmp_path)
    lock.release()


def test_a_second_gateway_is_refused_with_process_and_url(tmp_path: Path) -> None:
    lock = StateLock.acquire(tmp_path)
    with pytest.raises(StartError, match="just starting"):
        StateLock.acquire(tmp_path)
    RUNNING.write(tmp_path)
    with pytest.raises(StartError) as refused:
        StateLock.acquire(tmp_path)
    assert "in use" in str(refused.value)
    assert RUNNING.url in str(refused.value)
    assert "--state-dir" in str(refused.value)
    lock.release()


def test_a_state_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--state-dir"):
        StateLock.acquire(tmp_path / "file")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"url": 1}'])
def test_a_file_that_is_damaged_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gateway.json").write_text(text)
    assert RunFile.read(tmp_path) is None


def test_the_gateway_of_a_state_directory_keeps_its_id(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    first = own_replica_id(tmp_path / "a")

    assert own_replica_id(tmp_path / "a") == first
    assert own_replica_id(tmp_path / "b") != first


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
async def test_a_file_that_another_user_wrote_is_not_believed(tmp_path: Path) -> None:
    lock = StateLock.acquire(tmp_path)
    RUNNING.write(tmp_path)
    os.chown(tmp_path / "run" / "gateway.json", 4711, 4711)

    with pytest.raises(ConfigError, match=r"another user's \(uid 4711\)"):
        await started_gateway(tmp_path)

    lock.release()


def test_links_that_somebody_put_into_a_state_directory_are_not_written_through(
    tmp_path: Path,
) -> None:
    run, victim = tmp_path / "state" / "run", tmp_path / "victim"
    run.mkdir(parents=True)
    victim.write_text("precious")
    (run / "gateway.lock").symlink_to(victim)
    with pytest.raises(ConfigError, match="--state-dir"):
        StateLock.acquire(tmp_path / "state")

    (run / "gateway.lock").unlink()
    (run / f"gateway.{os.getpid()}").symlink_to(victim)
    lock = StateLock.acquire(tmp_path / "state")
    RUNNING.write(tmp_path / "state")

    assert victim.read_text() == "precious"
    assert RunFile.read(tmp_path / "state") == RUNNING
    lock.release()
