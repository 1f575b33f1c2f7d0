"""The outputs of a cell in a form that can be compared: laid side by side, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from kernel_gateway.audit.view import output_digest

Output = Mapping[str, Any]

MAX_ALIGNED = 300
"""More outputs of one cell are paired by their place alone."""
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPair:
    """An output as recorded and as replayed.

    Attributes:
        where: ``stdout``, ``stderr`` or ``output <n>``, n being its place, from 1.
        recorded, replayed: None where that side has none.
    """

    where: str
    recorded: Output | None
    replayed: Output | None


def side_by_side(recorded: Sequence[Output], replayed: Sequence[Output]) -> list[OutputPair]:
    """Return outputs in pairs: each stream as one text, then the others in their order.

    How a stream is cut into outputs, and where it stands between others, depends on when it was
    flushed.
    """
    pairs = []
    for name in STREAMS:
        one, other = _stream(recorded, name), _stream(replayed, name)
        if one is not None or other is not None:
            pairs.append(OutputPair(where=name, recorded=one, replayed=other))
    return pairs + _aligned(_others(recorded), _others(replayed))


def text_of(value: object) -> str:
    """Return what an output holds as text: that itself, lines joined, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False)


def traceback_of(output: Output) -> str:
    """Return the lines of an error's traceback."""
    lines = output.get("traceback")
    return "\n".join(text_of(line) for line in lines) if isinstance(lines, list) else ""


def data_of(output: Output) -> dict[str, Any]:
    """Return what a display shows, by MIME type."""
    data = output.get("data")
    return {str(mime): value for mime, value in data.items()} if isinstance(data, Mapping) else {}


def _stream(outputs: Sequence[Output], name: str) -> Output | None:
    texts = [text_of(output.get("text")) for output in outputs if _is_stream(output, name)]
    text = "".join(texts)
    # An empty write is none: whether it makes an output depends on when it was flushed too.
    return {"output_type": "stream", "name": name, "text": text} if text else None


def _is_stream(output: Output, name: str) -> bool:
    is_stderr = output.get("name") == "stderr"
    return output.get("output_type") == "stream" and is_stderr == (name == "stderr")


def _others(outputs: Sequence[Output]) -> list[tuple[int, Output]]:
    return [
        (number, output)
        for number, output in enumerate(outputs, 1)
        if output.get("output_type") != "stream"
    ]


def _aligned(
    recorded: list[tuple[int, Output]], replayed: list[tuple[int, Output]]
) -> list[OutputPair]:
    if len(recorded) == len(replayed) or max(len(recorded), len(replayed)) > MAX_ALIGNED:
        return _by_place(recorded, replayed)
    keys, others = ([output_digest(output) for _, output in each] for each in (recorded, replayed))
    pairs = []
    for _, begin, end, other_begin, other_end in SequenceMatcher(
        None, keys, others, autojunk=False
    ).get_opcodes():
        pairs += _by_place(recorded[begin:end], replayed[other_begin:other_end])
    return pairs


def _by_place(
    recorded: list[tuple[int, Output]], replayed: list[tuple[int, Output]]
) -> list[OutputPair]:
    pairs = []
    for one, other in zip_longest(recorded, replayed):
        number = (one or other)[0]
        pairs.append(
            OutputPair(
                where=f"output {number}",
                recorded=None if one is None else one[1],
                replayed=None if other is None else other[1],
            )
        )
    return pairs
