"""Random programs, cut into cells, leave what they leave in one process, or a named loss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.functional.child.conftest import Notebook, Zygote
from tests.functional.child.random_programs import DESCRIBE, PRELUDE, programs

EXAMPLES = int(os.environ.get("RANDOM_PROGRAMS", "60"))


@settings(
    max_examples=EXAMPLES,
    derandomize="RANDOM_PROGRAMS" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if "RANDOM_PROGRAMS" in os.environ else [Phase.generate],
)
@given(program=programs())
def test_a_program_cut_into_cells_is_one_program(
    zygote: Zygote, folder: Path, program: list[list[str]]
) -> None:
    notebook = Notebook(zygote, folder)
    lost: set[str] = set()
    notebook.run(PRELUDE)
    for cell in program:
        result = notebook.ask("\n".join(cell))
        assert result.failed is None
        assert result.report is not None
        lost |= {loss.name for loss in result.report.lost}
    carried = notebook.run(DESCRIBE).text

    assert lost == set()
    assert carried == _in_one_process(zygote, folder, program)


def _in_one_process(zygote: Zygote, folder: Path, program: list[list[str]]) -> str:
    # Each cell that fails ends there, as it does in a notebook; all in the namespace of one cell.
    lines = [PRELUDE]
    for cell in program:
        lines += ["try:", *(f"    {line}" for text in cell for line in text.split("\n"))]
        lines += ["except Exception: pass"]
    lines.append(DESCRIBE)
    return Notebook(zygote, folder).run("\n".join(lines)).text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")
