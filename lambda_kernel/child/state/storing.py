"""After a cell: which components changed, and what of them is written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from lambda_kernel.child.losses import Loss, loss_of, type_name
from lambda_kernel.child.state import entries
from lambda_kernel.child.state.components import Components, is_constant
from lambda_kernel.child.state.copies import is_as_copied
from lambda_kernel.child.state.definitions import Definitions
from lambda_kernel.child.state.depth import at_any_depth
from lambda_kernel.child.state.dumping import Dumper, Pickled
from lambda_kernel.child.state.index import Component, Index, Ref
from lambda_kernel.child.state.loading import Loaded, Loader
from lambda_kernel.child.state.memory import Mapped, Memory, address_of
from lambda_kernel.child.state.packing import Packer


class DefinitionLost(Exception):
    """A value needs a class or function that cannot be stored."""


class Storing:
    """Stores the values of one cell into its index; used once.

    Args:
        index: of the session; changed in place.
        loader: what of it was loaded.
        definitions: of the session.
        memory: where loaded objects are mapped.
        packer: where pickles go.
        by_reference: see SessionPickler.
        cell: execution count of the cell that ran.
    """

    def __init__(
        self,
        index: Index,
        loader: Loader,
        definitions: Definitions,
        memory: Memory,
        packer: Packer,
        by_reference: Mapping[int, Callable[[], Any]],
        cell: int,
    ) -> None:
        self._index = index
        self._loader = loader
        self._definitions = definitions
        self._memory = memory
        self._packer = packer
        self._by_reference = by_reference
        self._cell = cell
        self._values: dict[str, Any] = {}
        self._lost: dict[str, Loss] = {}
        self._as_copied: set[str] = set()
        self._written: dict[int, list[int]] = {}
        self._dumper: Dumper

    def store(self, values: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Loss]:
        """Store ``values`` and forget names that are gone; returns what is lost, by name.

        Args:
            values: everything that the process has, by name.
            namespace: of the session.
        """
        for name in values:
            self._loader.forget(name)
        self._values = values
        self._drop_loaded()
        changed = self._keep_constants()
        walk = Components(self._definitions, self._process_objects(namespace))
        for value in changed.values():
            if self._definitions.is_own_plain_function(value) and (
                self._definitions.uid_of(value) is None
            ):
                self._definitions.add(value)
        for name, value in changed.items():
            if name in self._as_copied:
                walk.add_flat(name, value)
            else:
                walk.add(name, value)
        for loaded in self._loader.loaded.values():
            for uid in loaded.component.definitions:
                walk.add_definition(uid)
        groups = walk.groups()
        self._dumper = Dumper(self._definitions, namespace, self._by_reference, walk)
        for group in groups:
            self._store_group(group)
        self._lose_what_lacks_definitions()
        self._drop_unreachable()
        return self._told()

    def _process_objects(self, namespace: dict[str, Any]) -> list[int]:
        own = [namespace, namespace.get("__builtins__"), namespace.get("_oh"), namespace.get("In")]
        return [*map(id, own), *self._by_reference]

    def _drop_loaded(self) -> None:
        # Every loaded component is stored again, under its own number where it is as it was.
        for number in self._loader.loaded:
            self._index.rows.pop(number, None)
        self._index.drop_empty()

    def _keep_constants(self) -> dict[str, Any]:
        """Keep components of constants that are the very objects that were loaded."""
        rest = dict(self._values)
        for loaded in self._loader.loaded.values():
            self._compare(loaded.copies)
            names = loaded.component.names
            if loaded.component.definitions or not names or set(names) != loaded.constants.keys():
                continue
            if all(
                name in rest and rest[name] is value and is_constant(value)
                for name, value in loaded.constants.items()
            ):
                self._index.put(loaded.component)
                for name in names:
                    del rest[name]
        return rest

    def _compare(self, copies: Mapping[str, Any]) -> None:
        """Note which large flat containers hold the very objects they held."""
        for name, copy in copies.items():
            if name in self._values and is_as_copied(self._values[name], copy):
                self._as_copied.add(name)

    def _store_group(self, group: Sequence[Hashable]) -> None:
        names = [root for root in group if isinstance(root, str)]
        uids = [root[1] for root in group if isinstance(root, tuple)]
        number, loaded = self._same_as_loaded(names, uids)
        if loaded is not None and self._is_untouched(loaded, names):
            self._index.put(loaded.component)
            return
        own = self._dumper.in_base_first_order(uids)
        names, pickled = self._dump(own, names)
        if pickled is None:
            return
        if loaded is not None and self._is_as_stored(loaded.component, names, own, pickled):
            self._index.put(loaded.component)
            return
        before = None if loaded is None else loaded.component.pickle
        self._write(number, names, own, pickled, before)

    def _same_as_loaded(self, names: list[str], uids: list[str]) -> tuple[int, Loaded | None]:
        number = self._loaded_by_root.get(names[0] if names else ("definition", uids[0]))
        if number is not None:
            loaded = self._loader.loaded[number]
            same_names = set(names) == loaded.component.names.keys()
            if same_names and set(uids) == set(loaded.component.definitions):
                return number, loaded
        self._index.next_component += 1
        return self._index.next_component - 1, None

    @functools.cached_property
    def _loaded_by_root(self) -> dict[Hashable, int]:
        roots: dict[Hashable, int] = {}
        for number, loaded in self._loader.loaded.items():
            roots.update(dict.fromkeys(loaded.names, number))
            uids = loaded.component.definitions
            roots.update(dict.fromkeys((("definition", uid) for uid in uids), number))
        return roots

    def _is_untouched(self, loaded: Loaded, names: list[str]) -> bool:
        if not names or loaded.component.definitions or set(names) != loaded.copies.keys():
            return False
        return self._as_copied.issuperset(names)

    def _is_as_stored(
        self, component: Component, names: list[str], own: list[str], pickled: Pickled
    ) -> bool:
        if component.order != names or component.definitions != own:
            return False
        if len(pickled.body) != component.pickle.size_bytes:
            return False
        if pickled.body != bytes(self._loader.stored_bytes(component.pickle)):
            return False
        return [self._unchanged_object(buffer) for buffer in pickled.buffers] == component.buffers

    def _unchanged_object(self, buffer: memoryview) -> int:
        mapped = self._memory.find(address_of(buffer), buffer.nbytes)
        if mapped is None or self._written_chunks(mapped):
            return 0
        return mapped.object_id

    def _dump(self, own: list[str], names: list[str]) -> tuple[list[str], Pickled | None]:
        try:
            return names, self._try_dump(own, names)
        except BaseException as error:  # noqa: BLE001  (user classes may raise anything)
            failure = error
        kept = [name for name in names if not self._fails(own, name, failure, len(names))]
        if (kept or own) and len(kept) < len(names):
            try:
                return kept, self._try_dump(own, kept)
            except BaseException as error:  # noqa: BLE001  (as above)
                failure = error
        for name in kept:
            self._lose(name, failure)
        return [], None

    def _try_dump(self, own: list[str], names: list[str]) -> Pickled:
        values = [self._values[name] for name in names]
        pickled = at_any_depth(lambda: self._dumper.dump(own, values))
        # Code of the user's may run while something is pickled, and not before the next is.
        self._written.clear()
        writer = self._packer.writer
        writer.check(pickled.body)
        for buffer in pickled.buffers:
            mapped = self._memory.find(address_of(buffer), buffer.nbytes)
            if mapped is None:
                writer.check(buffer)
            else:
                writer.check_chunks(buffer, self._written_chunks(mapped))
        return pickled

    def _fails(self, own: list[str], name: str, failure: BaseException, count: int) -> bool:
        if count > 1 or own:
            try:
                self._try_dump(own if self._definitions.uid_of(self._values[name]) else [], [name])
            except BaseException as error:  # noqa: BLE001  (as above)
                failure = error
            else:
                return False
        self._lose(name, failure)
        return True

    def _lose(self, name: str, error: BaseException) -> None:
        self._lost[name] = loss_of(name, self._values[name], error, self._cell)

    def _write(
        self, number: int, names: list[str], own: list[str], pickled: Pickled, before: Ref | None
    ) -> None:
        buffers = [self._write_buffer(buffer) for buffer in pickled.buffers]
        component = Component.make(
            number=number,
            names={name: type_name(self._values[name]) for name in names},
            definitions=own,
            uses=pickled.uses,
            pickle=Ref(0, 0, len(pickled.body)),
            buffers=buffers,
            size_bytes=len(pickled.body) + sum(b.nbytes for b in pickled.buffers),
            cell=self._cell,
        )
        self._index.put(component)
        self._index.foreign.pop(number, None)
        self._packer.add(pickled.body, component.move_to, before)

    def _write_buffer(self, buffer: memoryview) -> int:
        mapped = self._memory.find(address_of(buffer), buffer.nbytes)
        if mapped is None:
            return self._packer.writer.write([buffer])
        changed = self._written_chunks(mapped)
        if not changed:
            return mapped.object_id
        return self._packer.writer.patch(mapped.object_id, mapped.view, changed)

    def _written_chunks(self, mapped: Mapped) -> list[int]:
        found = self._written.get(mapped.object_id)
        if found is None:
            found = self._written[mapped.object_id] = self._memory.written_chunks(mapped)
        return found

    def _lose_what_lacks_definitions(self) -> None:
        index = self._index
        while True:
            known = index.homes().keys()
            lacking = [c for c in index.unsettled() if c.uses and not known >= set(c.uses)]
            if not lacking:
                return
            for component in lacking:
                del index.rows[component.number]
                for name in component.names:
                    if name in self._values:
                        error = DefinitionLost("its class or a function it needs cannot be stored")
                        self._lose(name, error)

    def _drop_unreachable(self) -> None:
        index = self._index
        homes = index.homes()
        if not homes:
            return
        reached: set[int] = set()
        stack = [component.number for component in index.unsettled() if component.names]
        while stack:
            number = stack.pop()
            if number not in reached:
                reached.add(number)
                stack += [homes[uid] for uid in index.component(number).uses]
        for number in index.rows.keys() - reached:
            del index.rows[number]

    def _told(self) -> dict[str, Loss]:
        return {
            shown: loss
            for name, loss in self._lost.items()
            if (shown := entries.label(name)) is not None
        }
