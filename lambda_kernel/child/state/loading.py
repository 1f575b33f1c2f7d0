"""Reading stored variables: when code names them, or when something looks them up."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lambda_kernel.child.losses import Loss, loss_of, tell
from lambda_kernel.child.state import components, lazy, scanning
from lambda_kernel.child.state.copies import copy_of
from lambda_kernel.child.state.definitions import Definitions, code_of
from lambda_kernel.child.state.index import Component, Index, Ref
from lambda_kernel.child.state.objects import StoredObjects
from lambda_kernel.child.state.pickling import Missing, PatientUnpickler, SessionUnpickler
from lambda_kernel.child.state.recompiling import Recompiler, name_of
from lambda_kernel.contract.paging import PagerError

_TO_BE_DELETED = object()


class VariableUnavailable(Exception):
    """A stored variable could not be fetched; it is still stored."""


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A component that this process has read.

    Attributes:
        component: as it is stored.
        names: those that were bound.
        constants: the values that cannot change, by name. Others are not held: what a cell deletes
            must be gone.
        copies: by name, the references that a large flat container held.
    """

    component: Component
    names: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    copies: dict[str, Any] = field(default_factory=dict)


class Loader:
    """The stored names of a session, and what of them is loaded.

    Args:
        index: of the session.
        objects: where its bytes are.
        definitions: of the session.
        namespace: of the session.
        bind: puts a value that was loaded where it belongs.
        lost_names: why a name cannot be read, for later errors.
        recompiler: makes what another Python version stored again.
    """

    def __init__(
        self,
        index: Index,
        objects: StoredObjects,
        definitions: Definitions,
        namespace: dict[str, Any],
        bind: Callable[[str, Any], None],
        lost_names: dict[str, Loss],
        recompiler: Recompiler,
    ) -> None:
        self._index = index
        self._objects = objects
        self._definitions = definitions
        self._namespace = namespace
        self._bind = bind
        self._lost_names = lost_names
        self._recompiler = recompiler
        self._lock = threading.RLock()
        self._is_closed = False
        self.sources: list[str] = []
        """What ran here."""
        self._arrays_own = False
        self._homes = index.homes()
        self.table = index.stored_names()
        """Stored names that are not loaded: name to component."""
        self._aside: dict[str, int] = {}
        self.loaded: dict[int, Loaded] = {}
        self.broken: dict[int, Loss] = {}
        """Components that cannot be read; they stay stored."""
        self.unread_on_arrival: dict[str, Loss] = {}

    def load_variable(self, name: str) -> Any:
        """Load a stored variable and return its value (raises as ``load`` does)."""
        with self._lock:
            # Another thread may have loaded it meanwhile.
            if name not in self._namespace:
                self.load(name)
            return self._namespace[name]

    def load(self, name: str) -> None:
        """Load what is stored under a name.

        Raises:
            KeyError: there is no such name, or it cannot be read.
            VariableUnavailable: its bytes cannot be had now.
        """
        with self._lock:
            number = self.table.get(name)
            if number is None or self._is_closed or number in self.broken:
                raise KeyError(name)
            try:
                self._load([number])
            except (PagerError, OSError) as error:
                raise VariableUnavailable(f"{name!r} cannot be read now: {error}") from error
            if number in self.broken:
                raise KeyError(name)

    def load_for(self, source: str) -> None:
        """Load what a cell may read; what cannot be fetched raises when the cell reads it."""
        self.sources.append(source)
        if not self.table:
            return
        # Only an array that owns its memory can be resized; others stay maps of what is stored.
        self._arrays_own = ".resize(" in source
        reads = scanning.scan_source(source, self.table)
        with self._lock:
            for name in () if reads.everything else reads.deleted:
                self._set_aside(name)
            self._load_patiently(None if reads.everything else reads.names)
            self._load_for_functions()
        if not self.table:
            lazy.uninstall(self._namespace)

    def load_names(self, names: Iterable[str]) -> None:
        """Load some names, as far as they are stored and can be read."""
        with self._lock:
            self._load_patiently(names)

    def definition(self, uid: str) -> Any:
        """Return a definition of a component that may not be loaded.

        Raises:
            LookupError: the session has none of this identity, or it cannot be read.
        """
        found = self._definitions.get(uid)
        if found is not None:
            return found
        number = self._homes.get(uid)
        if number is None or number in self.broken:
            raise LookupError("what it was defined as is not stored any more")
        self._load([number])
        found = self._definitions.get(uid)
        if found is None:
            raise LookupError("what it was defined as cannot be read")
        return found

    def stored_bytes(self, ref: Ref) -> memoryview:
        """Return stored bytes (raises as StoredObjects.fetch does)."""
        return self._objects.read(ref)

    def stored_object(self, object_id: int) -> memoryview:
        """Return a whole stored object (raises as StoredObjects.fetch does)."""
        return self._objects.mapped(object_id).view

    @property
    def index(self) -> Index:
        """What is stored of the session."""
        return self._index

    def type_of(self, name: str) -> str | None:
        """Return the type name of a stored name that is not loaded; None = there is none."""
        number = self.table.get(name)
        return None if number is None else self._index.component(number).names.get(name)

    def size_of(self, name: str) -> int:
        """Return what a stored name that is not loaded measures, in bytes."""
        return self._index.component(self.table[name]).size_bytes

    def rename(self, old: str, new: str) -> None:
        """Give a stored name that is not loaded another one; ``new`` is overwritten."""
        number = self.table.pop(old)
        self.forget(new)
        self._index.component(number).rename(old, new)
        self.table[new] = number

    def forget(self, name: str) -> None:
        """Another value has taken a stored name that is not loaded."""
        number = self.table.pop(name, None)
        if number is not None:
            self._index.component(number).rename(name, None)

    def take_back(self) -> None:
        """End what ``load_for`` began for names to be deleted: those that were not stay stored."""
        for name, number in self._aside.items():
            if self._namespace.get(name) is _TO_BE_DELETED:
                del self._namespace[name]
                self.table[name] = number
            else:
                self._index.component(number).rename(name, None)
        self._aside.clear()

    def forget_all(self) -> None:
        """The session begins anew."""
        for name in list(self.table):
            self.forget(name)

    def close(self) -> None:
        """Let nothing be loaded any more."""
        with self._lock:
            self._is_closed = True

    def _set_aside(self, name: str) -> None:
        # A name can only be deleted where it is; what it stands for need not be.
        self._aside[name] = self.table.pop(name)
        self._namespace[name] = _TO_BE_DELETED

    def _load_patiently(self, names: Iterable[str] | None) -> None:
        wanted = self.table if names is None else [n for n in names if n in self.table]
        numbers = list(dict.fromkeys(self.table[name] for name in wanted))
        numbers = [number for number in numbers if number not in self.broken]
        if not numbers:
            return
        try:
            self._load(numbers)
        except (PagerError, OSError):
            for number in numbers:
                self._try_to_load(number)

    def _try_to_load(self, number: int) -> None:
        try:
            self._load([number])
        except (PagerError, OSError):
            # Whoever reads it is told.
            return

    def _load_for_functions(self) -> None:
        """Load what the functions that were loaded may read, and so on."""
        scanned: set[int] = set()
        while self.table:
            names: set[str] = set()
            everything = False
            for number in [n for n in self.loaded if n not in scanned]:
                scanned.add(number)
                for code in self._codes(number):
                    names.update(name for name in code.co_names if name in self.table)
                    everything = everything or scanning.enumerates(code)
            if not everything and not any(self.table[n] not in self.broken for n in names):
                return
            before = len(self.table)
            self._load_patiently(None if everything else names)
            if len(self.table) == before:
                return

    def _codes(self, number: int) -> Iterator[Any]:
        loaded = self.loaded[number]
        for name in loaded.names:
            yield from code_of(self._namespace.get(name))
        for uid in loaded.component.definitions:
            yield from code_of(self._definitions.get(uid))

    def _load(self, numbers: Iterable[int]) -> None:
        missing = [n for n in self._with_uses(numbers) if n not in self.loaded]
        ids = []
        for number in missing:
            component = self._index.component(number)
            ids += [component.pickle.object_id, *component.buffers]
        self._objects.fetch(ids)
        with _without_gc():
            for number in missing:
                if number not in self.loaded and number not in self.broken:
                    self._load_component(number)

    def _with_uses(self, numbers: Iterable[int]) -> list[int]:
        found: dict[int, None] = {}
        stack = list(numbers)
        while stack:
            number = stack.pop()
            if number in found or number in self.broken:
                continue
            found[number] = None
            uses = self._index.component(number).uses
            stack += [self._homes[uid] for uid in uses if uid in self._homes]
        return list(found)

    def _load_component(self, number: int) -> None:
        component = self._index.component(number)
        try:
            values = self._unpickle(component, SessionUnpickler)
        except (PagerError, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001  (user classes may raise anything)
            if not self._made_again(number, component):
                self._read_around(number, component)
                self._break(number, component, error)
            return
        named = zip(component.order, values, strict=True)
        self._bind_values(number, component, {n: v for n, v in named if n is not None})

    def _bind_values(self, number: int, component: Component, values: dict[str, Any]) -> None:
        loaded = Loaded(component=component)
        self.loaded[number] = loaded
        for name, value in values.items():
            if self.table.get(name) != number:
                continue
            loaded.names.append(name)
            if components.is_constant(value):
                loaded.constants[name] = value
            elif components.is_flat_container(value):
                loaded.copies[name] = copy_of(value)
            del self.table[name]
            self._bind(name, value)

    def _made_again(self, number: int, component: Component) -> bool:
        """Execute the definitions of a component again that another Python version stored."""
        if not self._index.is_foreign(number) or not component.definitions:
            return False
        made: dict[str, Any] = {}
        try:
            for uid in component.definitions:
                name = name_of(uid)
                made[name] = self._recompiler.execute_again(name, component.cell)
        except (PagerError, MemoryError):
            raise
        except BaseException:  # noqa: BLE001  (user code may raise anything)
            return False
        if not component.names.keys() <= made.keys():
            return False
        for uid in component.definitions:
            self._definitions.add(made[name_of(uid)], uid)
        self._bind_values(number, component, {n: made[n] for n in component.names})
        return True

    def _read_around(self, number: int, component: Component) -> None:
        """Bind what can be read of a component that cannot be read as a whole."""
        if component.definitions:
            # A class with a base that is not there would be taken for the class.
            return
        try:
            values = self._unpickle(component, PatientUnpickler)
        except BaseException:  # noqa: BLE001  (as above)
            return
        for name, value in zip(component.order, values, strict=True):
            if name is None or self.table.get(name) != number:
                continue
            if not components.holds_any(value, Missing):
                self.forget(name)
                self._bind(name, value)

    def _unpickle(
        self, component: Component, unpickler_class: type[SessionUnpickler]
    ) -> tuple[Any, ...]:
        buffers = [self._objects.mapped(object_id).view for object_id in component.buffers]
        unpickler = unpickler_class(
            io.BytesIO(self._objects.read(component.pickle)),
            self._namespace,
            self._definitions,
            self.definition,
            buffers,
            self._recompiler.make_code if self._index.is_foreign(component.number) else None,
            arrays_own=self._arrays_own,
        )
        _, values = unpickler.load()
        return tuple(values)

    def _break(self, number: int, component: Component, error: BaseException) -> None:
        for name, type_name in component.names.items():
            made = loss_of(name, None, error, component.cell)
            loss = Loss(
                type=type_name,
                cell=component.cell,
                why=f"reading it failed: {made.why}",
                hint=f"its bytes are still stored; %state export {name} writes them to a file",
            )
            self.broken[number] = loss
            self._lost_names[name] = self.unread_on_arrival[name] = loss
            tell(name, loss)
        self.broken.setdefault(number, Loss(type="", cell=component.cell, why=str(error)))


@contextmanager
def _without_gc() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
