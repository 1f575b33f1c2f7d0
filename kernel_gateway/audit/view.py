"""A cell's outputs as a trail's notebook shows them, and digests that survive other programs.

JupyterLab and others write a notebook anew: text becomes lists of lines, 1.0 becomes 1, a number
of 2^53 or more another one. A digest here is over what all of them leave alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from kernel_gateway.audit.chain import RecordedMessage
from kernel_gateway.messaging.message import OutMessage
from kernel_gateway.messaging.notebook_outputs import outputs_of

INLINE_OUTPUT_BYTES = 256 * 1024
"""A larger output is shown by its beginning; all of it is in the cell's blob."""
PREVIEW_CHARACTERS = 2000
BLOB_FOLDER = "blobs/sha256"
EXACT_INT = 2**53
LARGEST = 1e308


def blob_reference(digest: str) -> str:
    """Return where a blob stands beside a notebook."""
    return f"{BLOB_FOLDER}/{digest}"


def shown_outputs(messages: Iterable[RecordedMessage], blob: str | None) -> list[dict[str, Any]]:
    """Return the outputs of a cell's messages as a valid notebook has them.

    Args:
        messages: all of the cell's.
        blob: digest of the object that holds them, where there is one; to it a large output refers.
    """
    shown = outputs_of(_valid_messages(messages))
    return [_shown(index, output, blob) for index, output in enumerate(shown)]


def output_digest(output: Mapping[str, Any], salt: str = "") -> str:
    """Return the digest of an output in a notebook, whichever program has written that."""
    joined = {name: _joined(value) if name == "text" else value for name, value in output.items()}
    data = output.get("data")
    if isinstance(data, Mapping):
        joined["data"] = {
            mime: value if _is_json(str(mime)) else _joined(value) for mime, value in data.items()
        }
    text = salt + json.dumps(_canonical(joined), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def source_text(source: object) -> str | None:
    """Return the source of a notebook's cell, None where it is none."""
    joined = _joined(source)
    return joined if isinstance(joined, str) else None


def plain_text(text: str) -> str:
    """Return text that every program can write: lone surrogates replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(value: Any) -> Any:
    """Return JSON that every program can read: no NaN, no lone surrogate."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain_text(str(name)): plain(item) for name, item in value.items()}
    return value


def _valid_messages(messages: Iterable[RecordedMessage]) -> Iterator[OutMessage]:
    """Yield messages whose content a notebook can hold, text that follows itself as one."""
    for (kind, name), group in groupby(messages, _stream_name):
        if kind == "stream":
            text = "".join(_text(each.content.get("text")) for each in group)
            yield _message(kind, {"name": name, "text": text})
            continue
        for each in group:
            valid = _VALID.get(kind)
            yield _message(kind, each.content if valid is None else valid(each.content))


def _stream_name(message: RecordedMessage) -> tuple[str, str]:
    kind = str(message.header.get("msg_type"))
    name = message.content.get("name") if kind == "stream" else ""
    return kind, name if name in ("stderr", "") else "stdout"


def _message(kind: str, content: dict[str, Any]) -> OutMessage:
    header = {"msg_type": kind}
    return OutMessage(
        channel="iopub", header=header, parent_header={}, metadata={}, content=content
    )


def _valid_error(content: Mapping[str, Any]) -> dict[str, Any]:
    lines = content.get("traceback")
    return {
        "ename": _text(content.get("ename")),
        "evalue": _text(content.get("evalue")),
        "traceback": [_text(line) for line in lines] if isinstance(lines, list) else [],
    }


def _valid_display(content: Mapping[str, Any]) -> dict[str, Any]:
    data, metadata = content.get("data"), content.get("metadata")
    count = content.get("execution_count")
    return {
        "data": {
            _text(mime): plain(value) if _is_json(mime) else _text(value)
            for mime, value in (data.items() if isinstance(data, dict) else ())
        },
        "metadata": plain(metadata) if isinstance(metadata, dict) else {},
        "execution_count": count if type(count) is int and count >= 0 else None,
        "transient": content.get("transient"),
    }


_VALID: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "error": _valid_error,
    "display_data": _valid_display,
    "execute_result": _valid_display,
    "update_display_data": _valid_display,
}


def _shown(index: int, valid: dict[str, Any], blob: str | None) -> dict[str, Any]:
    if blob is None:
        return valid
    size_bytes = len(json.dumps(valid))
    if size_bytes <= INLINE_OUTPUT_BYTES:
        return valid
    where = blob_reference(blob)
    note = f"\n[{size_bytes:,} bytes: all of it is output {index} in {where}]\n"
    kind = valid["output_type"]
    if kind == "stream":
        return {**valid, "text": valid["text"][:PREVIEW_CHARACTERS] + note}
    if kind == "error":
        begins = {name: valid[name][:PREVIEW_CHARACTERS] for name in ("ename", "evalue")}
        return {**valid, **begins, "traceback": [note]}
    data = valid["data"]
    begin = data.get("text/plain")
    text = begin[:PREVIEW_CHARACTERS] if isinstance(begin, str) else ", ".join(sorted(data)[:20])
    shown = {"data": {"text/plain": text + note}, "metadata": {}}
    return {**valid, **shown}


def _joined(value: object) -> object:
    """Return text that may stand as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value


def _is_json(mime: str) -> bool:
    return mime.startswith("application/") and mime.partition(";")[0].endswith("json")


def _text(value: object) -> str:
    value = _joined(value)
    return plain_text(value if isinstance(value, str) else json.dumps(plain(value)))


def _canonical(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        # As doubles, which is what a program in JavaScript has left of them.
        if isinstance(value, int) and abs(value) < EXACT_INT:
            return value
        number = float(max(min(value, LARGEST), -LARGEST))
        return int(number) if number.is_integer() and abs(number) < EXACT_INT else number
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return {str(name): _canonical(item) for name, item in value.items()}
