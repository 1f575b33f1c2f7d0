"""A suite that other people wrote, run unchanged against our kernelspec; what it said."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.driver import COMMAND

LIMIT_S = 1500
RAN_EXIT_CODES = {0, 1}
"""Source: pytest, "Exit codes": passed and failed. A signal that ended it is a negative one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a suite said.

    Attributes:
        passed: names of tests.
        failed: names of tests, with the last line of each failure.
        skipped: names of tests, with the reason.
    """

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    skipped: Mapping[str, str]

    @property
    def count(self) -> int:
        return len(self.passed) + len(self.failed) + len(self.skipped)

    def __str__(self) -> str:
        return (
            f"{len(self.passed)} of {self.count} passed, {len(self.failed)} failed, "
            f"{len(self.skipped)} skipped"
        )


def environment_with_kernel(folder: Path, name: str) -> dict[str, str]:
    """Return an environment in which Jupyter tools start our kernel by ``name``.

    Args:
        folder: an empty one, for the kernelspec and the gateway's state.
        name: of the kernelspec; it hides one of this name that is installed.
    """
    subprocess.run(
        [COMMAND, "install", "--prefix", str(folder), "--name", name]
        + ["--state-dir", str(folder / "state")],
        check=True,
        capture_output=True,
    )
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTEST"))},
        "JUPYTER_PATH": str(folder / "share" / "jupyter"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }


def run_pytest(
    arguments: Sequence[str],
    folder: Path,
    cwd: Path,
    environ: Mapping[str, str],
    python: str = sys.executable,
) -> Verdict:
    """Run pytest in a process of its own, and return what it says.

    Args:
        arguments: tests and options.
        folder: for its report.
        cwd: where it runs.
        environ: of the process.
        python: of the environment that it runs in.
    """
    report = folder / "report.xml"
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        + list(arguments),
        cwd=cwd,
        # A suite may call what is installed beside its interpreter, as in an activated environment.
        env=dict(environ) | {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode not in RAN_EXIT_CODES or not report.exists():
        ended = f"the suite did not run (pytest ended with {done.returncode})"
        raise AssertionError(f"{ended}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return _read(report)


def _read(report: Path) -> Verdict:
    passed, failed, skipped = {}, {}, {}
    # What is parsed was written by pytest on this machine. A test that is run again, or fails while
    # it is taken down, is there more than once.
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name", "")
        key = (case.get("classname", ""), name)
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        skip = case.find("skipped")
        if problem is not None:
            failed[key] = problem.get("message", "").strip().split("\n")[0]
        elif skip is not None:
            skipped[key] = skip.get("message", "")
        else:
            passed[key] = name
    return Verdict(
        passed=tuple(name for key, name in passed.items() if key not in failed),
        failed={name: text for (_, name), text in failed.items()},
        skipped={name: text for (_, name), text in skipped.items()},
    )
