"""Programs of other people that start kernels themselves, unchanged, with no gateway running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.conformance.suite import environment_with_kernel

pytestmark = pytest.mark.conformance

NAME = "lambda-python"


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with our kernelspec; the gateway that they share ends by itself."""
    return environment_with_kernel(tmp_path_factory.mktemp("kernelspec"), NAME)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook with a parameter, a figure and an answer."""
    cells = [
        nbformat.v4.new_code_cell("n = 20", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("print('n is', n)\nn + 1"),
        nbformat.v4.new_code_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]);"),
    ]
    spec = {"name": NAME, "display_name": "Lambda", "language": "python"}
    made = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})
    path = tmp_path / "in.ipynb"
    nbformat.write(made, path)
    return path


def run(arguments: list[str], environ: dict[str, str], typed: str = "") -> str:
    program = Path(sys.executable).with_name(arguments[0])
    done = subprocess.run(
        [str(program), *arguments[1:]],
        env=environ,
        input=typed,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outputs(path: Path) -> list[list[Any]]:
    return [cell.outputs for cell in nbformat.read(path, 4).cells]


def text_and_result(path: Path, cell: int) -> tuple[object, object]:
    stream, result = outputs(path)[cell]
    return stream["text"], result["data"]["text/plain"]


def test_papermill_gives_parameters(environ: dict[str, str], notebook: Path) -> None:
    output = notebook.with_name("out.ipynb")
    run(["papermill", "-p", "n", "41", str(notebook), str(output)], environ)
    assert text_and_result(output, 2) == ("n is 41\n", "42")


def test_jupyter_execute_writes_outputs(environ: dict[str, str], notebook: Path) -> None:
    run(["jupyter-execute", "--inplace", str(notebook)], environ)
    assert text_and_result(notebook, 1) == ("n is 20\n", "21")
    assert "image/png" in str(outputs(notebook)[2])


def test_nbconvert_executes_and_converts(environ: dict[str, str], notebook: Path) -> None:
    run(["jupyter-nbconvert", "--execute", "--to", "html", str(notebook)], environ)
    html = notebook.with_suffix(".html").read_text()
    assert "n is 20" in html
    assert "data:image/png;base64" in html


def test_jupyter_console_answers(environ: dict[str, str]) -> None:
    shown = run(
        ["jupyter-console", "--kernel", NAME, "--simple-prompt"],
        environ,
        typed="y = 20\ny + 1\nexit\n",
    )
    assert "Out[2]: 21" in shown
