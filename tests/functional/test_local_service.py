"""The local service as a process: what is left of it, and what outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import StartError
from kernel_gateway.local.service import LocalService, LocalSettings
from lambda_kernel.contract.schema import encode
from tests.functional.conftest import LoopThread, aws_client, wait_until
from tests.functional.test_local_lambda import DEFAULT, invoke_patiently

GATEWAY = """
import asyncio, json, sys
from kernel_gateway.local.service import LocalService, LocalSettings
from lambda_kernel.contract.schema import decode

async def main():
    service = await LocalService.start(decode(LocalSettings, json.loads(sys.argv[1]), "settings"))
    print(json.dumps({"pid": service.pid, **service.deployment.client_arguments("lambda")}))
    sys.stdout.flush()
    await asyncio.sleep(3600)

asyncio.run(main())
"""

Make = Callable[..., LocalSettings]


@pytest.fixture
def settings_for(test_runtime: dict[str, Any]) -> Make:
    def make(state_dir: Path, **more: Any) -> LocalSettings:
        environments = more.pop("environments", (Environment(preload=()),))
        return LocalSettings(
            state_dir=str(state_dir), environments=environments, **test_runtime, **more
        )

    return make


def family(pid: int) -> set[int]:
    """Return ``pid`` and every process that descends from it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(text.rsplit(")", 1)[1].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    """Return those of ``pids`` that run (a zombie does not)."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            running.add(pid)
    return running


def sockets_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_socket()]


def test_a_stopped_service_leaves_no_process_and_no_socket(
    loop_thread: LoopThread,
    tmp_path: Path,
    settings_for: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    service = loop_thread.run(LocalService.start(settings_for(tmp_path / "state")))
    client = aws_client("lambda", **service.deployment.client_arguments("lambda"))
    invoke_patiently(client, {"do": "echo"})
    processes = family(service.pid)

    loop_thread.run(service.stop())

    client.close()
    assert len(processes) >= 5, "service, SeaweedFS and a container, the latter two with bwrap"
    assert alive(processes) == set()
    assert sockets_in(tmp_path) == []
    assert list(temporary.iterdir()) == []


def test_state_outlives_the_service(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make
) -> None:
    key = {"Bucket": "lkg-workspaces", "Key": "users/u1/default/notes ü.txt"}
    seen = []
    for attempt in range(2):
        service = loop_thread.run(LocalService.start(settings_for(tmp_path, warm_count=0)))
        client = aws_client("s3", **service.deployment.client_arguments("s3"))
        if attempt == 0:
            client.put_object(**key, Body=b"kept")
        seen.append(client.get_object(**key)["Body"].read())
        client.close()
        loop_thread.run(service.stop())

    assert seen == [b"kept", b"kept"]


def test_a_second_service_on_a_state_directory_in_use_refuses(
    loop_thread: LoopThread, local_service: LocalService, state_dir: Path, settings_for: Make
) -> None:
    with pytest.raises(StartError, match="in use by another kernel-gateway") as refused:
        loop_thread.run(LocalService.start(settings_for(state_dir)))

    assert f"process {local_service.pid}" in str(refused.value)


def test_a_killed_gateway_leaves_nothing(tmp_path: Path, settings_for: Make) -> None:
    settings = json.dumps(encode(settings_for(tmp_path)))
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, settings], stdout=subprocess.PIPE
    ) as gateway:
        assert gateway.stdout is not None
        told = json.loads(gateway.stdout.readline())
        client = aws_client("lambda", **{k: v for k, v in told.items() if k != "pid"})
        invoke_patiently(client, {"do": "echo"})
        processes = family(told["pid"])

        gateway.kill()

    client.close()
    assert len(processes) >= 5
    assert wait_until(lambda: not alive(processes))
    assert sockets_in(tmp_path) == []


def test_a_killed_service_leaves_nothing_and_is_noticed(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make
) -> None:
    exits: list[int] = []
    service = loop_thread.run(LocalService.start(settings_for(tmp_path), on_exit=exits.append))
    client = aws_client("lambda", **service.deployment.client_arguments("lambda"))
    invoke_patiently(client, {"do": "echo"})
    processes = family(service.pid)

    os.kill(service.pid, signal.SIGKILL)

    assert wait_until(lambda: not alive(processes))
    assert wait_until(lambda: exits) == [-signal.SIGKILL]
    client.close()
    loop_thread.run(service.stop())


def test_an_interpreter_that_does_not_exist_is_named(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make
) -> None:
    environments = (Environment(python="/nowhere/python3"),)

    with pytest.raises(StartError, match="/nowhere/python3"):
        loop_thread.run(LocalService.start(settings_for(tmp_path, environments=environments)))


def test_a_state_directory_that_cannot_be_made_is_named(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StartError, match="state directory"):
        loop_thread.run(LocalService.start(settings_for(tmp_path / "file" / "state")))


def test_another_interpreter_runs_in_its_own_environment(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make
) -> None:
    environments = (Environment(python=sys.executable, preload=()),)
    service = loop_thread.run(LocalService.start(settings_for(tmp_path, environments=environments)))
    client = aws_client("lambda", **service.deployment.client_arguments("lambda"))
    code = "import sys; result = list(sys.version_info[:2])"

    answer = invoke_patiently(client, {"do": "run", "code": code}, DEFAULT)

    client.close()
    loop_thread.run(service.stop())
    assert json.loads(answer["Body"]) == list(sys.version_info[:2])


def test_modules_in_the_current_folder_are_not_imported(
    loop_thread: LoopThread,
    tmp_path: Path,
    settings_for: Make,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("random", "logging", "tornado"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')")
    monkeypatch.chdir(tmp_path)
    environments = (Environment(python="/nowhere/python3"),)

    with pytest.raises(StartError, match="/nowhere/python3"):
        loop_thread.run(LocalService.start(settings_for(tmp_path / "s", environments=environments)))

    assert "a module of the user" not in capfd.readouterr().err


def test_a_service_that_cannot_even_begin_is_said_to_have_ended(
    loop_thread: LoopThread, tmp_path: Path, settings_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(StartError, match="its messages stand above"):
        loop_thread.run(LocalService.start(settings_for(tmp_path)))
