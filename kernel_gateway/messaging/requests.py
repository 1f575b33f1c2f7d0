"""The contents of clients' requests: tolerant of what is missing, strict about types."""

from __future__ import annotations

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
    "kernel_info_request": {},
    "shutdown_request": {"restart": bool},
    "interrupt_request": {},
}
"""The fields of each request and their types. Source: Jupyter messaging spec 5.4."""

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
            _check(f"content.user_expressions[{name!r}]", value, str)
    return replace(message, content=content)


def _check(name: str, value: Any, expected: type) -> None:
    if type(value) is not expected:
        found = _JSON_NAMES.get(type(value), "null")
        raise BadMessage(f"{name} must be {_JSON_NAMES[expected]}, not {found}")
