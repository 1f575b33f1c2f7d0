"""Which variables share objects: those are stored together, so that they share them again.

Roots are the values of names and the *definitions* (classes and plain functions of the session).
A walk at C speed (``gc.get_referents``) follows what pickling would follow; an object that two
roots reach makes them one component. A definition is a root of its own: who refers to it does not
become one component with it.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import enum
import fractions
import functools
import gc
import logging
import re
import sys
import types
import uuid
import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from traitlets.traitlets import DefaultHandler, ObserveHandler, ValidateHandler

from lambda_kernel.child.rehydrators import sharing
from lambda_kernel.child.state.arrays import is_array, memory_owner
from lambda_kernel.child.state.classes import registered
from lambda_kernel.child.state.definitions import (
    Definitions,
    home_of_method,
    is_importable,
    is_namespace_of_module,
)

_DEFINITION = "definition"

MAX_OBJECTS = 20_000_000
"""Of one walk; what is left after that is stored as one component."""

_LARGE = 1000

_ATOMIC_TYPES: frozenset[type] = frozenset(
    {
        int,
        float,
        complex,
        str,
        bytes,
        bool,
        type(None),
        type(...),
        type(NotImplemented),
        range,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.CodeType,
        types.GenericAlias,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        re.Pattern,
        logging.Logger,
        logging.RootLogger,
    }
)
_HANDLER_TYPES = frozenset({ObserveHandler, ValidateHandler, DefaultHandler})
"""Of traitlets: each instance holds those of its class."""

_BOUND_TYPES = (types.BuiltinFunctionType, types.MethodWrapperType)


class Components:
    """Groups roots (any hashable) that share an object.

    Args:
        definitions: of the session; new ones are added as they are met.
        excluded: ids of objects that belong to the process: the namespace, the shell.
    """

    def __init__(self, definitions: Definitions, excluded: Iterable[int]) -> None:
        self._definitions = definitions
        self._visited: dict[int, Hashable] = dict.fromkeys(excluded)
        self._parents: dict[Hashable, Hashable] = {}
        self._queue: list[tuple[Hashable, Any]] = []
        self._kept: list[Any] = []
        self._left = MAX_OBJECTS
        self._edges: dict[Hashable, set[str]] = {}
        """Root to the definitions that it refers to."""
        self.base_users: dict[int, int] = {}
        """Id of the owner of an array's memory to the number of arrays that were met on it."""
        self.shared_dicts: set[int] = set()
        """Ids of dicts that were met more than once."""
        self.lone_blocks: set[int] = set()
        """Ids of arrays inside frames that are stored as copies: the frames copy on write."""
        self._blocks: dict[int, list[tuple[Hashable, int]]] = {}
        """Id of the owner of memory to roots and ids of the arrays that frames have on it."""

    def add(self, root: Hashable, value: Any) -> None:
        """Walk what ``value`` holds on behalf of ``root``."""
        self._parents.setdefault(root, root)
        self._walk(root, [value])
        uid = self._definitions.uid_of(value)
        if uid is not None:
            self._union(root, (_DEFINITION, uid))
        self._follow_definitions()

    def add_flat(self, root: Hashable, value: Any) -> None:
        """Take a container that holds constants alone, as ``add`` does, without looking at them."""
        self._parents.setdefault(root, root)
        key = id(value)
        if key in self._visited:
            if type(value) is dict:
                self.shared_dicts.add(key)
            self._meet(root, self._visited[key])
        else:
            self._visited[key] = root

    def add_definition(self, uid: str) -> None:
        """Walk what a definition holds."""
        value = self._definitions.get(uid)
        if (_DEFINITION, uid) not in self._parents:
            self._parents[_DEFINITION, uid] = (_DEFINITION, uid)
            self._walk((_DEFINITION, uid), _parts_of_definition(value))
        self._follow_definitions()

    def groups(self) -> list[list[Hashable]]:
        """Return the components, each a list of roots in the order they were added."""
        self._merge_frames_with_arrays()
        self._merge_cycles()
        found: dict[Hashable, list[Hashable]] = {}
        for root in self._parents:
            if isinstance(root, str) or root[0] == _DEFINITION:  # type: ignore[index]
                found.setdefault(self._find(root), []).append(root)
        return list(found.values())

    def _follow_definitions(self) -> None:
        while self._queue:
            queued, start = self._queue.pop()
            self._walk(queued, _parts_of_definition(start))

    def _walk(self, root: Hashable, start: list[Any]) -> None:
        frontier = start
        while frontier:
            following: list[Any] = []
            for value in frontier:
                self._visit(root, value, following)
            self._left -= len(following)
            if self._left < 0:
                self._union(root, ("rest", ""))
                return
            frontier = following

    def _visit(self, root: Hashable, value: Any, following: list[Any]) -> None:
        cls = type(value)
        if cls in _ATOMIC_TYPES:
            return
        # The type is asked, never the value: its ``__class__`` may be anyone's code.
        if issubclass(cls, type) or cls is types.FunctionType:
            self._visit_definable(root, value, following)
            return
        if cls in (tuple, frozenset) and is_constant(value):
            return
        if issubclass(cls, enum.Enum):
            # A member is found through its class, which holds it.
            following.append(cls)
            return
        if cls in _HANDLER_TYPES and not self._definitions.is_own_function(value.func):
            return
        key = id(value)
        if key in self._visited:
            if cls is dict:
                self.shared_dicts.add(key)
            self._meet(root, self._visited[key])
            return
        self._visited[key] = root
        if cls is dict and "__builtins__" in value:
            # exec() put the builtins of the cell there; those of the next one will do.
            value["__builtins__"] = builtins
        if cls in (list, set, tuple, dict, frozenset) and _is_flat(value):
            return
        following += self._parts(root, value)

    def _visit_definable(self, root: Hashable, value: Any, following: list[Any]) -> None:
        uid = self._definitions.uid_of(value)
        if uid is None and issubclass(type(value), type) and self._definitions.is_own_class(value):
            uid = self._definitions.add(value)
        if uid is not None:
            self._refer(root, uid, value)
        elif type(value) is types.FunctionType:
            key = id(value)
            if key in self._visited:
                self._meet(root, self._visited[key])
            elif self._definitions.is_own_function(value):
                self._visited[key] = root
                following += _parts_of_function(value)
            elif not is_importable(value):
                self._visited[key] = root
                following += _parts_of_function(value)
                if not is_namespace_of_module(value.__globals__):
                    following.append(value.__globals__)

    def _refer(self, root: Hashable, uid: str, value: Any) -> None:
        own = (_DEFINITION, uid)
        if own not in self._parents:
            self._parents[own] = own
            self._queue.append((own, value))
        self._edges.setdefault(root, set()).add(uid)

    def _parts(self, root: Hashable, value: Any) -> list[Any]:
        cls = type(value)
        if cls in _BOUND_TYPES:
            return [value.__self__]
        if issubclass(cls, types.ModuleType):
            return [] if sys.modules.get(value.__name__) is value else [vars(value)]
        module: Any = cls.__module__
        if isinstance(module, str) and module.partition(".")[0] == "pandas":
            return self._pandas_parts(root, value)
        if is_array(value):
            return self._array_parts(root, value)
        if issubclass(cls, weakref.ref):
            return [value()]
        if cls is types.MethodType:
            return [value.__self__, *([] if home_of_method(value) else [value.__func__])]
        partners = sharing.partners_of(value)
        if partners is not None:
            self._union(root, ("partners", partners))
        return sharing.parts_of(value, gc.get_referents)

    def _array_parts(self, root: Hashable, array: Any) -> list[Any]:
        owner = memory_owner(array)
        users = 1 if is_array(owner) else 2
        self.base_users[id(owner)] = self.base_users.get(id(owner), 0) + users
        if owner is not array:
            key = id(owner)
            if key in self._visited:
                self._meet(root, self._visited[key])
            else:
                self._visited[key] = root
                self._kept.append(owner)
        return [getattr(array, "__dict__", None), *_objects_in(array)]

    def _pandas_parts(self, root: Hashable, value: Any) -> list[Any]:
        if ".internals" in type(value).__module__:
            return [
                p for values in getattr(value, "arrays", ()) for p in self._in_frame(root, values)
            ]
        pandas = sys.modules["pandas"]
        extensions = pandas.api.extensions
        leaves = (pandas.Index, extensions.ExtensionArray, extensions.ExtensionDtype)
        return [] if isinstance(value, leaves) else gc.get_referents(value)

    def _in_frame(self, root: Hashable, values: Any) -> list[Any]:
        if not is_array(values):
            return []
        owner = memory_owner(values)
        self._kept.append(owner)
        self._blocks.setdefault(id(owner), []).append((root, id(values)))
        return [o for o in _objects_in(values) if type(o) not in _ATOMIC_TYPES]

    def _merge_frames_with_arrays(self) -> None:
        # That two frames share memory must not show: they copy on write, which is not stored. An
        # array on the memory of one frame shows what is written to it.
        for owner, blocks in self._blocks.items():
            if len(blocks) > 1:
                self.lone_blocks.update(block for _, block in blocks)
            elif owner in self.base_users:
                self.base_users[owner] += 1
                self._meet(blocks[0][0], self._visited.get(owner))

    def _meet(self, root: Hashable, other: Hashable) -> None:
        if other is not None:
            self._union(root, other)

    def _find(self, root: Hashable) -> Hashable:
        while (parent := self._parents.setdefault(root, root)) != root:
            self._parents[root] = root = self._parents[parent]
        return root

    def _union(self, one: Hashable, other: Hashable) -> None:
        first, second = self._find(one), self._find(other)
        if first != second:
            self._parents[second] = first

    def _merge_cycles(self) -> None:
        # Components that refer to each other in a circle can only be read together. Who refers to
        # a definition may have met the way to it in an object that was another root's first.
        definitions = [r for r in self._parents if isinstance(r, tuple) and r[0] == _DEFINITION]
        homes = set(map(self._find, definitions))
        edges: dict[Hashable, set[Hashable]] = {home: set() for home in homes}
        for root, uids in self._edges.items():
            home = self._find(root)
            if home in edges:
                edges[home].update(self._find((_DEFINITION, uid)) for uid in uids)
        for cycle in _cycles(edges):
            for other in cycle[1:]:
                self._union(cycle[0], other)


def is_constant(value: Any) -> bool:
    """Return whether ``value`` cannot change, whatever a cell does with it."""
    cls = type(value)
    if cls in (tuple, frozenset):
        return set(map(type, value)) <= _ATOMIC_TYPES
    if cls is types.ModuleType:
        return sys.modules.get(value.__name__) is value
    return cls in _ATOMIC_TYPES


def is_flat_container(value: Any) -> bool:
    """Return whether ``value`` is a large list or dict of constants."""
    return type(value) in (list, dict) and len(value) > _LARGE and _is_flat(value)


def holds_any(value: Any, cls: type) -> bool:
    """Return whether an object of ``cls`` can be reached from ``value``."""
    seen: set[int] = set()
    frontier = [value]
    while frontier:
        if any(type(item) is cls or item is cls for item in frontier):
            return True
        seen.update(map(id, frontier))
        frontier = [
            item
            for item in gc.get_referents(*frontier)
            if id(item) not in seen
            and type(item) not in _ATOMIC_TYPES
            and not isinstance(item, (type, types.FunctionType))
        ]
    return False


def _is_flat(value: Any) -> bool:
    if type(value) is dict and not set(map(type, value.values())) <= _ATOMIC_TYPES:
        return False
    return set(map(type, value)) <= _ATOMIC_TYPES


def _objects_in(array: Any) -> list[Any]:
    return array.ravel().tolist() if array.dtype.hasobject and array.dtype.names is None else []


def _parts_of_definition(value: Any) -> list[Any]:
    return _parts_of_class(value) if isinstance(value, type) else _parts_of_function(value)


def _parts_of_function(function: types.FunctionType) -> list[Any]:
    return [
        *(function.__closure__ or ()),
        function.__defaults__,
        function.__kwdefaults__,
        function.__dict__,
        function.__annotations__,
    ]


def _parts_of_class(cls: type) -> list[Any]:
    attributes: Mapping[str, Any] = vars(cls)
    values = [v for n, v in attributes.items() if n not in ("__dict__", "__weakref__", "_abc_impl")]
    return [*values, *cls.__bases__, type(cls), *registered(cls)]


def _cycles(edges: Mapping[Hashable, set[Hashable]]) -> list[list[Hashable]]:
    """Return the strongly connected components of more than one node."""

    def reach(start: Hashable) -> frozenset[Hashable]:
        seen: set[Hashable] = set()
        stack = list(edges.get(start, ()))
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += edges.get(node, ())
        return frozenset(seen)

    reached = functools.cache(reach)
    found: list[list[Hashable]] = []
    done: set[Hashable] = set()
    for node in edges:
        if node in done or node not in reached(node):
            continue
        cycle = [
            node,
            *(other for other in reached(node) if other != node and node in reached(other)),
        ]
        done.update(cycle)
        if len(cycle) > 1:
            found.append(cycle)
    return found
