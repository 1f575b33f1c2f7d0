"""A battery of objects: each is carried over processes, or named as lost. Never a wrong value."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

CASES = tomllib.loads(Path(__file__).with_name("state_battery.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_battery(notebook: Notebook, case: dict[str, Any]) -> None:
    told = Counter[str]()
    for code in [*case["cells"], "pass"]:
        result = notebook.run(code.strip())
        assert result.report is not None
        told.update(loss.name for loss in result.report.lost)
        for loss in result.report.lost:
            assert loss.why, loss
    if "failing" in case:
        assert notebook.ask(case["failing"]).content["status"] == "error"

    result = notebook.run(case["check"].strip())

    assert result.text == "True"
    assert result.stream("stderr") == ""
    # Each value is named once, when it is lost.
    assert told == Counter(case.get("lost", []))
    for name in case.get("lost", []):
        if name == case.get("story"):
            content = notebook.ask(name).content
            assert content["ename"] == "NameError"
            assert f"'{name}' was a" in content["evalue"]


def test_nine_of_ten_objects_of_the_battery_are_carried() -> None:
    lost = sum(1 for case in CASES if "lost" in case)

    assert len(CASES) >= 95
    assert lost <= len(CASES) / 10
