"""Parameters are set as papermill sets them."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from papermill.parameterize import parameterize_notebook  # type: ignore[import-untyped]

from kernel_gateway.errors import BadRequest
from kernel_gateway.replay.parameters import place_of, source_of, value_of
from tests.unit.replay.trails import a_cell

KERNEL = {"name": "p", "display_name": "P", "language": "python"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.5", 1.5), ("True", True), ("None", None), ("a b", "a b"), ("1_0x", "1_0x")],
)
def test_a_value_on_the_command_line_is_a_number_a_word_or_text(text: str, value: Any) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


def test_the_code_sets_exactly_these_values() -> None:
    values = {
        "text": "a\"\\\n\u2028{x}'''",
        "number": -1,
        "rate": 0.1,
        "large": float("inf"),
        "flag": False,
        "nothing": None,
        "listed": [1, {"k": ["v"]}],
    }
    found: dict[str, Any] = {}
    exec(source_of(values), {}, found)
    assert found == values


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BadRequest, match="-p x"):
        source_of({"x": object()})


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadRequest, match="-p x: is nested too deeply"):
        source_of({"x": deep})


@pytest.mark.parametrize(
    "tags",
    [
        ["", "", ""],
        ["", "parameters", ""],
        ["parameters", "", "parameters"],
        ["", "parameters", "injected-parameters", ""],
        ["injected-parameters", "", "parameters"],
    ],
)
def test_they_come_where_papermill_puts_them(tags: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL, "papermill": {}})
    for number, tag in enumerate(tags, 1):
        metadata = {"tags": [tag] if tag else []}
        notebook.cells.append(nbformat.v4.new_code_cell(f"cell {number}", metadata=metadata))
    theirs = parameterize_notebook(notebook, {"x": 3}, report_mode=False)
    found = [cell.source if "cell" in cell.source else "injected" for cell in theirs.cells]

    cells = [a_cell(number, tags=[tag] if tag else []) for number, tag in enumerate(tags, 1)]
    place = place_of(cells) or 0
    ours = [f"cell {cell.number}" for cell in cells]
    ours[place : place + tags[place:][:1].count("injected-parameters")] = ["injected"]
    assert ours == found


def test_they_come_after_the_first_tagged_cell_or_in_place_of_what_was_injected() -> None:
    cells = [a_cell(1), a_cell(2, tags=["parameters"]), a_cell(3, tags=["parameters"])]
    assert place_of(cells) == 2
    assert place_of(cells[:1]) is None
    injected = [*cells[:2], a_cell(3), a_cell(4, tags=["injected-parameters"])]
    assert place_of(injected) == 3
