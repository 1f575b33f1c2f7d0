"""How builtin kinds of objects are pickled that others would copy or refuse."""

from __future__ import annotations

import copyreg
import dataclasses
import gc
import pickle
import sys
import types
import typing
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle as _cloudpickle

_HEAP_TYPE = 1 << 9


def make_code(*args: Any) -> types.CodeType:
    """Return a code object with the file name it was compiled under."""
    return types.CodeType(*args)


def make_new_type(name: str, supertype: Any, module: str, qualname: str) -> Any:
    """Return what ``typing.NewType`` returned."""
    made: Any = typing.NewType(name, supertype)  # type: ignore[misc]
    made.__module__, made.__qualname__ = module, qualname
    return made


def make_parameter(kind: str, name: str, module: str) -> Any:
    """Return a ParamSpec or a TypeVarTuple."""
    made = getattr(typing, kind)(name)
    made.__module__ = module
    return made


def set_dict(value: Any, attributes: dict[str, Any]) -> None:
    """Give an object a dict that others hold too."""
    value.__dict__ = attributes


def reduce_exception(error: BaseException) -> Any:
    """Return how to make an exception again without its ``__init__``; None where others know."""
    cls: Any = type(error)
    builtin = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
    if (
        cls.__reduce__ is not BaseException.__reduce__
        or cls.__reduce_ex__ is not object.__reduce_ex__
        or cls.__init__ is builtin.__init__
        or cls.__new__ is not builtin.__new__
        # Those with fields of their own fill them from the arguments of ``__init__``.
        or builtin.__basicsize__ != BaseException.__basicsize__
    ):
        return None
    return copyreg.__newobj__, (cls, *error.args), vars(error) or None  # type: ignore[attr-defined]


def with_shared_dict(value: Any) -> Any:
    """Return how to make an object again so that it gets its dict itself, not a copy of it."""
    reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if not isinstance(reduced, tuple) or len(reduced) < 3 or reduced[2] is not vars(value):
        return reduced
    if hasattr(value, "__setstate__"):
        return reduced
    return (*(*reduced, None, None)[:5], set_dict)


def _reduce_code(code: types.CodeType) -> Any:
    # cloudpickle drops the file name; tracebacks and inspect.getsource need it.
    _, args = _cloudpickle._code_reduce(code)
    position = args.index("<dynamic-code>")
    return make_code, (*args[:position], code.co_filename, *args[position + 1 :])


def make_view(content: bytes, form: str, shape: tuple[int, ...]) -> memoryview:
    """Return a view of bytes: ``memoryview.cast`` wants them to be bytes first."""
    view = memoryview(content)
    return view if form == "B" and len(shape) == 1 else view.cast(form, shape)  # type: ignore[call-overload]


def _reduce_memory(view: memoryview) -> Any:
    if type(view.obj) is bytes:
        # Nobody can change what it shows.
        content = view.obj if view.nbytes == len(view.obj) and view.c_contiguous else view.tobytes()
        return make_view, (content, view.format, view.shape)
    # cloudpickle would silently copy what it shows.
    raise pickle.PicklingError("a memoryview shows memory of its process")


def _reduce_proxy(proxy: Any) -> Any:
    return types.MappingProxyType, (_held_by(proxy),)


def _reducer_of_view(method: Any) -> Callable[[Any], Any]:
    return lambda view: (method, (_held_by(view),))


def _held_by(view: Any) -> Any:
    (held,) = gc.get_referents(view)
    return held


def _reduce_new_type(made: Any) -> Any:
    if made.__module__ != "__main__":
        return made.__qualname__
    return make_new_type, (made.__name__, made.__supertype__, made.__module__, made.__qualname__)


def _reduce_parameter(made: Any) -> Any:
    if made.__module__ != "__main__":
        return made.__name__
    return make_parameter, (type(made).__name__, made.__name__, made.__module__)


def _named(name: str) -> Callable[[Any], str]:
    return lambda _: name


_TYPING = {
    getattr(typing, kind): _reduce_parameter
    for kind in ("ParamSpec", "TypeVarTuple")
    if sys.version_info >= (3, 11)
}
_DATACLASSES = {
    type(getattr(dataclasses, name)): _named(name)
    for name in ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")
    if hasattr(dataclasses, name)
}
_VIEWS = {
    type(getattr(mapping(), name)()): _reducer_of_view(getattr(mapping, name))
    for mapping in (dict, OrderedDict)
    for name in ("keys", "values", "items")
}

REDUCERS: dict[type, Callable[[Any], Any]] = {
    types.CodeType: _reduce_code,
    memoryview: _reduce_memory,
    types.MappingProxyType: _reduce_proxy,
    typing.NewType: _reduce_new_type,
    **_TYPING,
    **_DATACLASSES,
    **_VIEWS,
}
