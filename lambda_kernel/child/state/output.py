"""What a cell adds to the stored objects: new bytes, changed chunks, one pack of small pickles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from lambda_kernel.child.rehydrators import NotCarried
from lambda_kernel.child.state.index import Ref
from lambda_kernel.contract.commit import CHUNK_BYTES
from lambda_kernel.contract.outcome import LostName
from lambda_kernel.contract.paging import page_aligned, write_at
from lambda_kernel.contract.snapshot_report import (
    MAX_CHANGED,
    NewObject,
    PatchedObject,
    SnapshotReport,
)

MIN_SECRET_CHARACTERS = 8
LARGE_PICKLE_BYTES = 1024 * 1024
"""A larger pickle is an object of its own."""


class SecretFound(NotCarried):
    """A variable holds the value of a connector's secret, which is never stored."""


class ObjectWriter:
    """Writes objects to ``snapshot_out``.

    Args:
        descriptor: an empty file.
        next_id: above every id of the session.
        secrets: variable names of the environment and their values.
    """

    def __init__(self, descriptor: int, next_id: int, secrets: Mapping[str, bytes]) -> None:
        self._descriptor = descriptor
        self._next_id = next_id
        self._secrets = secrets
        self._offset = 0
        self._new: list[NewObject] = []
        self._patched: list[PatchedObject] = []

    @property
    def next_id(self) -> int:
        """The next number that nobody has used."""
        return self._next_id

    def check(self, body: bytes | memoryview) -> None:
        """Search ``body`` for secrets (raises SecretFound)."""
        for name, value in self._secrets.items():
            if _contains(body, value):
                raise SecretFound(
                    f"it holds the value of {name}, and secrets are never stored",
                    f"os.environ[{name!r}] in the cell that uses it",
                )

    def check_chunks(self, body: memoryview, numbers: Iterable[int]) -> None:
        """Search those chunks of ``body`` that were written to (raises SecretFound)."""
        margin = max(map(len, self._secrets.values()), default=0)
        for number in numbers:
            begin = number * CHUNK_BYTES
            self.check(body[max(0, begin - margin) : begin + CHUNK_BYTES + margin])

    def write(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write one object from its parts; returns its id."""
        size = sum(len(part) for part in parts)
        new = NewObject(id=self._take_id(), offset=self._begin(), size_bytes=size)
        for part in parts:
            self._append(part)
        self._new.append(new)
        return new.id

    def patch(self, base: int, body: memoryview, numbers: Iterable[int]) -> int:
        """Write the chunks in which ``body`` differs from an object; returns the new one's id."""
        chunks = []
        for number in numbers:
            chunks.append((number, self._begin()))
            self._append(body[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
        patched = PatchedObject(id=self._take_id(), base=base, chunks=tuple(chunks))
        self._patched.append(patched)
        return patched.id

    def report(
        self, index: int, used: set[int], lost: tuple[LostName, ...], changed: Mapping[str, str]
    ) -> SnapshotReport:
        """Return what is told of all this; ``used`` are the ids that the session needs."""
        written = {item.id for item in self._new} | {item.id for item in self._patched}
        return SnapshotReport(
            size_bytes=self._offset,
            index=index,
            keep=tuple(sorted(used - written)),
            new=tuple(self._new),
            patched=tuple(self._patched),
            lost=lost,
            changed=dict(islice(changed.items(), MAX_CHANGED)),
        )

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _begin(self) -> int:
        self._offset = page_aligned(self._offset)
        return self._offset

    def _append(self, part: bytes | memoryview) -> None:
        write_at(self._descriptor, part, self._offset)
        self._offset += len(part)


class Pack:
    """Small pickles that become one object."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self.size_bytes = 0

    def add(self, body: bytes | memoryview) -> Ref:
        """Append ``body``; the reference has no object yet (0)."""
        ref = Ref(0, self.size_bytes, len(body))
        self._parts.append(body)
        self.size_bytes += len(body)
        return ref

    def write(self, writer: ObjectWriter) -> int:
        """Write it as one object; returns its id."""
        return writer.write(self._parts)


def secret_values(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, bytes]:
    """Return the values to keep out of snapshots; very short ones would match anything."""
    return {
        name: environment[name].encode("utf-8", "surrogateescape")
        for name in names
        if len(environment[name]) >= MIN_SECRET_CHARACTERS
    }


def _contains(body: bytes | memoryview, value: bytes) -> bool:
    if isinstance(body, bytes):
        return value in body
    # In windows, so that nothing large is copied.
    window, overlap = CHUNK_BYTES, len(value) - 1
    return any(
        value in bytes(body[start : start + window + overlap])
        for start in range(0, len(body), window)
    )
