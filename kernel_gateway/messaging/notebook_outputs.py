"""The outputs of a cell as a notebook file holds them (nbformat 4), made from its messages."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import fastjsonschema

from kernel_gateway.messaging.message import OutMessage

logger = logging.getLogger(__name__)

SCHEMA = "nbformat.v4.5.schema.json"
OUTPUTS = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
"""What each output has of the content of its message."""


def outputs_of(messages: Iterable[OutMessage]) -> list[dict[str, Any]]:
    """Return the outputs that stand below a cell after ``messages``, as nbclient would leave them.

    Stream text of one name that follows itself is one output; ``update_display_data`` changes the
    displays of this cell with that id; ``clear_output`` takes away what was there, with ``wait``
    when the next output comes. Messages of other types are left out.
    """
    collector = _Collector()
    for message in messages:
        collector.take(message)
    return collector.outputs


class _Collector:
    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self._clear_first = False

    def take(self, message: OutMessage) -> None:
        msg_type, content = message.msg_type, message.content
        if msg_type == "clear_output":
            self._clear_first = bool(content.get("wait"))
            if not self._clear_first:
                self._clear()
        elif msg_type == "update_display_data":
            self._update(content)
        elif msg_type in OUTPUTS:
            if self._clear_first:
                self._clear_first = False
                self._clear()
            self._add(message)

    def _add(self, message: OutMessage) -> None:
        last = self.outputs[-1] if self.outputs else {}
        new = _output(message)
        if new is None:
            return
        if new["output_type"] == "stream" and last.get("name") == new["name"]:
            last["text"] += new["text"]
            return
        self.outputs.append(new)
        for display_id in _display_ids(message.content):
            # Showing a display again under its id also updates where it stood before.
            self._update(message.content)
            self._displays.setdefault(display_id, []).append(new)

    def _update(self, content: dict[str, Any]) -> None:
        for display_id in _display_ids(content):
            for shown in self._displays.get(display_id, ()):
                shown["data"] = content.get("data", {})
                shown["metadata"] = content.get("metadata", {})

    def _clear(self) -> None:
        self.outputs.clear()
        self._displays.clear()


def _output(message: OutMessage) -> dict[str, Any] | None:
    kind, content = message.msg_type, message.content
    try:
        output = {"output_type": kind, **{name: content[name] for name in OUTPUTS[kind]}}
        _check()(output)
    except (KeyError, TypeError, fastjsonschema.JsonSchemaValueException):
        logger.warning("an output has no notebook form", extra={"msg_type": kind})
        return None
    return output


@functools.cache
def _check() -> Callable[[dict[str, Any]], object]:
    """Return what raises JsonSchemaValueException for what is no output of a notebook.

    nbformat's own check of one output takes ten times as long, and a trail has many.
    """
    # Only now: nbformat takes longer to import than most commands take.
    text = resources.files("nbformat.v4").joinpath(SCHEMA).read_text(encoding="utf-8")
    whole = json.loads(text)
    output = {name: whole[name] for name in ("$schema", "definitions")}
    output["$ref"] = "#/definitions/output"
    check: Callable[[dict[str, Any]], object] = fastjsonschema.compile(output, use_default=False)
    return check


def _display_ids(content: dict[str, Any]) -> list[str]:
    transient = content.get("transient")
    found = transient.get("display_id") if isinstance(transient, dict) else None
    return [found] if isinstance(found, str) and found else []
