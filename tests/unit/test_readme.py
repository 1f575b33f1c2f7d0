"""What the README says is what the product does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_gateway import errors
from tests.isolation.battery import ATTACKS, BOUNDARIES, readme_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FAILURES = [value for value in vars(errors).values() if isinstance(value, errors.Failure)]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.ename)
def test_every_error_that_a_client_sees_is_in_the_table(failure: errors.Failure) -> None:
    started = failure.started.value if failure.started else "told"
    assert f"| `{failure.ename}` | {started} | {failure.text} |" in README


def test_the_table_of_boundaries_is_the_battery() -> None:
    assert {attack.boundary for attack in ATTACKS} == set(BOUNDARIES)
    assert readme_table() in README


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = re.findall(r"^python3 -m venv .*pytest$", README, re.MULTILINE)
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text()


def test_files_that_the_readme_names_exist() -> None:
    named = re.findall(r"\b(?:notebooks|tests)/[\w./-]*\w", README)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]
