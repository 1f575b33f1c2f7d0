"""What is a notebook, what is none and why, and where it can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kernel_gateway.errors import BadRequest
from kernel_gateway.web.notebook_file import (
    check_writable,
    foreign_language,
    read_notebook,
    write_notebook,
)

CODE = {"cell_type": "code", "source": ["1\n", "2"], "metadata": {}, "outputs": []}
V4 = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON (Expecting value: line 1"),
        ('{"a":\n x', "not JSON (Expecting value: line 2"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "nbformat must be 1 to 4, and is None"),
        ('{"nbformat": []}', "nbformat must be 1 to 4, and is []"),
        (json.dumps({**V4, "cells": 3}), "cells must be a list"),
        (json.dumps({"nbformat": 4, "cells": [], "metadata": {}}), "'nbformat_minor' is a req"),
        (json.dumps({**V4, "cells": [{**CODE, "cell_type": "kode"}]}), "'kode'"),
        (json.dumps({**V4, "nbformat": 3, "worksheets": 7}), "TypeError"),
        (json.dumps({"nbformat": 2, "worksheets": 7}), "TypeError"),
    ],
)
def test_what_is_no_notebook_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(BadRequest) as refused:
        read_notebook(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: is not a notebook: ")
    assert why in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("minor", [0, 4, 5])
def test_a_notebook_of_any_minor_format_is_read_without_a_word(tmp_path: Path, minor: int) -> None:
    content = {**V4, "nbformat_minor": minor, "cells": [{**CODE, "execution_count": None}]}
    (tmp_path / "n.ipynb").write_text(json.dumps(content))
    assert read_notebook(tmp_path / "n.ipynb").cells[0].source == "1\n2"


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({}, None),
        ({"kernelspec": {"name": "python3", "language": "python"}}, None),
        ({"language_info": {"name": "ipython"}}, None),
        ({"kernelspec": {"name": "ir", "language": "R"}}, "R"),
        ({"kernelspec": {"name": "x"}, "language_info": {"name": "julia"}}, "julia"),
    ],
)
def test_the_language_of_another_kernel_is_found(
    tmp_path: Path, metadata: dict[str, Any], language: str | None
) -> None:
    (tmp_path / "n.ipynb").write_text(json.dumps({**V4, "metadata": metadata, "cells": []}))
    assert foreign_language(read_notebook(tmp_path / "n.ipynb")) == language


def test_a_notebook_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")])
    check_writable(tmp_path / "n.ipynb")
    assert list(tmp_path.iterdir()) == []
    write_notebook(notebook, tmp_path / "n.ipynb")
    assert read_notebook(tmp_path / "n.ipynb").cells[0].source == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["n.ipynb"]
    with pytest.raises(BadRequest):
        write_notebook(notebook, tmp_path / "no" / "n.ipynb")


def test_a_place_that_cannot_be_written_is_found_before(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "n.ipynb", Path("/proc/n.ipynb")):
        with pytest.raises(BadRequest, match=str(path)):
            check_writable(path)
