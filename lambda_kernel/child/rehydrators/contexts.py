"""Context variables: name, default, value."""

from __future__ import annotations

import contextvars
from typing import Any


def reduce_context_var(var: contextvars.ContextVar[Any]) -> Any:
    """Carry what the cell would see."""
    try:
        default: tuple[Any, ...] = (contextvars.Context().run(var.get),)
    except LookupError:
        default = ()
    value = (var.get(),) if var in contextvars.copy_context() else None
    return make_context_var, (var.name, *default), value, None, None, _set_value


def make_context_var(name: str, *default: Any) -> contextvars.ContextVar[Any]:
    """Return a context variable that has no value yet."""
    if default:
        return contextvars.ContextVar(name, default=default[0])
    return contextvars.ContextVar(name)


def _set_value(var: contextvars.ContextVar[Any], value: tuple[Any]) -> None:
    var.set(value[0])
