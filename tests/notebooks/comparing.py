"""Runs one notebook in stock ipykernel and on a gateway, and compares what the cells gave."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.web.notebook_run import run_notebook
from tests.integration.driver import Gateway
from tests.notebooks.normalisation import normalised
from tests.notebooks.sources import Source

CELL_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A cell whose outputs differ.

    Attributes:
        cell: number of the code cell, from 1.
        source: of the cell.
        text: a unified diff.
    """

    cell: int
    source: str
    text: str

    def __str__(self) -> str:
        return f"cell {self.cell}\n{self.source}\n{self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of one notebook.

    Attributes:
        cells: how many code cells ran.
        raised: how many of them ended with an error, in stock ipykernel.
        differences: the cells that differ.
        stock_s: what stock ipykernel took, its start included.
        ours_s: what the gateway took.
    """

    cells: int
    raised: int
    differences: list[Difference]
    stock_s: float
    ours_s: float


def compare(source: Source, gateway: Gateway, python: str, folder: Path) -> Comparison:
    """Run ``source`` in both and return what differs.

    Args:
        source: which notebook.
        gateway: a gateway whose default environment has the packages of ``python``.
        python: the interpreter of the stock kernel.
        folder: an empty one, for files of the stock kernel.
    """
    expected, found = source.obtain(), source.obtain()
    began = time.monotonic()
    _run_stock(expected, python, folder)
    between = time.monotonic()
    _run_ours(found, gateway)
    ended = time.monotonic()
    pairs = list(zip(expected.cells, found.cells, strict=True))
    differences = [
        Difference(cell=number, source=one.source, text=text)
        for number, (one, other) in enumerate(pairs, 1)
        if (text := _difference(one, other))
    ]
    raised = [
        cell
        for cell in expected.cells
        if any(output.output_type == "error" for output in cell.outputs)
    ]
    return Comparison(
        cells=len(pairs),
        raised=len(raised),
        differences=differences,
        stock_s=between - began,
        ours_s=ended - between,
    )


def _run_stock(notebook: Any, python: str, folder: Path) -> None:
    spec = folder / "specs" / "stock"
    spec.mkdir(parents=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "PYTHON", "MPL"))
    }
    # What a container of the gateway sets too.
    environment |= {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC", "HOME": str(folder)}
    arguments = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": arguments, "display_name": "stock", "language": "python"})
    )
    workdir = folder / "workdir"
    workdir.mkdir()
    manager = AsyncKernelManager(
        kernel_name="stock",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(spec.parent)]),
    )
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(workdir)}},
    )
    client.execute(env=environment)


def _run_ours(notebook: Any, gateway: Gateway) -> None:
    failure = asyncio.run(
        run_notebook(
            Endpoint(url=gateway.url, token=gateway.token),
            notebook,
            kernel_name=None,
            timeout_s=CELL_TIMEOUT_S,
            env={"LAMBDA_KERNEL_WORKSPACE": f"w{uuid.uuid4().hex[:12]}"},
            report=lambda *_: None,
        )
    )
    assert failure is None, failure


def _difference(expected: Any, found: Any) -> str:
    texts = [
        json.dumps(
            {"count": cell.execution_count, "outputs": normalised(cell.outputs)},
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
        ).replace("\\n", "\n")
        for cell in (expected, found)
    ]
    if texts[0] == texts[1]:
        return ""
    lines = difflib.unified_diff(
        texts[0].splitlines(), texts[1].splitlines(), "ipykernel", "gateway", lineterm="", n=1
    )
    return "\n".join(line[:400] for line in lines)
