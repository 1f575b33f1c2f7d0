"""Classes and functions of the session: each has one identity, whoever refers to it."""

from __future__ import annotations

import functools
import sys
import types
import typing
import uuid
from collections.abc import Hashable, Iterator
from typing import Any

from cloudpickle import cloudpickle as _cloudpickle


class Definitions:
    """What of this process is a definition, and under which identity (``uid``) it is stored.

    Args:
        namespace: of the session; its functions have it as their globals.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._by_id: dict[int, str] = {}
        self._by_uid: dict[str, Any] = {}

    def uid_of(self, value: Any) -> str | None:
        """Return the identity of a definition; None where ``value`` is none (yet)."""
        return self._by_id.get(id(value))

    def get(self, uid: str) -> Any:
        """Return the definition, or None where this process has not loaded it."""
        return self._by_uid.get(uid)

    def add(self, value: Any, uid: str | None = None) -> str:
        """Note a definition, under a new identity unless it has one."""
        if uid is None:
            # The name serves another Python version, which makes it again from its source.
            uid = f"{getattr(value, '__name__', '')}:{uuid.uuid4().hex}"
        self._by_id[id(value)] = uid
        self._by_uid[uid] = value
        return uid

    def is_own_function(self, value: Any) -> bool:
        """Return whether ``value`` is a function of the session."""
        return type(value) is types.FunctionType and value.__globals__ is self.namespace

    def is_own_class(self, value: Any) -> bool:
        """Return whether ``value`` is a class that no module could be asked for."""
        if not isinstance(value, type) or not value.__flags__ & _HEAP_TYPE:
            return False
        return not _cloudpickle._should_pickle_by_reference(value)

    def is_own_plain_function(self, value: Any) -> bool:
        """Return whether ``value`` is a function of the session that closes over nothing."""
        return self.is_own_function(value) and not value.__closure__


def is_importable(value: Any) -> bool:
    """Return whether a function is what its module has under its name."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    if found is None or value.__module__ == "__main__":
        return False
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def home_of_method(method: types.MethodType) -> tuple[type, str] | None:
    """Return the imported class and the name under which it has what a bound method calls.

    None where no class has it, or where its name alone leads there. Decorators leave such
    functions in classes, which all bound methods of the class share.
    """
    function, owner = method.__func__, type(method.__self__)
    if type(function) is not types.FunctionType or is_importable(function):
        return None
    return _home_in(typing.cast("Hashable", owner), function)


@functools.lru_cache(maxsize=1024)
def _home_in(owner: Any, function: types.FunctionType) -> tuple[type, str] | None:
    for base in owner.__mro__:
        for name, value in vars(base).items():
            if value is function:
                return (base, name) if _cloudpickle._should_pickle_by_reference(base) else None
    return None


def bind_method(owner: Any, base: type, name: str) -> Any:
    """Return a method that is bound again."""
    return vars(base)[name].__get__(owner)


def is_namespace_of_module(namespace: dict[str, Any]) -> bool:
    """Return whether a function's namespace is that of an imported module."""
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return getattr(module, "__dict__", None) is namespace


def names_read_by(function: types.FunctionType) -> set[str]:
    """Return the names of its namespace that a function may read, also by way of others there."""
    namespace = function.__globals__
    found: set[str] = set()
    stack = [function]
    while stack:
        for code in code_of(stack.pop()):
            for name in code.co_names:
                if name in namespace and name not in found and name != "__builtins__":
                    found.add(name)
                    value = namespace[name]
                    if isinstance(value, types.FunctionType) and value.__globals__ is namespace:
                        stack.append(value)
    return found


def code_of(value: Any) -> Iterator[types.CodeType]:
    """Yield the code of a function or of what a class defines, nested code included."""
    stack: list[Any] = []
    if isinstance(value, types.FunctionType):
        stack.append(value.__code__)
        stack += [cell_code for cell in value.__closure__ or () if (cell_code := _code_in(cell))]
    elif isinstance(value, type):
        for attribute in vars(value).values():
            function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType):
                stack.append(code)
    while stack:
        code = stack.pop()
        yield code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _code_in(cell: types.CellType) -> types.CodeType | None:
    try:
        code = getattr(cell.cell_contents, "__code__", None)
    except ValueError:
        return None
    return code if isinstance(code, types.CodeType) else None


_HEAP_TYPE = 1 << 9
