"""Strict decoding of plain JSON values into frozen dataclasses, with errors that name the field."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")

_MISSING = dataclasses.MISSING

Check = Callable[[Any], Any]
"""Returns a value as its field holds it, or raises _Wrong."""


class InvalidField(ValueError):
    """A value on the wire is not what the contract says.

    Attributes:
        path: where it stands, such as ``invocation.limits.timeout_s``.
        problem: what is wrong with it, without the value itself.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def json_of(text: bytes, path: str) -> Any:
    """Return what JSON ``text`` says (raises InvalidField with ``path``: it is none)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidField(path, "is not JSON") from None


def decode(cls: type[T], data: object, path: str) -> T:
    """Return ``data`` as an instance of the dataclass ``cls``, checked field by field.

    Args:
        cls: a dataclass whose fields are str, int, float, bool, None, enums, literals, unions of
            these, tuples ``tuple[X, ...]``, ``dict[str, X]``, ``Any`` (JSON as it came) or other
            such dataclasses.
        data: what ``json.loads`` gave.
        path: the name used in errors for the whole value.

    Raises:
        InvalidField: a field is missing, unknown, or of another type.
    """
    try:
        return typing.cast("T", _check_of_dataclass(typing.cast("Hashable", cls))(data))
    except _Wrong as wrong:
        raise InvalidField(path + wrong.path, wrong.problem) from None


def encode(value: object) -> Any:
    """Return a dataclass (or anything inside one) as plain JSON values; checks nothing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


class _Wrong(Exception):
    """A value is wrong; where it stands is put together on the way out."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__()
        self.path = path
        self.problem = problem

    def under(self, step: str) -> _Wrong:
        return _Wrong(step + self.path, self.problem)


# A hint is looked at once: a trail has many entries, and an entry many fields.
@functools.cache
def _check_of_dataclass(cls: Hashable) -> Check:
    shape = typing.cast("type[Any]", cls)
    hints = typing.get_type_hints(shape)
    fields = dataclasses.fields(shape)
    checks = {field.name: _check_of(hints[field.name]) for field in fields}
    required = [
        field.name
        for field in fields
        if field.default is _MISSING and field.default_factory is _MISSING
    ]

    def check(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _Wrong("", f"must be an object, not {type(data).__name__}")
        values = {}
        for name, value in data.items():
            field_check = checks.get(name)
            if field_check is None:
                raise _Wrong(f".{name}", "is not a field of this schema")
            try:
                values[name] = field_check(value)
            except _Wrong as wrong:
                raise wrong.under(f".{name}") from None
        for name in required:
            if name not in values:
                raise _Wrong(f".{name}", "is missing")
        return shape(**values)

    return check


def _check_of(hint: Any) -> Check:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _anything
    if origin is Union or origin is types.UnionType:
        return _check_of_union(arguments)
    if origin is Literal:
        return functools.partial(_literal, arguments)
    if origin is tuple:
        return functools.partial(_items, _check_of(arguments[0]))
    if origin is dict:
        return functools.partial(_values, None if arguments[1] is Any else _check_of(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return functools.partial(_member, hint)
    if dataclasses.is_dataclass(hint):
        # Only when there is a value: a dataclass may hold itself.
        return lambda value: _check_of_dataclass(typing.cast("Hashable", hint))(value)
    return functools.partial(_scalar, hint)


def _anything(value: Any) -> Any:
    return value


def _check_of_union(options: tuple[Any, ...]) -> Check:
    *others, last = [_check_of(option) for option in options if option is not type(None)]
    takes_none = type(None) in options

    def check(value: Any) -> Any:
        if value is None and takes_none:
            return None
        for other in others:
            try:
                return other(value)
            except (_Wrong, InvalidField):
                continue
        return last(value)

    return check


def _literal(allowed: tuple[Any, ...], value: Any) -> Any:
    if value not in allowed or isinstance(value, bool):
        raise _Wrong("", f"must be one of {', '.join(map(repr, allowed))}")
    return value


def _member(members: type[enum.Enum], value: Any) -> enum.Enum:
    try:
        return members(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in members)
        raise _Wrong("", f"must be one of {allowed}") from None


def _items(check: Check, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _Wrong("", f"must be an array, not {type(value).__name__}")
    found = []
    for item in value:
        try:
            found.append(check(item))
        except _Wrong as wrong:
            raise wrong.under(f"[{len(found)}]") from None
    return tuple(found)


def _values(check: Check | None, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong("", f"must be an object, not {type(value).__name__}")
    for key in value:
        if not isinstance(key, str):
            raise _Wrong("", "has a key that is not a string")
    if check is None:
        return dict(value)
    found = {}
    for key, item in value.items():
        try:
            found[key] = check(item)
        except _Wrong as wrong:
            raise wrong.under(f".{key}") from None
    return found


def _scalar(hint: Any, value: Any) -> Any:
    if type(value) is hint:
        return value
    if hint is float and type(value) is int:
        return float(value)
    name = "null" if hint is type(None) else hint.__name__
    raise _Wrong("", f"must be {name}, not {type(value).__name__}")
