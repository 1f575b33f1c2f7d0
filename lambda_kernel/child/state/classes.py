"""Classes of the session as they are: made again without running what their making ran.

cloudpickle runs metaclasses and ``__init_subclass__`` anew (a registry would gain the class a
second time) and forgets slots and qualified names.
"""

from __future__ import annotations

import abc
import enum
import types
from _abc import _get_dump  # type: ignore[import-not-found]
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_NOT_SET = frozenset({"__dict__", "__weakref__", "__module__", "_abc_impl"})
_HEAP_TYPE = 1 << 9


def can_be_made(cls: type) -> bool:
    """Return whether ``reduce_class`` knows how to make a class like ``cls``."""
    if isinstance(cls, enum.EnumMeta):
        return False
    metaclass: Any = type(cls)
    static = [m for m in metaclass.__mro__ if not m.__flags__ & _HEAP_TYPE]
    return static == [type, object]


def reduce_class(cls: type) -> Any:
    """Return how to make ``cls`` again (see ``object.__reduce__``)."""
    namespace: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    attributes = vars(cls)
    slots = [name for name, value in attributes.items() if _is_slot(cls, value)]
    if "__slots__" in attributes:
        slots += [name for name in ("__dict__", "__weakref__") if name in attributes]
        namespace["__slots__"] = tuple(slots)
    state = {n: v for n, v in attributes.items() if n not in _NOT_SET and n not in slots}
    args = (type(cls), cls.__name__, cls.__bases__, namespace)
    return make_class, args, (state, registered(cls)), None, None, set_class_state


def make_class(
    metaclass: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
) -> type:
    """Return a class without attributes; they are filled in afterwards."""
    make: Any = abc.ABCMeta.__new__ if issubclass(metaclass, abc.ABCMeta) else type.__new__
    with _without_init_subclass(bases):
        made: type = make(metaclass, name, bases, namespace)
    return made


def set_class_state(cls: type, state: tuple[dict[str, Any], list[type]]) -> None:
    """Fill in the attributes of a class, and who was registered with it."""
    attributes, subclasses = state
    for name, value in attributes.items():
        type.__setattr__(cls, name, value)
    for subclass in subclasses:
        abc.ABCMeta.register(cls, subclass)  # type: ignore[arg-type]


def registered(cls: type) -> list[type]:
    """Return the classes that were registered with an abstract one."""
    if not isinstance(cls, abc.ABCMeta):
        return []
    alive = (reference() for reference in _get_dump(cls)[0])
    return sorted(
        (subclass for subclass in alive if subclass is not None),
        key=lambda subclass: (subclass.__module__, subclass.__qualname__),
    )


def _is_slot(cls: type, value: Any) -> bool:
    return type(value) is types.MemberDescriptorType and value.__objclass__ is cls


@contextmanager
def _without_init_subclass(bases: Iterable[type]) -> Iterator[None]:
    replaced: list[tuple[type, Any]] = []
    try:
        for cls in dict.fromkeys(cls for base in bases for cls in base.__mro__):
            own = vars(cls).get("__init_subclass__")
            if own is not None and cls is not object:
                type.__setattr__(cls, "__init_subclass__", classmethod(_do_nothing))
                replaced.append((cls, own))
        yield
    finally:
        for cls, own in replaced:
            type.__setattr__(cls, "__init_subclass__", own)


def _do_nothing(cls: type, /, **kwargs: Any) -> None:
    pass
