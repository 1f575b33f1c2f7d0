"""The trails under notebooks/trails: verified from the file alone, replayed on another gateway."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.driver import COMMAND, Gateway

TRAILS = Path(__file__).parents[2] / "notebooks" / "trails"
KEYS = ["--keys", str(TRAILS / "keys.json")]
IDENTICAL = ["identical"] * 8
STANDINGS = {
    "investigation": IDENTICAL,
    "analysis": IDENTICAL,
    "troubles": ["identical"] * 3 + ["not-replayable"] * 2 + ["identical"],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments, *KEYS], capture_output=True, text=True)


@pytest.mark.parametrize("name", STANDINGS)
def test_a_recorded_trail_verifies(name: str) -> None:
    verified = run("trail", "verify", str(TRAILS / f"{name}.ipynb"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "signed by 1 of your keys" in verified.stdout


@pytest.mark.parametrize("name", STANDINGS)
def test_a_recorded_trail_gives_the_same_when_it_is_replayed(
    name: str, gateway: Gateway, tmp_path: Path
) -> None:
    place = ["--gateway-url", gateway.url, "--token", gateway.token, "--report", str(tmp_path)]
    replayed = run("replay", str(TRAILS / f"{name}.ipynb"), *place)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    cells = json.loads((tmp_path / "report.json").read_text())["cells"]
    assert [cell["verdict"] for cell in cells] == STANDINGS[name], replayed.stdout


def test_a_changed_copy_is_not_replayed(gateway: Gateway, tmp_path: Path) -> None:
    changed = tmp_path / "changed.ipynb"
    text = (TRAILS / "investigation.ipynb").read_text()
    changed.write_text(text.replace("203.0.113.77", "203.0.113.78"))
    refused = run("replay", str(changed), "--gateway-url", gateway.url, "--token", gateway.token)
    assert refused.returncode == 3
    assert "cell" in refused.stdout + refused.stderr
