"""Starting, stopping, starting again; parts that die; two gateways on one state directory."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.driver import COMMAND, Gateway, NotebookClient, a_gateway
from tests.integration.processes import arguments_of, descendants


def test_a_second_start_finds_kernels_files_and_variables_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with a_gateway(state) as first:
        assert len(first.banner) == 4
        assert first.token in first.banner[0]
        assert (state / "run" / "gateway.json").stat().st_mode & 0o777 == 0o600
        client = first.session()
        client.execute("x = 41; open('f', 'w').write('kept')")
        client.execute("import pathlib; (pathlib.Path.home() / 'h').write_text('home')")
        client.close()
        below = descendants(first.process.pid)
        assert below
        assert first.stop() == 0
    assert not {pid for pid in below if Path(f"/proc/{pid}").exists()}
    assert not (state / "run" / "gateway.json").exists()
    assert not [p for p in state.rglob("*") if p.is_socket()]
    with a_gateway(state) as second:
        listed = [k["id"] for k in second.rest("GET", "/api/kernels").json()]
        assert listed == [client.kernel_id]
        again = NotebookClient(second, client.kernel_id, second.token)
        run = again.execute(
            "print(open('f').read(), (pathlib.Path.home() / 'h').read_text())\nx + 1"
        )
        assert run.stdout == "kept home\n"
        assert run.result == "42"
        assert run.reply["execution_count"] == 3
        again.close()


def test_a_cell_that_runs_when_the_gateway_stops_is_answered_first(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as running:
        client = running.session()
        execution = client.submit("print('in', flush=True)\nimport time; time.sleep(60)")
        while "in" not in execution.stdout:
            execution.messages.append(client.receive(30))
        assert running.stop() == 0
        client.wait(execution)
        assert execution.reply["ename"] == "CellInterrupted"
        assert "the gateway stopped" in execution.reply["evalue"]
        client.close()


def test_a_command_waits_for_a_gateway_that_is_starting(tmp_path: Path) -> None:
    state = ["--state-dir", str(tmp_path / "state")]
    (tmp_path / "state" / "run").mkdir(parents=True)
    starting = subprocess.Popen([COMMAND, "--port", "0", *state], stdout=subprocess.DEVNULL)
    try:
        lock = tmp_path / "state" / "run" / "gateway.lock"
        while not (lock.exists() and lock.read_text()):
            assert starting.poll() is None
        files = subprocess.run(
            [COMMAND, "files", "ls", *state],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (files.returncode, files.stderr) == (0, "")
    finally:
        starting.send_signal(signal.SIGINT)
        assert starting.wait(20) == 0


def test_the_only_user_may_collect_garbage(gateway: Gateway) -> None:
    done = subprocess.run(
        [COMMAND, "gc", "--dry-run", "--state-dir", str(gateway.state_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_gateway_on_the_same_state_refuses_in_words(gateway: Gateway) -> None:
    second = subprocess.run(
        [COMMAND, "--port", "0", "--state-dir", str(gateway.state_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert str(gateway.process.pid) in second.stderr
    assert "in use" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_killed_gateway_leaves_no_process(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as running:
        client = running.session()
        client.execute("x = 5")
        below = descendants(running.process.pid)
        running.process.kill()
        running.process.wait(10)
        for pid in below:
            _wait_for_end(pid)
        client.close()
    with a_gateway(tmp_path / "state") as second:
        again = NotebookClient(second, client.kernel_id, second.token)
        assert again.execute("x").result == "5"
        again.close()


def test_a_gateway_that_is_started_right_after_a_kill_waits_for_what_is_left(
    tmp_path: Path,
) -> None:
    with a_gateway(tmp_path / "state") as running:
        client = running.session()
        client.execute("x = 5")
        # Its local service has not even noticed when the next one starts.
        service = local_service(running)
        os.kill(service, signal.SIGSTOP)
        running.process.kill()
        running.process.wait(10)
        second = subprocess.Popen(
            [COMMAND, "--port", "0", "--state-dir", str(running.state_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert second.stdout is not None
        told = second.stderr.readline()
        os.kill(service, signal.SIGCONT)
        ready = second.stdout.readline()
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=30)
        client.close()
    assert "waiting for the local service of a gateway that was killed" in told
    assert "is ready" in ready


@pytest.mark.parametrize("tier", ['"namespaces"', '"process"', '"process"\nlambda_strict = true'])
def test_containers_end_with_a_killed_service_in_the_middle_of_a_silent_cell(
    tmp_path: Path, tier: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[[environment]]\nid = "default"\ntier = {tier}\n')
    with a_gateway(tmp_path / "state", "--config", str(config)) as running:
        client = running.session()
        execution = client.submit("print('in', flush=True)\nimport time; time.sleep(600)")
        while "in" not in execution.stdout:
            execution.messages.append(client.receive(30))
        below = descendants(running.process.pid)
        os.kill(local_service(running), signal.SIGKILL)
        for pid in below:
            _wait_for_end(pid)
        client.close()


def test_storage_that_dies_is_restarted(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as running:
        client = running.session()
        client.execute("x = 1")
        weeds = [p for p in descendants(running.process.pid) if _command(p) == "weed"]
        assert weeds
        for pid in weeds:
            os.kill(pid, signal.SIGKILL)
        run = client.execute("x")
        if run.reply["status"] == "error":
            assert run.reply["ename"] in {"AuditUnavailable", "StorageUnavailable"}
        for _ in range(20):
            run = client.execute("x")
            if run.reply["status"] == "ok":
                break
        assert run.result == "1"
        client.close()


def test_a_container_that_dies_is_a_clear_error_and_nothing_runs_twice(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as running:
        client = running.session()
        client.execute("x = 1")
        execution = client.submit("print('in', flush=True)\nimport time; time.sleep(60)")
        while "in" not in execution.stdout:
            execution.messages.append(client.receive(30))
        for pid in descendants(running.process.pid):
            if "--stage-2" in arguments_of(pid):
                os.kill(pid, signal.SIGKILL)
        client.wait(execution)
        assert execution.reply["ename"] == "ContainerDied"
        assert "as after cell [1]" in execution.reply["evalue"]
        assert client.execute("x").result == "1"
        client.close()


def test_a_timeout_is_told_and_the_session_stays(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[environment]]\nid = "short"\ntimeout_s = 8\ncommit_grace_s = 4\n')
    with a_gateway(tmp_path / "state", "--config", str(config)) as running:
        client = running.session(name="lambda-short")
        client.execute("x = 1")
        run = client.execute("x = 2\nwhile True: pass")
        assert run.reply["ename"] == "CellTimeout"
        assert "up to the interrupt are kept" in run.reply["evalue"]
        assert client.execute("x").result == "2"
        run = client.execute(
            "import time\nx = 3\nwhile True:\n    try:\n        time.sleep(60)\n    except: pass"
        )
        assert run.reply["ename"] == "CellTimeout"
        assert "as after cell [3]" in run.reply["evalue"]
        assert client.execute("x").result == "2"
        client.close()


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("memory_mb = 64", "memory_mb"),
        ("timeout_s = 901", "timeout_s"),
        ("ephemeral_mb = 512", "ephemeral_mb"),
        ('tier = "none"', "tier"),
        ("memory = 512", "memory"),
    ],
)
def test_an_environment_out_of_range_is_refused_at_start_up(
    tmp_path: Path, table: str, named: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[[environment]]\nid = "x"\n{table}\n')
    start = subprocess.run(
        [COMMAND, "--port", "0", "--state-dir", str(tmp_path / "s"), "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert start.returncode != 0
    assert f"{config}: environment[0].{named}" in start.stderr
    assert "Traceback" not in start.stderr


def test_run_executes_a_notebook_with_a_gateway_of_its_own(tmp_path: Path) -> None:
    notebook = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
    output = tmp_path / "out.ipynb"
    run = subprocess.run(
        [COMMAND, "run", str(notebook), "--output", str(output)]
        + ["--state-dir", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    cells = [c for c in json.loads(output.read_text())["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    text = json.dumps(cells)
    for expected in ("image/png", "Hello reader", "PermissionError", "results/squares.csv"):
        assert expected in text


def local_service(gateway: Gateway) -> int:
    """Return the process id of the gateway's local service."""
    (found,) = [
        pid
        for pid in descendants(gateway.process.pid)
        if "kernel_gateway.local" in arguments_of(pid)
    ]
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 10)[0], f"process {pid} is still there"
    finally:
        os.close(handle)
