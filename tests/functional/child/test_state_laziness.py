"""What a cell does not read costs nothing; what it did not change is not written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lambda_kernel.contract.commit import CHUNK_BYTES

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook, Result

SMALL_BYTES = 64 * 1024
SETUP = """\
import numpy as np
big = np.zeros(12_500_000)
x = [1]
def read_big():
    return float(big[0])
def other():
    return read_big()
class Unused:
    data = list(range(1_000_000))
"""


@pytest.fixture
def session(notebook: Notebook) -> Notebook:
    notebook.run(SETUP)
    return notebook


def _written_bytes(result: Result) -> int:
    assert result.report is not None
    return result.report.size_bytes


def _large(notebook: Notebook) -> set[int]:
    return {
        number for number, body in notebook.objects.bodies.items() if len(body) > 12 * CHUNK_BYTES
    }


@pytest.mark.parametrize(
    "code",
    ["x.append(2)", "y = 5", "1 / 0", "import os", "del x", "z = 'big!'[:0]"],
)
def test_an_unread_array_is_never_asked_for(session: Notebook, code: str) -> None:
    (large,) = _large(session)

    session.ask(code)

    asked = large in session.objects.asked
    assert asked == ("big!" in code)
    assert large in session.objects.bodies


@pytest.mark.parametrize(
    "code", ["big = None", "del big", "del x, big\ny = 1", "for big in (): pass"]
)
def test_an_array_that_is_replaced_or_deleted_is_not_asked_for(
    session: Notebook, code: str
) -> None:
    session.run(code)

    assert session.objects.asked_bytes < SMALL_BYTES
    assert bool(_large(session)) == ("for" in code)


def test_an_unread_definition_is_not_loaded(session: Notebook) -> None:
    result = session.run("x.append(2)\nUnused_ = 1")

    assert session.objects.asked_bytes < SMALL_BYTES
    assert _written_bytes(result) < SMALL_BYTES


@pytest.mark.parametrize("code", ["pass", "s = None", "x", "print(x)", "other() + read_big()"])
def test_a_cell_that_only_reads_writes_one_pack_and_the_index(session: Notebook, code: str) -> None:
    before = _large(session)

    result = session.run(code)

    assert result.report is not None
    assert result.report.patched == ()
    assert len(result.report.new) <= 2
    assert _written_bytes(result) < SMALL_BYTES
    assert _large(session) == before


def test_reading_through_functions_asks_for_the_array_once(session: Notebook) -> None:
    (large,) = _large(session)

    assert session.run("other()").text == "0.0"

    assert session.objects.asked.count(large) == 1


@pytest.mark.parametrize("index", [0, 524_288, 6_000_000, 12_499_999])
def test_one_changed_element_is_one_chunk(session: Notebook, index: int) -> None:
    result = session.run(f"big[{index}] = 1")

    assert result.report is not None
    (patched,) = result.report.patched
    assert [number for number, _ in patched.chunks] == [index * 8 // CHUNK_BYTES]
    assert _written_bytes(result) < CHUNK_BYTES + SMALL_BYTES
    assert session.run(f"float(big[{index}]), float(big.sum())").text == "(1.0, 1.0)"


def test_one_element_changed_through_a_view_of_another_cell_is_one_chunk(
    session: Notebook,
) -> None:
    session.run("tail = big[-10:]\nrows = big.reshape(-1, 100)")

    result = session.run("tail[3] = 5")

    assert result.report is not None
    assert [len(patched.chunks) for patched in result.report.patched] == [1]
    assert session.run("float(rows[-1, 93]), float(big[-7])").text == "(5.0, 5.0)"


def test_a_change_that_is_undone_may_be_written_but_not_twice(session: Notebook) -> None:
    session.run("big[0] = 1", "big[0] = 0")

    result = session.run("float(big[0])")

    assert result.text == "0.0"
    assert _written_bytes(result) < SMALL_BYTES


def test_a_new_name_for_a_large_array_does_not_write_it_again(session: Notebook) -> None:
    before = _large(session)

    result = session.run("alias = big")

    assert _large(session) == before
    assert _written_bytes(result) < SMALL_BYTES
    assert session.run("alias is big").text == "True"


def test_a_changed_column_leaves_the_other_columns_alone(notebook: Notebook) -> None:
    notebook.run(
        "import pandas as pd, numpy as np\n"
        "df = pd.DataFrame({'a': np.arange(1_000_000), 'b': np.arange(1_000_000) / 2})"
    )

    result = notebook.run("df['c'] = 1")
    again = notebook.run("float(df['b'].sum())")

    assert _written_bytes(result) < 8_000_000 + 2 * SMALL_BYTES
    assert _written_bytes(again) < SMALL_BYTES


def test_a_large_bytes_or_list_that_is_read_is_not_written_again(notebook: Notebook) -> None:
    notebook.run("blob = bytes(3_000_000)\nnumbers = list(range(500_000))")

    result = notebook.run("len(blob), sum(numbers)")

    assert _written_bytes(result) < SMALL_BYTES


def test_a_bound_kernel_asks_for_many_objects_at_once(notebook: Notebook) -> None:
    names = [f"v{n}" for n in range(20)]
    notebook.run("import numpy as np", *(f"{name} = np.ones(100_000)" for name in names))
    before: list[Any] = list(notebook.objects.asked)

    total = notebook.run(f"sum(float(v.sum()) for v in ({', '.join(names)}))").text

    assert total == "2000000.0"
    assert len(notebook.objects.asked) - len(before) >= 20
