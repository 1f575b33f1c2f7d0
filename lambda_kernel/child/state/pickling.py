"""Pickles of a session: its functions live in the live namespace, its classes keep their identity.

What cloudpickle would freeze or copy is reduced here: functions get the namespace of the session,
definitions of other components are named by identity, views of an array stay views.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cloudpickle

from lambda_kernel.child.rehydrators import reduce_live
from lambda_kernel.child.state import arrays, classes, reducers
from lambda_kernel.child.state.definitions import (
    Definitions,
    bind_method,
    home_of_method,
    is_importable,
    is_namespace_of_module,
    names_read_by,
)
from lambda_kernel.child.state.recompiling import NoCode, code_of_this_version

PROTOCOL = 5
MIN_BUFFER_BYTES = 256 * 1024
"""Smaller buffers stay in the pickle."""

_LruCacheWrapper = type(functools.lru_cache(len))
_MADE_BY_LRU_CACHE = ("__wrapped__", "cache_parameters")

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


def module_namespace(name: str) -> dict[str, Any]:
    """Return the namespace of a module."""
    return vars(importlib.import_module(name))


class ModuleNamespace:
    """Stands in a pickle for the namespace of a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[[str], dict[str, Any]], tuple[str]]:
        return module_namespace, (self._name,)


class LiveNamespace:
    """Stands in a pickle for the namespace that user code runs in."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return live_namespace, ()


def make_function(
    code: types.CodeType | NoCode,
    namespace: dict[str, Any],
    name: str,
    cells: tuple[types.CellType, ...],
) -> types.FunctionType:
    """Return a function of the live namespace; its cells are filled afterwards."""
    code = code_of_this_version(code)
    return types.FunctionType(code, namespace, name, None, cells or None)


def set_function_state(function: types.FunctionType, state: dict[str, Any]) -> None:
    """Fill in what a function has beyond its code; closures may refer to the function itself."""
    for cell, content in zip(function.__closure__ or (), state.pop("cells"), strict=True):
        set_cell_state(cell, content)
    function.__dict__ = state.pop("dict")
    for name, value in state.items():
        # Another Python version may have stored more.
        if name in _FUNCTION_ATTRIBUTES:
            setattr(function, name, value)


def set_cell_state(cell: types.CellType, content: tuple[bool, Any]) -> None:
    """Fill a closure's cell, unless it is empty."""
    filled, value = content
    if filled:
        cell.cell_contents = value


def make_cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return ``function`` with an empty cache around it."""
    return functools.lru_cache(**parameters)(function)


class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles one component so that it works in another process with the same session.

    Args:
        file: has ``write``.
        definitions: of the session.
        own: identities of the definitions that this component holds itself.
        by_reference: functions without arguments, by the id of the object they return in every
            process (the shell, ``os.environ``).
        shared_memory: ids of arrays whose memory more than one array of the component uses.
        shared_dicts: ids of dicts of objects that somebody else holds too.
        lone_arrays: ids of arrays that are stored as copies, whoever shares their memory.
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
        shared_dicts: Iterable[int],
        lone_arrays: Iterable[int],
        buffers: list[memoryview] | None,
    ) -> None:
        callback = None if buffers is None else functools.partial(_take_buffer, buffers)
        super().__init__(file, protocol=PROTOCOL, buffer_callback=callback)
        self._definitions = definitions
        self._own = frozenset(own)
        self._namespace = definitions.namespace
        self._live = LiveNamespace()
        self._by_reference = by_reference
        self._shared_memory = frozenset(shared_memory)
        self._shared_dicts = frozenset(shared_dicts)
        self._lone_arrays = set(lone_arrays)
        self._owners_apart: dict[int, Any] = {}
        self._function_cells: set[int] = set()
        self._homes: dict[int, dict[str, Any]] = {}
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
        if cls is types.FunctionType:
            if obj.__globals__ is self._namespace:
                return self._reduce_function(obj, self._live)
            if not is_importable(obj):
                return self._reduce_function(obj, self._home_of(obj))
        elif issubclass(cls, type):
            if self._definitions.is_own_class(obj) and classes.can_be_made(obj):
                return classes.reduce_class(obj)
        elif cls is types.CellType:
            return self._reduce_cell(obj)
        elif cls is types.MethodType and (home := home_of_method(obj)) is not None:
            return bind_method, (obj.__self__, *home)
        elif cls is _LruCacheWrapper and not is_importable(obj):
            attributes = {k: v for k, v in vars(obj).items() if k not in _MADE_BY_LRU_CACHE}
            return make_cached, (obj.__wrapped__, obj.cache_parameters()), attributes
        else:
            return self._reduce_instance(cls, obj)
        self.classes.add(cls)
        return super().reducer_override(obj)

    def _reduce_instance(self, cls: type, obj: Any) -> Any:
        if arrays.is_array(obj):
            return self._reduce_array(obj)
        live = reduce_live(obj)
        if live is not None:
            return live
        self.classes.add(cls)
        if issubclass(cls, BaseException):
            reduced = reducers.reduce_exception(obj)
            if reduced is not None:
                return reduced
        if self._shared_dicts and id(getattr(obj, "__dict__", None)) in self._shared_dicts:
            return reducers.with_shared_dict(obj)
        return super().reducer_override(obj)

    def _home_of(self, function: types.FunctionType) -> Any:
        """Return what stands for the namespace of a function that is not the session's."""
        namespace = function.__globals__
        if is_namespace_of_module(namespace):
            return ModuleNamespace(namespace["__name__"])
        if id(namespace) in self._shared_dicts:
            return namespace
        # Code that a library made: only what it reads, and one copy for all that read as much.
        needed = names_read_by(function)
        found = self._homes.setdefault(id(namespace), {})
        if not needed <= found.keys():
            found = {name: namespace[name] for name in sorted(needed)}
            self._homes[id(namespace)] = found
        return found

    def _reduce_function(self, function: types.FunctionType, home: Any) -> Any:
        cells = function.__closure__ or ()
        self._function_cells.update(map(id, cells))
        state = {
            "cells": [_cell_state(cell) for cell in cells],
            "dict": function.__dict__,
        } | {name: getattr(function, name) for name in _FUNCTION_ATTRIBUTES}
        args = (function.__code__, home, function.__name__, cells)
        return make_function, args, state, None, None, set_function_state

    def _reduce_cell(self, cell: types.CellType) -> Any:
        # Two functions may share a cell, and a function may stand in its own: the cell itself is
        # stored empty, and what it holds comes with the functions.
        if id(cell) in self._function_cells:
            return types.CellType, ()
        return types.CellType, (), _cell_state(cell), None, None, set_cell_state

    def _reduce_array(self, array: Any) -> Any:
        owner = array if id(array) in self._lone_arrays else arrays.memory_owner(array)
        if arrays.is_map_of_file(owner):
            return arrays.reduce_map(array) if owner is array else arrays.reduce_view(array, owner)
        if owner is not array and id(owner) in self._shared_memory:
            return arrays.reduce_view(array, self._apart(owner))
        if arrays.has_attributes(array):
            return arrays.reduce_with_attributes(array)
        return NotImplemented

    def _apart(self, owner: Any) -> Any:
        """Return what stands for the owner of views, where the owner itself is a frame's own."""
        if id(owner) not in self._lone_arrays:
            return owner
        apart = self._owners_apart.setdefault(id(owner), owner.view())
        self._lone_arrays.add(id(apart))
        return apart


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


SessionPickler.dispatch_table = ChainMap(reducers.REDUCERS, cloudpickle.Pickler.dispatch_table)


class SessionUnpickler(pickle.Unpickler):
    """Reads what a SessionPickler wrote.

    Args:
        file: the pickle.
        namespace: of the session.
        definitions: of the session; new ones are noted as they are made.
        load: returns the definition of another component.
        buffers: the large buffers, in order.
        make_code: makes code objects, where another Python version wrote the pickle.
        arrays_own: large arrays get memory of their own.
    """

    def __init__(
        self,
        file: Any,
        namespace: dict[str, Any],
        definitions: Definitions,
        load: Callable[[str], Any],
        buffers: Iterable[Any],
        make_code: Callable[..., Any] | None = None,
        *,
        arrays_own: bool = False,
    ) -> None:
        super().__init__(file, buffers=buffers)
        self._make_code = make_code
        self._arrays_own = arrays_own

        made: dict[str, Any] = {}

        def make(uid: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            # What a definition is made from may hold it: the pickle then makes it twice.
            if uid not in made:
                made[uid] = function(*args)
                definitions.add(made[uid], uid)
            return made[uid]

        self._own = {
            live_namespace.__name__: lambda: namespace,
            load_definition.__name__: load,
            make_definition.__name__: make,
        }

    def find_class(self, module: str, name: str) -> Any:
        """Return a global, those of this session included."""
        if module == __name__ and name in self._own:
            return self._own[name]
        if (module, name) == (reducers.__name__, reducers.make_code.__name__) and self._make_code:
            return self._make_code
        if module == "__main__":
            # Reading it would read this pickle again.
            raise pickle.UnpicklingError(f"{name!r} is stored by its name alone")
        found = super().find_class(module, name)
        if name == "_frombuffer" and module.partition(".")[0] == "numpy":
            return arrays.owning(found, self._arrays_own)
        return found


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
