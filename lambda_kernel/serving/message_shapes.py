"""The shape of what a child may say: clients are given no message that they cannot read.

Source: Jupyter messaging spec 5.4, the contents of iopub messages and of replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[Any], bool]
STREAMS = ("stdout", "stderr")


def is_text(value: Any) -> bool:
    """Return whether ``value`` is a string."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a whole number."""
    return type(value) is int


def is_flag(value: Any) -> bool:
    """Return whether ``value`` is true or false."""
    return isinstance(value, bool)


def is_object(value: Any) -> bool:
    """Return whether ``value`` is an object; the names in one are strings in any JSON."""
    return isinstance(value, dict)


def is_texts(value: Any) -> bool:
    """Return whether ``value`` is an array of strings."""
    return isinstance(value, list) and all(map(is_text, value))


def is_objects(value: Any) -> bool:
    """Return whether ``value`` is an array of objects."""
    return isinstance(value, list) and all(map(is_object, value))


def _is_stream(value: Any) -> bool:
    return value in STREAMS


def _is_transient(value: Any) -> bool:
    return is_object(value) and is_text(value.get("display_id", ""))


def _is_display(value: Any) -> bool:
    return _is_transient(value) and "display_id" in value


def _is_text_or_null(value: Any) -> bool:
    return value is None or is_text(value)


def _are_expressions(value: Any) -> bool:
    return is_object(value) and all(map(is_object, value.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields of a content.

    Attributes:
        checks: of every known field; others are left out.
        defaults: what stands for a field that is missing.
        optional: what may be missing without one.
    """

    checks: Mapping[str, Check]
    defaults: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()

    def read(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the known fields of ``content``, complete; None where it has not this shape."""
        found: dict[str, Any] = {}
        for name, check in self.checks.items():
            if name in content:
                found[name] = content[name]
            elif name in self.defaults:
                found[name] = self.defaults[name]()
            elif name in self.optional:
                continue
            if name not in found or not check(found[name]):
                return None
        return found


_BUNDLE: dict[str, Check] = {"data": is_object, "metadata": is_object}
_TRANSIENT: dict[str, Check] = {**_BUNDLE, "transient": _is_transient}
_ERROR: dict[str, Check] = {"ename": is_text, "evalue": is_text, "traceback": is_texts}
_COMM: dict[str, Check] = {"comm_id": is_text, "data": is_object}

MESSAGES: Mapping[str, Shape] = {
    "stream": Shape(checks={"name": _is_stream, "text": is_text}),
    "display_data": Shape(checks=_TRANSIENT, defaults={"metadata": dict, "transient": dict}),
    "update_display_data": Shape(
        checks={**_BUNDLE, "transient": _is_display}, defaults={"metadata": dict}
    ),
    "execute_result": Shape(
        checks={**_TRANSIENT, "execution_count": is_number},
        defaults={"metadata": dict},
        optional=frozenset({"transient"}),
    ),
    "error": Shape(checks=_ERROR),
    "clear_output": Shape(checks={"wait": is_flag}, defaults={"wait": bool}),
    "comm_open": Shape(
        checks={**_COMM, "target_name": is_text, "target_module": _is_text_or_null},
        defaults={"data": dict},
        optional=frozenset({"target_module"}),
    ),
    "comm_msg": Shape(checks=_COMM, defaults={"data": dict}),
    "comm_close": Shape(checks=_COMM, defaults={"data": dict}),
    "input_request": Shape(
        checks={"prompt": is_text, "password": is_flag}, defaults={"prompt": str, "password": bool}
    ),
}
"""By type: the content of each message that is taken from a child."""

_EXECUTED: dict[str, Check] = {
    "execution_count": is_number,
    "payload": is_objects,
    "user_expressions": _are_expressions,
}
_EXECUTED_DEFAULTS: Mapping[str, Callable[[], Any]] = {"payload": list, "user_expressions": dict}

REPLIES: Mapping[str, Shape] = {
    "execute_reply": Shape(checks=_EXECUTED, defaults=_EXECUTED_DEFAULTS),
    "complete_reply": Shape(
        checks={
            "matches": is_texts,
            "cursor_start": is_number,
            "cursor_end": is_number,
            "metadata": is_object,
        },
        defaults={"metadata": dict},
    ),
    "inspect_reply": Shape(
        checks={"found": is_flag, **_BUNDLE}, defaults={"data": dict, "metadata": dict}
    ),
}
"""By type: the content of each reply with status ``ok``."""

_FAILED: Mapping[str, Shape] = {
    "execute_reply": Shape(
        checks={**_ERROR, **_EXECUTED},
        defaults=_EXECUTED_DEFAULTS,
        optional=frozenset({"execution_count"}),
    ),
}


def read_message(msg_type: object, content: object) -> dict[str, Any] | None:
    """Return the content of a child's message, or None where a client could not read it."""
    shape = MESSAGES.get(msg_type) if isinstance(msg_type, str) else None
    return shape.read(content) if shape is not None and isinstance(content, dict) else None


def read_reply(msg_type: str, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of a child's reply, or None where a client could not read it."""
    status = content.get("status", "ok")
    if status == "ok":
        shape = REPLIES.get(msg_type)
    elif status == "error":
        shape = _FAILED.get(msg_type, Shape(checks=_ERROR))
    elif status == "aborted":
        shape = Shape(checks={})
    else:
        return None
    # Requests of our own have no shape here: who asked reads the answer with care.
    found = dict(content) if shape is None else shape.read(content)
    return None if found is None else {**found, "status": status}
