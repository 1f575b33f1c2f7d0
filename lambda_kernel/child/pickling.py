"""Pickles of a session: user functions live in the live namespace, names share one memo.

Each variable is one pickle, but all are written by one Pickler and read by one Unpickler, so that
what two variables share is stored once and stays shared. Where one of them cannot be read, the
others still can: see ``read_around``.
"""

from __future__ import annotations

import functools
import io
import pickle
import pickletools
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any, BinaryIO

import cloudpickle
from cloudpickle import cloudpickle as _cloudpickle

from lambda_kernel.child.rehydrators import reduce_live

PROTOCOL = 5

_LruCacheWrapper = type(functools.lru_cache(len))

_FUNCTION_ATTRIBUTES = (
    "__qualname__",
    "__module__",
    "__doc__",
    "__defaults__",
    "__kwdefaults__",
    "__annotations__",
    *(("__type_params__",) if sys.version_info >= (3, 12) else ()),
)


class LiveNamespace:
    """Stands in a pickle for the namespace that user code runs in."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return live_namespace, ()


def live_namespace() -> dict[str, Any]:
    """Return the namespace of the session; a SessionUnpickler puts its own in this place."""
    raise RuntimeError("a session's pickle was read outside of a session")


def make_function(
    code: types.CodeType, namespace: dict[str, Any], name: str, cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    """Return a function of the live namespace; its cells are filled afterwards."""
    return types.FunctionType(code, namespace, name, None, cells or None)


def set_function_state(function: types.FunctionType, state: dict[str, Any]) -> None:
    """Fill in what a function has beyond its code; closures may refer to the function itself."""
    for cell, content in zip(function.__closure__ or (), state.pop("cells"), strict=True):
        set_cell_state(cell, content)
    function.__dict__.update(state.pop("dict"))
    for name, value in state.items():
        setattr(function, name, value)


def set_cell_state(cell: types.CellType, content: tuple[bool, Any]) -> None:
    """Fill a closure's cell, unless it is empty."""
    filled, value = content
    if filled:
        cell.cell_contents = value


def make_cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return ``function`` with an empty cache around it."""
    return functools.lru_cache(**parameters)(function)


def make_code(*args: Any) -> types.CodeType:
    """Return a code object with the file name it was compiled under."""
    return types.CodeType(*args)


class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles values of a namespace so that they work in another process with that namespace."""

    def __init__(
        self, file: Any, namespace: dict[str, Any], by_reference: dict[int, Callable[[], Any]]
    ) -> None:
        """Prepare to write to ``file``.

        Args:
            file: has ``write``.
            namespace: functions defined in it are stored without it.
            by_reference: functions without arguments, by the id of the object they return in
                every process (the shell, ``os.environ``).
        """
        super().__init__(file, protocol=PROTOCOL)
        self._namespace = namespace
        self._live = LiveNamespace()
        self._by_reference = by_reference
        self._function_cells: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Reduce what cloudpickle would freeze or copy."""
        reference = self._by_reference.get(id(obj))
        if reference is not None:
            return reference, ()
        if self._is_own(obj):
            return self._reduce_function(obj)
        if type(obj) is types.CellType:
            return self._reduce_cell(obj)
        if type(obj) is _LruCacheWrapper and self._is_own(obj.__wrapped__):
            attributes = {k: v for k, v in vars(obj).items() if k != "__wrapped__"}
            return make_cached, (obj.__wrapped__, obj.cache_parameters()), attributes
        reduced = reduce_live(obj)
        return super().reducer_override(obj) if reduced is None else reduced

    def _is_own(self, obj: Any) -> bool:
        return type(obj) is types.FunctionType and obj.__globals__ is self._namespace

    def _reduce_function(self, function: types.FunctionType) -> Any:
        cells = function.__closure__ or ()
        self._function_cells.update(map(id, cells))
        state = {
            "cells": [_cell_state(cell) for cell in cells],
            "dict": dict(function.__dict__),
        } | {name: getattr(function, name) for name in _FUNCTION_ATTRIBUTES}
        args = (function.__code__, self._live, function.__name__, cells)
        return make_function, args, state, None, None, set_function_state

    def _reduce_cell(self, cell: types.CellType) -> Any:
        # Two functions may share a cell, and a function may stand in its own: the cell itself is
        # stored empty, and what it holds comes with the functions.
        if id(cell) in self._function_cells:
            return types.CellType, ()
        return types.CellType, (), _cell_state(cell), None, None, set_cell_state


def _cell_state(cell: types.CellType) -> tuple[bool, Any]:
    try:
        return True, cell.cell_contents
    except ValueError:
        return False, None


def _reduce_code(code: types.CodeType) -> Any:
    # cloudpickle drops the file name; tracebacks and inspect.getsource need it.
    _, args = _cloudpickle._code_reduce(code)
    position = args.index("<dynamic-code>")
    return make_code, (*args[:position], code.co_filename, *args[position + 1 :])


SessionPickler.dispatch_table = ChainMap(
    {types.CodeType: _reduce_code},
    cloudpickle.Pickler.dispatch_table,
)


class SessionUnpickler(pickle.Unpickler):
    """Reads the values that a SessionPickler wrote into a namespace."""

    def __init__(self, file: BinaryIO, namespace: dict[str, Any]) -> None:
        super().__init__(file)
        self._namespace = namespace

    def find_class(self, module: str, name: str) -> Any:
        """Return a global, the namespace of this session included."""
        if module == __name__ and name == live_namespace.__name__:
            return lambda: self._namespace
        return super().find_class(module, name)


class SharedValueLost(pickle.UnpicklingError):
    """A value shares a part with one that could not be read."""


class _Memo(dict[int, Any]):
    """A memo that refuses what stems from a pickle that failed."""

    def __getitem__(self, index: int) -> Any:
        value = super().__getitem__(index)
        if value is _POISON:
            raise SharedValueLost("it shares a part with a variable that could not be read")
        return value


_POISON = object()


class _PatientUnpickler(pickle._Unpickler):
    """The slow, pure Python unpickler, whose memo survives a failure."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__(io.BytesIO())
        self._namespace = namespace
        self._kept = _Memo()

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == live_namespace.__name__:
            return lambda: self._namespace
        return super().find_class(module, name)

    def read_segment(self, segment: bytes) -> Any:
        super().__init__(io.BytesIO(segment))
        self.memo = self._kept
        first = len(self._kept)
        try:
            return self.load()
        except BaseException:
            # Half-built values must not reach the names that share them.
            size = sum(opcode.name == "MEMOIZE" for opcode, _, _ in pickletools.genops(segment))
            self._kept.update((first + i, _POISON) for i in range(size))
            raise


def read_around(
    segments: list[bytes], namespace: dict[str, Any]
) -> list[tuple[bool, Any | BaseException]]:
    """Read pickles that share a memo, going around those that cannot be read.

    Args:
        segments: the pickles in the order they were written.
        namespace: the session's.

    Returns:
        For each pickle, True and its value, or False and what reading it raised.
    """
    unpickler = _PatientUnpickler(namespace)
    results: list[tuple[bool, Any | BaseException]] = []
    for segment in segments:
        try:
            results.append((True, unpickler.read_segment(segment)))
        except BaseException as error:  # noqa: BLE001  (user classes may raise anything)
            results.append((False, error))
    return results
