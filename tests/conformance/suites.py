"""The suites: where each comes from, how it is run, and what of it fails for which reason."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.suite import Verdict, environment_with_kernel, run_pytest
from tests.integration.driver import a_gateway

NO_FOLDER = "reads a file beside the notebook; cells see the workspace"
NO_VARIABLES = "environment variables of the kernel's process; cells run elsewhere and see none"
ONLY_THE_CELL_DIES = "a cell that kills its process ends the cell (CellProcessDied), not the kernel"

NO_CONTAINER = "the static answer, where no container answers within a second"
NO_ZMQ = "is about the ZMQ sockets of a kernel's process; there are none"
LATE = "wants a kernel culled about 12 s after a cell of 4 s was sent to a container that is cold"
NO_PATH = "asks for a file of the server's folder that the kernel sees; cells see the workspace"

SLOW_START = "its client gives a kernel 20 s to start and run its first cell"

KERNEL_GATEWAY = "3.0.1"
"""The version of PyPI's jupyter-kernel-gateway."""

ROOT = Path(__file__).parents[2]
KERNEL_TESTS = Path(__file__).with_name("kernel_tests.py")
"""Not imported here: what it imports is installed for this only."""

PLUGINS = Path(__file__).with_name("plugins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite that other people wrote.

    Attributes:
        run: runs it below an empty folder.
        goal: how many tests must pass at least.
        explained: names of tests that fail, with the reason.
        unsteady: names of tests that fail where the machine is busy, with the reason.
    """

    run: Callable[[Path], Verdict]
    goal: int
    explained: Mapping[str, str] = field(default_factory=dict)
    unsteady: Mapping[str, str] = field(default_factory=dict)

    def reason(self, test: str) -> str | None:
        """Return why a test may fail, None where it may not."""
        return self.explained.get(test) or self.unsteady.get(test)


def _jupyter_kernel_test(folder: Path) -> Verdict:
    environ = environment_with_kernel(folder, "python3") | {"PYTHONPATH": str(ROOT)}
    # Without our own options: a suite's are its own.
    options = ["-c", "/dev/null", "--rootdir", str(folder)]
    return run_pytest([*options, str(KERNEL_TESTS)], folder, folder, environ)


def _nbclient(folder: Path) -> Verdict:
    source = _sdist("nbclient", folder)
    # Newer pytest-asyncio wants to be told; nbclient's warnings are its own affair.
    options = ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "default"]
    environ = environment_with_kernel(folder, "python3")
    return run_pytest([*options, "tests"], folder, source, environ)


def _jupyter_server(folder: Path) -> Verdict:
    source = _sdist("jupyter_server", folder)
    # The suite has asynchronous tests of its own kind, and warnings of its own.
    options = ["-p", "no:asyncio", "-p", "lambda_kernels", "-o", "addopts=", "-W", "default"]
    # Its own limit is 100 s a test, and one that is over it ends the run without a report.
    options += ["--timeout", "300", "--timeout-method", "signal"]
    services = ("api", "kernels", "kernelspecs", "sessions")
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTEST"))},
        "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT)]),
        "CONFORMANCE_STATE_DIR": str(folder / "state"),
    }
    tests = [f"tests/services/{service}" for service in services]
    return run_pytest([*options, "-o", "filterwarnings=default", *tests], folder, source, environ)


def _jupyter_kernel_gateway(folder: Path) -> Verdict:
    source = _sdist("jupyter_kernel_gateway", folder, KERNEL_GATEWAY)
    # Its package is called kernel_gateway too: an environment of its own, and no path of ours.
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / "bin" / "python")
    wanted = [f"jupyter_kernel_gateway=={KERNEL_GATEWAY}", "pytest-jupyter[server]", "ipykernel"]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted, "pytest-timeout"], check=True)
    environ = environment_with_kernel(folder, "python3")
    environ.pop("PYTHONPATH", None)
    tests = [f"tests/test_{name}.py" for name in ("jupyter_websocket", "gatewayapp", "mixins")]
    options = ["-W", "default", "--timeout", "120"]
    # Its clients wait 20 s for a kernel: no cold start of a gateway in that.
    with a_gateway(folder / "state"):
        return run_pytest([*options, *tests], folder, source, environ, python)


def _sdist(name: str, folder: Path, version: str | None = None) -> Path:
    """Return the unpacked source as PyPI has it, of the version that is installed here or given."""
    wanted = f"{name}=={version or importlib.metadata.version(name)}"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name]
        + ["--dest", str(folder), wanted],
        check=True,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return source


SUITES = {
    "jupyter_kernel_test": Suite(
        run=_jupyter_kernel_test,
        goal=10,
        unsteady={
            "test_completion": NO_CONTAINER,
            "test_inspect": NO_CONTAINER,
            "test_history": "ipykernel fails the operation `range` too (session 0), and skips it",
        },
    ),
    "nbclient": Suite(
        run=_nbclient,
        goal=120,
        explained={
            "test_run_all_notebooks[Inline Image.ipynb-opts5]": NO_FOLDER,
            "test_async_parallel_notebooks": "the notebooks meet in a folder of this machine, "
            "which a variable of this process's environment names; cells have neither",
            # COLUMNS and LINES: IPython 9.18 cuts tracebacks by the height of the terminal.
            "test_run_all_notebooks[Skip Exceptions with Cell Tags.ipynb-opts8]": NO_VARIABLES,
            "test_error_notebook_hook": ONLY_THE_CELL_DIES,
            "test_kernel_death_during_execution": ONLY_THE_CELL_DIES,
        },
        unsteady={
            "test_run_all_notebooks[Factorials.ipynb-opts3]": "ten printed lines that come as two "
            "stream messages, which nbclient leaves apart: the first line does not wait for others",
            "test_run_all_notebooks[Interrupt.ipynb-opts6]": "interrupts a cell 3 s after it was "
            "sent, and wants its traceback: on a cold container it has not begun, which it is told",
            "test_execution_timing": "wants a reply within 100 ms of a cell's last statement",
        },
    ),
    "jupyter_kernel_gateway": Suite(
        run=_jupyter_kernel_gateway,
        goal=47,
        explained={
            "test_kernel_env[jp_argv0]": NO_VARIABLES,
        },
        unsteady={
            "test_seed[jp_argv0]": "one of the tests of this name asks the internet",
            "test_force_kernel_name[jp_argv0]": SLOW_START,
            "test_seed_language_support[jp_argv0]": SLOW_START,
        },
    ),
    "jupyter_server": Suite(
        run=_jupyter_server,
        goal=190,
        explained={
            **{
                f"test_resolve_path_{where}[jp_server_config{number}]": NO_PATH
                for where in ("kernel", "server_and_kernel")
                for number in range(3)
            },
            "test_websocket_connection": NO_ZMQ,
            "test_nudge_cleanup_closes_transient_channels_when_iopub_closed": NO_ZMQ,
            "test_no_fd_leak_on_buffer_restore_with_port_change": NO_ZMQ,
            "test_no_fd_leak_on_disconnect_with_orphaned_kernel_info_channel": NO_ZMQ,
            "test_disconnect_resolves_orphaned_kernel_info_future": NO_ZMQ,
            "test_transport_encryption_disabled_no_curve_keys": NO_ZMQ,
            "test_transport_encryption_provisions_curve_keys[auto]": NO_ZMQ,
            "test_transport_encryption_provisions_curve_keys[required]": NO_ZMQ,
        },
        unsteady={
            "test_cull_connected[jp_server_config0]": LATE,
            "test_cull_connected[jp_server_config1]": LATE,
        },
    ),
}
