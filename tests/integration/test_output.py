"""What a cell says on its way to the client: whole, in order, and explained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient


def test_all_of_an_output_that_was_cut_can_be_fetched(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    run = kernel.execute("for i in range(15): print(str(i % 10) * 1_000_000)\n1 / 0")

    assert len(run.stdout) < 15 * 1_000_000
    found = re.search(r"the whole is kept: GET (/api/kernels/\S+)", run.stderr)
    assert found is not None
    kept = gateway.rest("GET", found[1])
    assert kept.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = kept.text.splitlines()
    assert lines[:15] == [str(i % 10) * 1_000_000 for i in range(15)]
    assert "ZeroDivisionError" in lines[-1]


def test_what_is_printed_and_what_programs_write_keep_their_order(kernel: NotebookClient) -> None:
    run = kernel.execute(
        "import os\n"
        "for i in range(30):\n    print(i)\n    _ = os.system(f'echo program {i}')\n"
        "'end'"
    )

    assert run.stdout.split("\n")[:-1] == [
        line for i in range(30) for line in (str(i), f"program {i}")
    ]
    assert run.types[-3:] == ["execute_result", "execute_reply", "status"]


def test_a_plot_that_needs_a_window_says_what_to_do_instead(kernel: NotebookClient) -> None:
    run = kernel.execute("%matplotlib widget")

    assert "Use %matplotlib inline" in run.stderr


def test_a_crash_says_where_it_was(kernel: NotebookClient) -> None:
    run = kernel.execute("import ctypes\nctypes.string_at(0)")

    assert "Fatal Python error: Segmentation fault" in run.stderr
    assert run.reply["ename"] == "CellProcessDied"
