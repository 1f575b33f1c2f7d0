"""Where small pickles go: together, so that a cell stores one object and reads few.

New ones join those of the *open pack*, which is written anew each time, until it is large enough to
be left alone; what is dead in it is dropped on the way.
"""

from __future__ import annotations

from collections.abc import Callable

from lambda_kernel.child.state.index import Index, Ref
from lambda_kernel.child.state.objects import StoredObjects
from lambda_kernel.child.state.output import LARGE_PICKLE_BYTES, ObjectWriter, Pack
from lambda_kernel.contract.commit import CHUNK_BYTES

OPEN_PACK_BYTES = 64 * 1024
OPEN_PACK_PICKLES = 256
MIN_LIVE_SHARE = 0.25


class Packer:
    """Places the pickles of one cell.

    Args:
        index: of the session; its references are filled in.
        objects: of the session before.
        writer: of the cell's new objects.
    """

    def __init__(self, index: Index, objects: StoredObjects, writer: ObjectWriter) -> None:
        self._index = index
        self._objects = objects
        self.writer = writer
        self._small: list[tuple[bytes, Callable[[Ref], None]]] = []

    def add(self, body: bytes, place: Callable[[Ref], None], before: Ref | None = None) -> None:
        """Store ``body``; ``place`` is called with where it is, at the latest by ``finish``.

        Args:
            body: a pickle.
            place: takes its reference.
            before: where the pickle is that it takes the place of.
        """
        if len(body) >= LARGE_PICKLE_BYTES:
            place(Ref(self._add_large(body, before), 0, len(body)))
        else:
            self._small.append((body, place))

    def _add_large(self, body: bytes, before: Ref | None) -> int:
        if before is None or before.size_bytes != len(body) or before.offset:
            return self.writer.write([body])
        stored = self._objects.read(before)
        starts = range(0, len(body), CHUNK_BYTES)
        changed = [
            number
            for number, start in enumerate(starts)
            if body[start : start + CHUNK_BYTES] != bytes(stored[start : start + CHUNK_BYTES])
        ]
        if not changed:
            return before.object_id
        if len(changed) == len(starts) or self._objects.size_of(before.object_id) != len(body):
            return self.writer.write([body])
        return self.writer.patch(before.object_id, memoryview(body), changed)

    def finish(self) -> set[int]:
        """Write the pack; returns the ids of the objects that the session needs."""
        index = self._index
        pack = Pack()
        moved = self._moved()
        placed: list[tuple[Ref, Callable[[Ref], None]]] = []
        for ref, place in moved:
            placed.append((pack.add(self._objects.read(ref)), place))
        for body, place in self._small:
            placed.append((pack.add(body), place))
        if placed:
            number = pack.write(self.writer)
            for ref, place in placed:
                place(ref._replace(object_id=number))
            index.open_pack = number if len(placed) <= OPEN_PACK_PICKLES else 0
        index.settle(lambda stored: self.writer.write([stored]))
        return index.objects()

    def write_index(self) -> int:
        """Write the index itself, last; returns its id."""
        index = self._index
        index.next_object = self.writer.next_id + 1
        return self.writer.write([index.to_bytes()])

    def _moved(self) -> list[tuple[Ref, Callable[[Ref], None]]]:
        """Return the pickles of earlier cells that move into the new pack."""
        index = self._index
        live = index.live_bytes()
        opened, moving = index.open_pack, set()
        new_bytes = sum(len(body) for body, _ in self._small)
        if opened and live[opened] + new_bytes <= OPEN_PACK_BYTES:
            moving.add(opened)
        for number, size in live.items():
            at_hand = self._objects.is_mapped(number) and 0 < size < LARGE_PICKLE_BYTES
            if at_hand and size < MIN_LIVE_SHARE * self._objects.size_of(number):
                moving.add(number)
        return [] if not moving else self._places(moving)

    def _places(self, moving: set[int]) -> list[tuple[Ref, Callable[[Ref], None]]]:
        """Return references to some objects, and how to change each."""
        index = self._index
        all_of_them = index.unsettled if moving == {index.open_pack} else index.components
        components = [c for c in all_of_them() if c.pickle.object_id in moving]
        found: list[tuple[Ref, Callable[[Ref], None]]] = [(c.pickle, c.move_to) for c in components]
        found += [
            (ref, _setter(index.history, position))
            for position, ref in enumerate(index.history)
            if ref.object_id in moving
        ]
        return found


def _setter(refs: list[Ref], position: int) -> Callable[[Ref], None]:
    def place(ref: Ref) -> None:
        refs[position] = ref

    return place
