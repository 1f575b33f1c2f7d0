"""Kernels without a process: what jupyter_client starts by our kernel provisioner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient.client import NotebookClient

from kernel_gateway.errors import ConfigError, GatewayError
from tests.integration.driver import COMMAND, TOKENS, a_gateway, identities_toml
from tests.integration.installed_kernels import (
    SLEEP,
    TIMEOUT_S,
    Place,
    end_gateway,
    install,
    program_with_a_kernel,
)

# jupyter_client leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


PROVISIONER = "--provisioner"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with a gateway in the foreground, and a kernelspec that names the provisioner."""
    made = install(tmp_path_factory.mktemp("place"), PROVISIONER)
    with a_gateway(made.state_dir):
        yield made


def configure(place: Place, **config: object) -> None:
    """Change what the kernelspec says to the provisioner."""
    path = place.folder / "share/jupyter/kernels/lambda-python/kernel.json"
    spec = json.loads(path.read_text())
    spec["metadata"]["kernel_provisioner"]["config"] |= config
    path.write_text(json.dumps(spec))


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lambda-kernel"]


def test_a_kernel_is_a_thread_and_needs_no_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = install(tmp_path, PROVISIONER)
    with place.kernel() as kernel:
        kernel.execute("x = 20")
        assert kernel.execute("print(x + 1)").stdout == "21\n"
        assert len(place.kernel_ids()) == 1
        assert not [line for line in place.processes() if "kernel_process" in line]
        assert kernel.manager.is_alive()
    assert threads() == []
    assert place.kernel_ids() == []
    # Nothing went wrong, so nothing is said.
    assert [r.getMessage() for r in caplog.records if r.name.startswith("kernel_gateway")] == []
    end_gateway(place)


@pytest.mark.parametrize("how", ["message", "signal"])
def test_a_cell_is_interrupted(place: Place, how: str) -> None:
    with place.kernel() as kernel:
        msg_id = kernel.begin(SLEEP)
        if how == "message":
            kernel.manager.interrupt_kernel()
        else:
            kernel.manager.signal_kernel(signal.SIGINT)
        assert kernel.reply_to(msg_id)["ename"] == "KeyboardInterrupt"


def test_a_restart_forgets_variables_and_a_shutdown_the_kernel(place: Place) -> None:
    with place.kernel() as kernel:
        kernel.execute("x = 20")
        first = set(place.kernel_ids())
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=TIMEOUT_S)
        assert kernel.execute("x").reply["ename"] == "NameError"
        second = set(place.kernel_ids())
        assert not first & second
        kernel.manager.shutdown_kernel()
        assert not kernel.manager.is_alive()
        assert place.kernel_ids() == []


def test_a_kernel_that_the_gateway_ends_is_not_alive(place: Place) -> None:
    with place.kernel() as kernel:
        (kernel_id,) = place.kernel_ids()
        place.wait_until_kernel_is_dead(
            kernel_id, lambda: place.rest("DELETE", f"kernels/{kernel_id}")
        )
        (thread,) = threads()
        thread.join(TIMEOUT_S)
        assert not kernel.manager.is_alive()


def test_a_kernel_ends_with_the_program_that_started_it(place: Place) -> None:
    with program_with_a_kernel(place) as (program, pid):
        assert pid is None
        (kernel_id,) = place.kernel_ids()
        place.wait_until_kernel_is_dead(kernel_id, program.kill)


def test_the_kernelspec_chooses_and_whoever_starts_the_kernel_goes_before_it(
    tmp_path: Path, place: Place
) -> None:
    one, other = (f"w{uuid.uuid4().hex[:12]}" for _ in range(2))
    mine = Place(tmp_path)
    subprocess.run(
        [COMMAND, "install", "--prefix", str(tmp_path), "--provisioner"],
        check=True,
        capture_output=True,
    )
    configure(mine, state_dir=str(place.state_dir), workspace=one, run="r1", projects=["a", "b"])
    with mine.kernel() as kernel:
        kernel.execute("import os; os.makedirs('a', exist_ok=True); open('a/f', 'w').close()")
        (model,) = place.rest("GET", "kernels").json()
        shown = model["lambda_kernel"]
        assert (shown["workspace"], shown["run"], shown["projects"]) == (one, "r1", ["a", "b"])
    with mine.kernel({"LAMBDA_KERNEL_WORKSPACE": other}) as kernel:
        (model,) = place.rest("GET", "kernels").json()
        assert model["lambda_kernel"]["workspace"] == other
        assert kernel.execute("import os; print(os.path.exists('a/f'))").stdout == "False\n"


@pytest.mark.parametrize(
    ("config", "error", "problem"),
    [
        (
            {"work_space": "w"},
            ConfigError,
            "config.work_space: is not known; known are",
        ),
        ({"workspace": "../x"}, GatewayError, "LAMBDA_KERNEL_WORKSPACE"),
        ({"spec_name": "lambda-none"}, GatewayError, "lambda-none"),
    ],
)
def test_what_cannot_work_is_said_when_the_kernel_is_started(
    tmp_path: Path, place: Place, config: dict[str, str], error: type[Exception], problem: str
) -> None:
    mine = install(tmp_path, PROVISIONER)
    configure(mine, state_dir=str(place.state_dir), **config)
    before = place.kernel_ids()
    with pytest.raises(error, match=problem), mine.kernel():
        pass
    assert place.kernel_ids() == before
    assert threads() == []


def test_a_token_file_says_whose_kernel_it_is(tmp_path: Path) -> None:
    (tmp_path / "identities.toml").write_text(identities_toml())
    (tmp_path / "token").write_text(TOKENS["u1-a1"])
    mine = install(tmp_path, PROVISIONER)
    configure(mine, token_file=str(tmp_path / "token"))
    with (
        a_gateway(mine.state_dir, "--identities", str(tmp_path / "identities.toml")) as gateway,
        mine.kernel({"JUPYTER_TOKEN": "that of the program itself"}) as kernel,
    ):
        assert kernel.execute("print(6 * 7)").stdout == "42\n"
        headers = {"Authorization": f"token {TOKENS['u1-a1']}"}
        (model,) = gateway.rest("GET", "/api/kernels", headers=headers).json()
        assert model["lambda_kernel"]["agent"] == "a1"


def test_nbclient_runs_a_notebook(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", place.environ["JUPYTER_PATH"])
    cells = [nbformat.v4.new_code_cell(code) for code in ("x = 20", "x + 1")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="lambda-python", timeout=TIMEOUT_S).execute()
    assert notebook.cells[1].outputs[0]["data"]["text/plain"] == "21"
    assert place.kernel_ids() == []


def test_papermill_gives_parameters(place: Place, tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]})
    shown = nbformat.v4.new_code_cell("n + 1")
    path, output = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    metadata = {"kernelspec": {"name": "python3", "display_name": "P", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, shown], metadata=metadata), path)
    command = [str(Path(sys.executable).with_name("papermill")), "-k", "lambda-python"]
    done = subprocess.run(
        [*command, "-p", "n", "41", str(path), str(output)],
        env=os.environ | place.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert nbformat.read(output, 4).cells[-1].outputs[0]["data"]["text/plain"] == "42"
