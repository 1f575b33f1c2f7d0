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

# A journal's entries have many fields, and a trail many entries.
_origin: Callable[[Any], Any] = functools.cache(typing.get_origin)
_arguments: Callable[[Any], tuple[Any, ...]] = functools.cache(typing.get_args)


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
    if not isinstance(data, Mapping):
        raise InvalidField(path, f"must be an object, not {type(data).__name__}")
    fields = _fields(typing.cast("Hashable", cls))
    for name in data:
        if name not in fields:
            raise InvalidField(f"{path}.{name}", "is not a field of this schema")
    values: dict[str, Any] = {}
    for name, (hint, required) in fields.items():
        if name in data:
            values[name] = _check(hint, data[name], f"{path}.{name}")
        elif required:
            raise InvalidField(f"{path}.{name}", "is missing")
    return cls(**values)


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


@functools.cache
def _fields(cls: Hashable) -> dict[str, tuple[Any, bool]]:
    shape = typing.cast("type[Any]", cls)
    hints = typing.get_type_hints(shape)
    return {
        f.name: (hints[f.name], f.default is _MISSING and f.default_factory is _MISSING)
        for f in dataclasses.fields(shape)
    }


def _check(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    origin = _origin(hint)
    if origin is Union or origin is types.UnionType:
        return _check_union(_arguments(hint), value, path)
    if origin is Literal:
        allowed = _arguments(hint)
        if value not in allowed or isinstance(value, bool):
            raise InvalidField(path, f"must be one of {', '.join(map(repr, allowed))}")
        return value
    if origin is tuple:
        return _check_items(_arguments(hint)[0], value, path)
    if origin is dict:
        return _check_values(_arguments(hint)[1], value, path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _check_enum(hint, value, path)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value, path)
    return _check_scalar(hint, value, path)


def _check_enum(hint: type[enum.Enum], value: Any, path: str) -> enum.Enum:
    try:
        return hint(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in hint)
        raise InvalidField(path, f"must be one of {allowed}") from None


def _check_union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    rest = [option for option in options if option is not type(None)]
    for option in rest[:-1]:
        try:
            return _check(option, value, path)
        except InvalidField:
            continue
    return _check(rest[-1], value, path)


def _check_items(hint: Any, value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidField(path, f"must be an array, not {type(value).__name__}")
    return tuple(_check(hint, item, f"{path}[{i}]") for i, item in enumerate(value))


def _check_values(hint: Any, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidField(path, f"must be an object, not {type(value).__name__}")
    for key in value:
        if not isinstance(key, str):
            raise InvalidField(path, "has a key that is not a string")
    return {key: _check(hint, item, f"{path}.{key}") for key, item in value.items()}


def _check_scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        name = "null" if hint is type(None) else hint.__name__
        raise InvalidField(path, f"must be {name}, not {type(value).__name__}")
    return value
