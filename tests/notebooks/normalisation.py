"""What may differ between two runs of one notebook although nothing is wrong.

Each rule stands here with its reason; everything else is compared byte by byte, images included.
"""

from __future__ import annotations

import json
import re
from typing import Any

RULES: tuple[tuple[str, str, str], ...] = (
    # The default repr of objects, functions and of what holds them: where they are in memory.
    ("memory addresses", r"\b0x[0-9a-f]{6,16}\b", "0xADDRESS"),
    # %timeit, %time: how long it took.
    (
        "%timeit",
        r"[\d.e+]+ (?:ns|[µμ]s|ms|s) ± [\d.e+]+ (?:ns|[µμ]s|ms|s) per loop \(mean ± std\. dev\. of "
        r"\d+ runs?, [\d,]+ loops? each\)",
        "TIMEIT",
    ),
    (
        "%time",
        r"(CPU times: |Wall time: |user |sys: |total: )[\d.e+]+ (?:ns|[µμ]s|ms|s|min)[\d. ms]*",
        r"\1TIME",
    ),
    # A progress bar is drawn again as often as time permits; what counts is what is seen at last.
    ("what is overwritten", r"(?m)^[^\n]*\r(?=[^\r\n])", ""),
    ("speed of progress bars", r"(\d+/\d+)[ \xa0]\[[^\]\n]*\]", r"\1"),
    # A venv's packages are bound over the base interpreter's own folder in a container.
    # (A path is looked for where one begins: scripts of some megabytes are one line.)
    (
        "folders of packages",
        r"(?<![^\s'\"(<>])[^\s'\"(<>]*/(?:site|dist)-packages/",
        "PACKAGES/",
    ),
    # Warnings name the file that a cell was compiled as: after the process in stock ipykernel, the
    # same in every process here.
    ("files of cells", r"/tmp/ipykernel_\d+/\d+\.py", "CELL"),
    # matplotlib writes the time into SVG, and names clip paths and markers by a random salt.
    ("dates in SVG", r"<dc:date>[^<]*</dc:date>", "<dc:date/>"),
    ("ids in SVG", r"(?<=[\"#])[mp][0-9a-f]{10}(?=[\")])", "ID"),
    # Widgets and comms are named by random numbers.
    ("ids of widgets", r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", "ID"),
)
"""Name, pattern and replacement, applied in this order to every text of an output."""

_COMPILED = [(re.compile(pattern), replacement) for _, pattern, replacement in RULES]


def normalised(outputs: list[Any]) -> list[dict[str, Any]]:
    """Return the outputs of a cell in the form in which they are compared.

    Streams are one output each for a run of writes: how a text is cut into messages depends on
    when it was flushed. Execution counts are kept, they must be equal.
    """
    merged: list[dict[str, Any]] = []
    for output in json.loads(json.dumps(outputs)):
        last = merged[-1] if merged else {}
        is_stream = output["output_type"] == "stream"
        if is_stream and last.get("output_type") == "stream" and last["name"] == output["name"]:
            last["text"] += output["text"]
        else:
            merged.append(output)
    return [rewritten(output) for output in merged]


def rewritten(value: Any) -> Any:
    """Return a value with what differs by chance replaced, as RULES say."""
    if isinstance(value, str):
        for pattern, replacement in _COMPILED:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, list):
        return [rewritten(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "image/png" else rewritten(item) for key, item in value.items()}
    return value
