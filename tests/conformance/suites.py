"""The suites: where each comes from, how it is run, and what of it fails for which reason."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.suite import Verdict, environment_with_kernel, run_pytest

NO_FOLDER = "reads a file beside the notebook; cells see the workspace"
ONLY_THE_CELL_DIES = "a cell that kills its process ends the cell (CellProcessDied), not the kernel"

ROOT = Path(__file__).parents[2]
KERNEL_TESTS = Path(__file__).with_name("kernel_tests.py")
"""Not imported here: what it imports is installed for this only."""


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


def _sdist(name: str, folder: Path) -> Path:
    """Return the unpacked source, as PyPI has it, of the version that is installed here."""
    wanted = f"{name}=={importlib.metadata.version(name)}"
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
            "test_completion": "the static answer, where no container answers within a second",
            "test_history": "ipykernel fails the operation `range` too (session 0), and skips it",
        },
    ),
    "nbclient": Suite(
        run=_nbclient,
        goal=121,
        explained={
            "test_run_all_notebooks[Inline Image.ipynb-opts5]": NO_FOLDER,
            "test_async_parallel_notebooks": "the notebooks meet in a folder of this machine, "
            "which a variable of this process's environment names; cells have neither",
            "test_error_notebook_hook": ONLY_THE_CELL_DIES,
            "test_kernel_death_during_execution": ONLY_THE_CELL_DIES,
        },
        unsteady={
            "test_run_all_notebooks[Factorials.ipynb-opts3]": "ten printed lines that come as two "
            "stream messages, which nbclient leaves apart: the first line does not wait for others",
            "test_execution_timing": "wants a reply within 100 ms of a cell's last statement",
        },
    ),
}
