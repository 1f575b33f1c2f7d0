"""Frameworks of agents, unchanged, run their code on a gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.driver import Gateway, a_gateway

pytestmark = pytest.mark.conformance

PROGRAMS = Path(__file__).parent / "agents"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment of their own: what they require is not ours to bear."""
    venv = tmp_path_factory.mktemp("agents") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    made = str(venv / "bin" / "python")
    wanted = PROGRAMS / "requirements.txt"
    subprocess.run([made, "-m", "pip", "install", "-q", "-r", wanted], check=True)
    return made


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway of their own."""
    with a_gateway(tmp_path_factory.mktemp("gateway") / "state") as running:
        yield running


def said(python: str, program: str, gateway: Gateway) -> Any:
    where = urlsplit(gateway.url)
    done = subprocess.run(
        [python, PROGRAMS / program, str(where.hostname), str(where.port), gateway.token],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_autogen_executes(python: str, gateway: Gateway) -> None:
    facts = said(python, "autogen_program.py", gateway)
    first, second, figure, failed, after = facts["said"]
    assert first == [0, "hello\n"]
    assert second == [0, "21\n"]
    assert figure[0] == 0
    assert facts["files"] == [".png"]
    assert failed[0] == 1
    assert "ZeroDivisionError" in failed[1]
    assert after == [0, "False\n"]


def test_smolagents_executes(python: str, gateway: Gateway) -> None:
    first, second, failed = said(python, "smolagents_program.py", gateway)
    assert first == [None, "hello\n"]
    assert second == ["21", ""]
    assert "ZeroDivisionError" in failed[1]
