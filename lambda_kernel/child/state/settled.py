"""Parts of an index that many cells in a row leave as they are: stored once, read in part.

A session may have ten thousand variables, and a cell reads three. What is said of plain variables
(one name, one small pickle in a pack that is full) moves out of the index into an object of its
own: a cell reads the names in it, and of the rest only what it needs.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator

from lambda_kernel.child.state.rows import (
    BUFFERS,
    CELL,
    DEFINITIONS,
    NAMES,
    NUMBER,
    ORDER,
    PICKLE,
    SIZE,
    USES,
    Row,
)

MIN_ROWS = 256
MAX_PARTS = 6


class Settled:
    """One such part.

    Args:
        object_id: the stored object; 0 = not stored yet.
        stored: its bytes.
        gone: numbers of components in it that the session does not have, or not like this.

    Raises:
        ValueError, KeyError, TypeError: the bytes are none.
    """

    def __init__(self, object_id: int, stored: bytes, gone: Iterable[int]) -> None:
        data = json.loads(stored)
        self.object_id = object_id
        self.gone = set(gone)
        self._names: list[str] = data["names"].split(" ")
        self._runs = [range(start, start + count) for start, count in data["numbers"]]
        self._types: list[str] = data["types"]
        self._live: list[tuple[int, int]] = data["live"]
        self._size_bytes: int = data["size"]
        self._rest: str = data["rest"]
        self._columns: list[list[int]] = []
        self._taken: dict[int, Row] = {}

    @staticmethod
    def to_bytes(rows: Iterable[Row]) -> bytes:
        """Return the stored form of plain rows."""
        rows = sorted(rows)
        types: dict[str, int] = {}
        live: Counter[int] = Counter()
        names, columns = [], []
        for row in rows:
            ((name, type_name),) = row[NAMES].items()
            names.append(name)
            place = types.setdefault(type_name, len(types))
            columns.append((place, *row[PICKLE], row[CELL]))
            live[row[PICKLE][0]] += row[PICKLE][2]
        data = {
            "names": " ".join(names),
            "numbers": _runs([row[NUMBER] for row in rows]),
            "types": list(types),
            "live": list(live.items()),
            "size": sum(row[SIZE] for row in rows),
            # In text of its own: most cells need not read it.
            "rest": json.dumps(list(zip(*columns, strict=True)), separators=(",", ":")),
        }
        return json.dumps(data, separators=(",", ":")).encode("ascii")

    def __len__(self) -> int:
        return len(self._names) - len(self.gone)

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield names and the numbers of their components."""
        pairs = zip(self._names, itertools.chain.from_iterable(self._runs), strict=True)
        if not self.gone and not self._taken:
            return pairs
        out = self.gone | self._taken.keys()
        return (pair for pair in pairs if pair[1] not in out)

    def take(self, number: int) -> Row | None:
        """Return the row of a component, to be kept by the caller; None = there is none to take."""
        position = self._position(number)
        if position < 0 or number in self.gone or number in self._taken:
            return None
        row = self._taken[number] = self._row(number, position)
        return row

    def taken(self) -> dict[int, Row]:
        """Return the rows that ``take`` has given."""
        return self._taken

    def take_all(self) -> list[Row]:
        """Return the rows that were not taken yet, to be kept by the caller."""
        return [self._taken.setdefault(n, self._row(n, self._position(n))) for n in self._left()]

    def settle(self, rows: dict[int, Row]) -> None:
        """Take those of a session's rows back that are as in here; others are gone from here."""
        for number in self._taken:
            if rows.get(number) == self._row(number, self._position(number)):
                del rows[number]
            else:
                self.gone.add(number)
        self._taken = {}

    def live_bytes(self) -> Counter[int]:
        """Return the pickled bytes by object, without rows that are gone or taken."""
        live = Counter(dict(self._live))
        for object_id, size in self._lacking():
            live[object_id] -= size
        return +live

    def size_bytes(self) -> int:
        """Return the size of all, without rows that are gone or taken."""
        return self._size_bytes - sum(size for _, size in self._lacking())

    def _left(self) -> list[int]:
        return [number for _, number in self.names()]

    def _lacking(self) -> list[tuple[int, int]]:
        rows = (self._row(n, self._position(n)) for n in self.gone | self._taken.keys())
        return [(row[PICKLE][0], row[PICKLE][2]) for row in rows]

    def _position(self, number: int) -> int:
        before = 0
        for run in self._runs:
            if number in run:
                return before + number - run.start
            before += len(run)
        return -1

    def _row(self, number: int, position: int) -> Row:
        if not self._columns:
            self._columns = json.loads(self._rest)
        kind, object_id, offset, size, cell = (column[position] for column in self._columns)
        names = {self._names[position]: self._types[kind]}
        return [number, names, None, [], [], [object_id, offset, size], [], size, cell]


def is_plain(row: Row) -> bool:
    """Return whether a row can settle."""
    names = row[NAMES]
    return (
        len(names) == 1
        and not (row[ORDER] or row[DEFINITIONS] or row[USES] or row[BUFFERS])
        and row[SIZE] == row[PICKLE][2]
        and all(name.isidentifier() or name.startswith("Out[") for name in names)
    )


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs
