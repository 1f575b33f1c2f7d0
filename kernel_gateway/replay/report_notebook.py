"""A replay as a notebook: the replayed outputs, and each cell's verdict in its metadata."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat import ValidationError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from kernel_gateway.audit.view import plain_text
from kernel_gateway.replay.report_html import headline
from kernel_gateway.replay.report_json import verdict_json
from kernel_gateway.replay.visible import visible

if TYPE_CHECKING:
    from kernel_gateway.replay.report import ComparedCell, Report

NAMESPACE = "lambda_kernel"
_CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()+.!|~$-])")


def notebook_of(report: Report) -> Any:
    """Return a valid notebook of nbformat 4.5. It is never trusted: no program signs it."""
    cover = new_markdown_cell(_cover(report), id="replay-cover")
    cells = [cover]
    taken = {"replay-cover"}
    for cell in report.cells:
        code = _code_cell(cell, _cell_id(cell, taken))
        taken.add(code["id"])
        cells.append(code)
    replay = {
        "replay_id": report.replay_id,
        "of": {"kernel_id": report.trail.kernel_id, "head": report.trail.head},
        "mode": report.mode,
        "counts": {str(standing): count for standing, count in report.counts.items()},
    }
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        NAMESPACE: {"replay": _writable(replay)},
    }
    return new_notebook(cells=cells, metadata=metadata, nbformat=4, nbformat_minor=5)


def _code_cell(cell: ComparedCell, cell_id: str) -> Any:
    pair, replayed = cell.pair, cell.pair.replayed
    outputs = [] if replayed is None else [_node(output) for output in replayed.outputs]
    valid = [output for output in outputs if _is_valid(output)]
    replay = {"number": pair.number, **verdict_json(cell.verdict)}
    if len(valid) < len(outputs):
        replay["invalid_outputs"] = len(outputs) - len(valid)
    metadata: dict[str, Any] = {NAMESPACE: {"replay": _writable(replay)}}
    if pair.tags:
        metadata["tags"] = sorted({plain_text(tag).replace(",", " ") for tag in pair.tags})
    return new_code_cell(
        source=plain_text(pair.source),
        id=cell_id,
        execution_count=None if replayed is None else max(pair.execution_count, 0),
        outputs=valid,
        metadata=metadata,
    )


def _node(output: Mapping[str, Any]) -> Any:
    return nbformat.from_dict(_writable(output))


def _is_valid(output: Any) -> bool:
    try:
        new_code_cell(outputs=[output])
    except (ValidationError, RecursionError):
        return False
    return True


def _cell_id(cell: ComparedCell, taken: set[str]) -> str:
    given = cell.pair.cell_id or ""
    if _CELL_ID.fullmatch(given) and given not in taken:
        return given
    made = f"replayed-{cell.pair.number}"
    while made in taken:
        made += "-"
    return made


def _cover(report: Report) -> str:
    trail = report.trail
    lines = [f"# {headline(report)}", ""]
    lines += [f"- {count:,} {standing}" for standing, count in report.counts.items()]
    lines += [
        "",
        f"Replay {_plain(report.replay_id)} of kernel {_plain(trail.kernel_id)} "
        f"(head {_plain(trail.head[:16])}), {_plain(report.mode)}, by {_plain(report.replayer)}, "
        f"{_plain(report.started)} to {_plain(report.finished)}.",
        "",
        "Outputs below are those of the replay; report.html shows them beside the recorded ones.",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return text in which Markdown and HTML find nothing."""
    return html.escape(_MARKDOWN.sub(r"\\\1", visible(text)))


def _writable(value: Any) -> Any:
    """Return JSON that every program can read: no NaN, no lone surrogate."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain_text(str(name)): _writable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value
