"""Pickles of a session: its functions live in the live namespace, its classes keep their identity.

What cloudpickle would freeze or copy is reduced here: functions get the namespace of the session,
definitions of other components are named by identity, views of an array stay views.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _cloudpickle

from lambda_kernel.child.state.components import memory_owner
from lambda_kernel.child.state.definitions import Definitions

PROTOCOL = 5
MIN_BUFFER_BYTES = 256 * 1024
"""Smaller buffers stay in the pickle."""

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


def live_namespace() -> dict[str, Any]:
    """Return the namespace of the session; a SessionUnpickler puts its own in this place."""
    raise RuntimeError("a session's pickle was read outside of a session")


def load_definition(uid: str) -> Any:
    """Return a definition of another component; a SessionUnpickler puts its own in this place."""
    raise RuntimeError("a session's pickle was read outside of a session")


def make_definition(uid: str, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return a new definition; a SessionUnpickler puts its own in this place."""
    raise RuntimeError("a session's pickle was read outside of a session")


class LiveNamespace:
    """Stands in a pickle for the namespace that user code runs in."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return live_namespace, ()


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


def make_view(
    owner: Any,
    cls: Any,
    dtype: Any,
    layout: tuple[tuple[int, ...], tuple[int, ...], int],
    writeable: bool,
) -> Any:
    """Return an array on the memory of another one; layout = shape, strides, offset in bytes."""
    shape, strides, offset = layout
    memory = owner if owner.flags.c_contiguous else owner.T
    view = cls.__new__(cls, shape, dtype, memory, offset, strides)
    if not writeable:
        view.flags.writeable = False
    return view


class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles one component so that it works in another process with the same session.

    Args:
        file: has ``write``.
        definitions: of the session.
        own: identities of the definitions that this component holds itself.
        by_reference: functions without arguments, by the id of the object they return in every
            process (the shell, ``os.environ``).
        shared_memory: ids of arrays whose memory more than one array of the component uses.
        buffers: collects large buffers; None = they stay in the pickle.

    Attributes:
        uses: identities of definitions in other components that were met.
        classes: of the objects that were met, but for the plainest.
    """

    def __init__(
        self,
        file: Any,
        definitions: Definitions,
        own: Iterable[str],
        by_reference: Mapping[int, Callable[[], Any]],
        shared_memory: Iterable[int],
        buffers: list[memoryview] | None,
    ) -> None:
        callback = None if buffers is None else functools.partial(_take_buffer, buffers)
        super().__init__(file, protocol=PROTOCOL, buffer_callback=callback)
        self._definitions = definitions
        self._own = frozenset(own)
        self._live = LiveNamespace()
        self._by_reference = by_reference
        self._shared_memory = frozenset(shared_memory)
        self._function_cells: set[int] = set()
        self.uses: set[str] = set()
        self.classes: set[type] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Reduce what cloudpickle would freeze or copy."""
        reference = self._by_reference.get(id(obj))
        if reference is not None:
            return reference, ()
        uid = self._definitions.uid_of(obj)
        if uid is not None:
            return self._reduce_definition(uid, obj)
        return self._reduce_by_value(obj)

    def _reduce_definition(self, uid: str, obj: Any) -> Any:
        if uid not in self._own:
            self.uses.add(uid)
            return load_definition, (uid,)
        make, args, *rest = self._reduce_by_value(obj)
        return make_definition, (uid, make, args), *rest

    def _reduce_by_value(self, obj: Any) -> Any:
        cls = type(obj)
        if self._definitions.is_own_function(obj):
            return self._reduce_function(obj)
        if cls is types.CellType:
            return self._reduce_cell(obj)
        if cls is _LruCacheWrapper and self._definitions.is_own_function(obj.__wrapped__):
            attributes = {k: v for k, v in vars(obj).items() if k != "__wrapped__"}
            return make_cached, (obj.__wrapped__, obj.cache_parameters()), attributes
        if self._shared_memory and isinstance(obj, sys.modules["numpy"].ndarray):
            return self._reduce_array(obj)
        self.classes.add(cls)
        return super().reducer_override(obj)

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

    def _reduce_array(self, array: Any) -> Any:
        owner = memory_owner(array)
        if owner is array or id(owner) not in self._shared_memory or array.dtype.hasobject:
            return NotImplemented
        if not (owner.flags.c_contiguous or owner.flags.f_contiguous):
            return NotImplemented
        offset = array.ctypes.data - owner.ctypes.data
        layout = (array.shape, array.strides, offset)
        return make_view, (owner, type(array), array.dtype, layout, array.flags.writeable)


def _take_buffer(taken: list[memoryview], buffer: pickle.PickleBuffer) -> bool:
    with buffer.raw() as raw:
        if raw.nbytes < MIN_BUFFER_BYTES:
            return True
    taken.append(buffer.raw())
    return False


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


def _refuse_file(stream: io.TextIOWrapper) -> Any:
    # cloudpickle would silently turn it into a StringIO.
    raise pickle.PicklingError("an open file belongs to its process")


SessionPickler.dispatch_table = ChainMap(
    {types.CodeType: _reduce_code, io.TextIOWrapper: _refuse_file},
    cloudpickle.Pickler.dispatch_table,
)


class SessionUnpickler(pickle.Unpickler):
    """Reads what a SessionPickler wrote.

    Args:
        file: the pickle.
        namespace: of the session.
        definitions: of the session; new ones are noted as they are made.
        load: returns the definition of another component.
        buffers: the large buffers, in order.
    """

    def __init__(
        self,
        file: Any,
        namespace: dict[str, Any],
        definitions: Definitions,
        load: Callable[[str], Any],
        buffers: Iterable[Any],
    ) -> None:
        super().__init__(file, buffers=buffers)

        def make(uid: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            made = function(*args)
            definitions.add(made, uid)
            return made

        self._own = {
            live_namespace.__name__: lambda: namespace,
            load_definition.__name__: load,
            make_definition.__name__: make,
        }

    def find_class(self, module: str, name: str) -> Any:
        """Return a global, those of this session included."""
        if module == __name__ and name in self._own:
            return self._own[name]
        return super().find_class(module, name)


class Missing:
    """Stands for an object whose class or function is gone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class PatientUnpickler(SessionUnpickler):
    """Goes on where a class or function is gone: such objects become ``Missing``."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a global, or a stand-in."""
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return Missing
