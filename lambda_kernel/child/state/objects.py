"""The stored objects of a session, mapped into this process when they are needed."""

from __future__ import annotations

from collections.abc import Iterable

from lambda_kernel.child.state.index import Ref
from lambda_kernel.child.state.memory import Mapped, Memory
from lambda_kernel.contract import paging


class StoredObjects:
    """What the serving process holds for this session.

    Args:
        memory: where objects are mapped.
        snapshot_in: what is at hand.
        pager: whom to ask for the rest.

    Raises:
        ValueError: ``snapshot_in`` cannot be read.
    """

    def __init__(self, memory: Memory, snapshot_in: int, pager: int) -> None:
        self._memory = memory
        self._snapshot_in = snapshot_in
        self._pager = pager
        header = paging.SnapshotHeader.read(snapshot_in)
        self.index_id = header.index
        self.highest_id = header.highest_id
        self._held = {held.id: held for held in header.objects}
        self._mapped: dict[int, Mapped] = {}

    def fetch(self, ids: Iterable[int]) -> None:
        """Bring objects in, all in one question.

        Raises:
            PagerError: one cannot be had.
            OSError: there is no room for one.
        """
        missing = []
        for object_id in dict.fromkeys(ids):
            if object_id in self._mapped:
                continue
            held = self._held.get(object_id)
            if held is None:
                raise paging.PagerError(f"the session has no object {object_id}")
            if held.offset >= 0:
                piece = paging.Piece(self._snapshot_in, held.offset, held.size_bytes)
                self._mapped[object_id] = self._memory.map(object_id, [piece])
            else:
                missing.append(object_id)
        if missing:
            self._ask(missing)

    def mapped(self, object_id: int) -> Mapped:
        """Return an object, fetched where it was not (raises as ``fetch`` does)."""
        self.fetch([object_id])
        return self._mapped[object_id]

    def is_mapped(self, object_id: int) -> bool:
        """Return whether the object is in memory already."""
        return object_id in self._mapped

    def read(self, ref: Ref) -> memoryview:
        """Return the bytes at ``ref`` (raises as ``fetch`` does)."""
        return self.mapped(ref.object_id).view[ref.offset : ref.offset + ref.size_bytes]

    def size_of(self, object_id: int) -> int:
        """Return the size of an object in bytes."""
        return self._held[object_id].size_bytes

    def _ask(self, missing: list[int]) -> None:
        found = paging.ask(self._pager, missing)
        try:
            for object_id, answer in found.items():
                self._mapped[object_id] = self._memory.map(object_id, answer)
        finally:
            paging.close_all(found)
