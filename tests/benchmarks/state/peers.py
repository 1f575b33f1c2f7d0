"""Kishu, dill and cloudpickle, each in a process and a virtual environment of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEERS = ("kishu", "dill", "cloudpickle")
REQUIREMENTS = ("kishu==0.3.4", "dill", "cloudpickle", "ipykernel")
ALSO = ("numpy", "pandas", "pyarrow")
LIMIT_S = 60.0


class PeerFailed(Exception):
    """A peer could not do it; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """An interpreter that has the peers installed.

    Attributes:
        python: of their virtual environment; empty = they could not be installed.
        why: what went wrong then.
        versions: as installed, by name.
    """

    python: str
    why: str
    versions: dict[str, str]

    @classmethod
    def install(cls, folder: Path) -> Peers:
        """Return the peers, installed into ``folder``, or into LKG_BENCH_PEERS where that is set.

        What both sides measure with has the version that is used here.
        """
        folder = Path(os.environ.get("LKG_BENCH_PEERS", folder / "peers"))
        python = str(folder / "bin" / "python")
        if not Path(python).exists():
            venv.create(folder, with_pip=True)
            same = [f"{name}=={_version(sys.executable, name)}" for name in ALSO]
            done = subprocess.run(
                [python, "-m", "pip", "install", "-q", *REQUIREMENTS, *same],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                why = f"not installed: {done.stderr.strip().splitlines()[-1][:200]}"
                return cls(python="", why=why, versions={})
        return cls(python=python, why="", versions={name: _version(python, name) for name in PEERS})

    def do(self, peer: str, job: dict[str, Any], limit_s: float = LIMIT_S) -> Any:
        """Return what a peer gives for one job (raises PeerFailed)."""
        if not self.python:
            raise PeerFailed(self.why)
        process = subprocess.Popen(
            [self.python, str(Path(__file__).with_name("peer_cells.py")), peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            answer, _ = process.communicate(json.dumps(job) + "\n", timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"not done after {limit_s:.0f} s") from None
        finally:
            _end(process)
        if not answer:
            raise PeerFailed(f"its process ended with {process.returncode}")
        result = json.loads(answer)
        if isinstance(result, dict) and "error" in result:
            raise PeerFailed(result["error"])
        return result


def _version(python: str, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _end(process: subprocess.Popen[str]) -> None:
    # What a case has started belongs to its process group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
