"""What can be said of code without running any: keywords, builtins, magics and known names."""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections.abc import Iterable
from typing import Any

from IPython.core import magics
from IPython.core.magic import Magics

from kernel_gateway.messaging.message import InMessage

_WORD = re.compile(r"(?:%{1,2})?[^\W\d]?\w*$")
MAX_WORD_CHARACTERS = 1000
_EXPERIMENTAL_TYPES = "_jupyter_types_experimental"


def static_answer(message: InMessage, names: Iterable[str]) -> dict[str, Any]:
    """Return the content of the reply to a complete_ or inspect_request, without a container.

    Args:
        message: the request, checked.
        names: of the session's variables.
    """
    if message.msg_type == "inspect_request":
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    cursor = message.content["cursor_pos"]
    begin, matches = _matches(message.content["code"][:cursor], names)
    types = [
        {"start": begin, "end": cursor, "text": text, "type": kind, "signature": ""}
        for text, kind in matches.items()
    ]
    return {
        "status": "ok",
        "matches": list(matches),
        "cursor_start": begin,
        "cursor_end": cursor,
        "metadata": {_EXPERIMENTAL_TYPES: types},
    }


def _matches(before: str, names: Iterable[str]) -> tuple[int, dict[str, str]]:
    """Return where the word at the end of ``before`` begins, and how it may go on: text to type."""
    # Not more: the expression tries each beginning of a word anew.
    line = before[before.rfind("\n") + 1 :][-MAX_WORD_CHARACTERS:]
    found = _WORD.search(line)
    word = found.group() if found else ""
    begin = len(before) - len(word)
    if not word or before[:begin].endswith((".", "'", '"')):
        # Of attributes, keys and files nothing is known here.
        return len(before), {}
    known = (
        _magics() if word.startswith("%") else {**_language(), **dict.fromkeys(names, "instance")}
    )
    return begin, {text: known[text] for text in sorted(known) if text.startswith(word)}


@functools.cache
def _language() -> dict[str, str]:
    known = dict.fromkeys((n for n in vars(builtins) if not n.startswith("_")), "function")
    return known | dict.fromkeys(keyword.kwlist, "keyword")


@functools.cache
def _magics() -> dict[str, str]:
    found = (getattr(magics, name) for name in dir(magics))
    classes = [each for each in found if isinstance(each, type) and issubclass(each, Magics)]
    tables: list[Any] = [each.magics for each in classes if each.registered]
    lines = {f"%{name}" for table in tables for name in table["line"]}
    cells = {f"%%{name}" for table in tables for name in table["cell"]}
    return dict.fromkeys(lines | cells, "magic")
