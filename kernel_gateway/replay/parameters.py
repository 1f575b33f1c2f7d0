"""Parameters of a replay, as papermill sets them: a cell after the one tagged ``parameters``.

A cell that papermill, or a replay, has injected before is replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_gateway.errors import BadRequest
from kernel_gateway.replay.recorded import RecordedCell

TAG = "parameters"
INJECTED_TAG = "injected-parameters"


def value_of(text: str) -> Any:
    """Return what a value on a command line is: as papermill's ``-p``, a number, bool or text."""
    words: dict[str, Any] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def source_of(parameters: Mapping[str, Any]) -> str:
    """Return the code that sets them (raises BadRequest)."""
    lines = ["# Parameters"]
    for name, value in parameters.items():
        try:
            lines.append(f"{name} = {_literal(value, name)}")
        except RecursionError:
            raise BadRequest(f"-p {name}: is nested too deeply") from None
    return "\n".join(lines) + "\n"


def place_of(cells: Sequence[RecordedCell]) -> int | None:
    """Return how many cells come before they are set, None where no cell says.

    Those before the cell that was injected, else up to the first that is tagged.
    """
    for place, cell in enumerate(cells):
        if INJECTED_TAG in cell.tags:
            return place
    for place, cell in enumerate(cells, 1):
        if TAG in cell.tags:
            return place
    return None


def _literal(value: Any, name: str) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item, name) for item in value)}]"
    if isinstance(value, dict):
        items = (f"{_literal(k, name)}: {_literal(v, name)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    raise BadRequest(f"-p {name}: must be JSON, or text")
