"""The contents of clients' requests: tolerant of what is missing, strict about types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernel_gateway.messaging.message import BadMessage, InMessage

_CODE_AT = {"code": str, "cursor_pos": int}

FIELDS: Mapping[str, Mapping[str, type]] = {
    "execute_request": {
        "code": str,
        "silent": bool,
        "store_history": bool,
        "user_expressions": dict,
        "allow_stdin": bool,
        "stop_on_error": bool,
    },
    "complete_request": _CODE_AT,
    "inspect_request": {**_CODE_AT, "detail_level": int},
    "is_complete_request": {"code": str},
    "history_request": {
        "output": bool,
        "raw": bool,
        "hist_access_type": str,
        "session": int,
        "start": int,
        "stop": int,
        "n": int,
        "pattern": str,
        "unique": bool,
    },
    "comm_info_request": {"target_name": str},
    "comm_open": {"comm_id": str, "target_name": str, "data": dict},
    "comm_msg": {"comm_id": str, "data": dict},
    "comm_close": {"comm_id": str, "data": dict},
    "cells_request": {"last": int},
    "kernel_info_request": {},
    "shutdown_request": {"restart": bool},
    "interrupt_request": {},
}
"""The fields of each request and their types. Source: Jupyter messaging spec 5.4; cells_request is
our own."""

COMM_MESSAGES = frozenset({"comm_open", "comm_msg", "comm_close"})
MAX_COMM_NAME = 200
"""Characters of a comm's id, and of its target's name; those of front ends have 36."""

_JSON_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    dict: "an object",
    list: "an array",
    float: "a number",
}


def checked(message: InMessage) -> InMessage:
    """Return the request with checked content; null stands for a field that is missing.

    Fields that the spec does not name stay as they are. So does a message of another type.

    Raises:
        BadMessage: naming the field and what is wrong with it.
    """
    fields = FIELDS.get(message.msg_type)
    if fields is None:
        return message
    content = {name: value for name, value in message.content.items() if value is not None}
    for name, expected in fields.items():
        if name in content:
            _check(f"content.{name}", content[name], expected)
    if message.msg_type == "execute_request":
        if "code" not in content:
            raise BadMessage("content.code is missing")
        for name, value in content.get("user_expressions", {}).items():
            _check(f"content.user_expressions[{name[:64]!r}]", value, str)
    if message.msg_type in COMM_MESSAGES:
        _check_comm(message, content)
    return replace(message, content=content)


def _check_comm(message: InMessage, content: Mapping[str, Any]) -> None:
    names = ("comm_id", "target_name") if message.msg_type == "comm_open" else ("comm_id",)
    for name in names:
        if not 0 < len(content.get(name, "")) <= MAX_COMM_NAME:
            raise BadMessage(f"content.{name} must be text of 1 to {MAX_COMM_NAME} characters")
    try:
        # What the child would read is plain Unicode JSON.
        text = json.dumps([content, message.metadata], ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):
        raise BadMessage("content.data and metadata must be plain Unicode JSON") from None


def _check(name: str, value: Any, expected: type) -> None:
    if type(value) is not expected:
        found = _JSON_NAMES.get(type(value), "null")
        raise BadMessage(f"{name} must be {_JSON_NAMES[expected]}, not {found}")
