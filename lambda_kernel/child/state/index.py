"""What a snapshot says of itself: which stored bytes make which variables.

It is JSON, so that the gateway can list variables without opening a pickle.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lambda_kernel.child.losses import Loss
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
)
from lambda_kernel.child.state.settled import MAX_PARTS, MIN_ROWS, Settled, is_plain

VERSION = 2


class IndexUnreadable(Exception):
    """The bytes do not describe a session that this version can read."""


class Ref(NamedTuple):
    """Bytes inside a stored object."""

    object_id: int
    offset: int
    size_bytes: int


class Component:
    """Variables and definitions that are stored as one pickle.

    It is a view of its row in the index: a session may have ten thousand of them, and a cell looks
    at a few.
    """

    __slots__ = ("row",)

    def __init__(self, row: list[Any]) -> None:
        self.row = row

    @classmethod
    def make(
        cls,
        *,
        number: int,
        names: dict[str, str],
        definitions: list[str],
        uses: list[str],
        pickle: Ref,
        buffers: list[int],
        size_bytes: int,
        cell: int,
    ) -> Component:
        """Return a new one.

        Args:
            number: identifies it in its session.
            names: the variables, with their type names, in the order of the pickle.
            definitions: identities of the definitions in it, in the order of the pickle.
            uses: identities of the definitions of other components that it refers to.
            pickle: where its bytes are.
            buffers: ids of the objects that hold its large buffers.
            size_bytes: of pickle and buffers together.
            cell: the execution count of the cell that stored it.
        """
        return cls([number, names, None, definitions, uses, pickle, buffers, size_bytes, cell])

    @property
    def number(self) -> int:
        """What identifies it in its session."""
        return int(self.row[NUMBER])

    @property
    def names(self) -> dict[str, str]:
        """The variables that the session still has, with their type names."""
        names: dict[str, str] = self.row[NAMES]
        return names

    @property
    def order(self) -> list[str | None]:
        """The names in the order of the pickle; None = another value has taken the name."""
        order: list[str | None] | None = self.row[ORDER]
        return list(self.names) if order is None else order

    @property
    def definitions(self) -> list[str]:
        """Identities of the definitions in it, in the order of the pickle."""
        definitions: list[str] = self.row[DEFINITIONS]
        return definitions

    @property
    def uses(self) -> list[str]:
        """Identities of the definitions of other components that it refers to."""
        uses: list[str] = self.row[USES]
        return uses

    @property
    def pickle(self) -> Ref:
        """Where its bytes are."""
        return Ref(*self.row[PICKLE])

    @property
    def buffers(self) -> list[int]:
        """Ids of the objects that hold its large buffers."""
        buffers: list[int] = self.row[BUFFERS]
        return buffers

    @property
    def size_bytes(self) -> int:
        """Of pickle and buffers together."""
        return int(self.row[SIZE])

    @property
    def cell(self) -> int:
        """The execution count of the cell that stored it."""
        return int(self.row[CELL])

    def rename(self, old: str, new: str | None) -> None:
        """Give a variable another name; None = the session has lost it."""
        self.row[ORDER] = [new if name == old else name for name in self.order]
        self.row[NAMES] = {
            (new if name == old else name): kind
            for name, kind in self.names.items()
            if name != old or new is not None
        }

    def move_to(self, ref: Ref) -> None:
        """Note where the pickle is now."""
        self.row[PICKLE] = ref


@dataclass(slots=True, kw_only=True)
class Index:
    """Everything that is stored of a session.

    Attributes:
        python: ``major.minor`` of the interpreter that wrote it.
        cell: the execution count it was written after.
        next_object, next_component: numbers that nobody has used yet.
        rows: of the components, by number; without those that have settled.
        settled: what is said of the others, once ``read_settled`` has it.
        settled_ids: the objects that hold it, and the numbers in each that are gone.
        open_pack: the object that the next small pickles join; 0 = none.
        settings: where the side state is.
        history: where the inputs of earlier cells are, oldest first.
        aliases: names of the namespace itself (None), of ``In`` and of ``Out``.
        lost: names that could not be carried, and why.
        foreign: components that another Python version wrote, by number: which one.
        changed: what the newest cell did to names: added, changed, removed or lost.
    """

    python: str
    cell: int = 0
    next_object: int = 1
    next_component: int = 1
    rows: dict[int, list[Any]] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)
    settled_ids: list[tuple[int, list[int]]] = field(default_factory=list)
    open_pack: int = 0
    settings: Ref | None = None
    history: list[Ref] = field(default_factory=list)
    aliases: dict[str, str | None] = field(default_factory=dict)
    lost: dict[str, Loss] = field(default_factory=dict)
    foreign: dict[int, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        data = {
            "v": VERSION,
            "python": self.python,
            "cell": self.cell,
            "next": [self.next_object, self.next_component],
            "components": list(self.rows.values()),
            "settled": [[part.object_id, sorted(part.gone)] for part in self.settled],
            "open": self.open_pack,
            "settings": self.settings,
            "history": self.history,
            "aliases": self.aliases,
            "lost": {name: loss.to_dict() for name, loss in self.lost.items()},
            "foreign": self._foreign_left(),
            "changed": self.changed,
        }
        return json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    @classmethod
    def from_bytes(cls, stored: bytes | memoryview) -> Index:
        """Return the index in ``stored``.

        Raises:
            IndexUnreadable: it is none, or of a version that this one does not know.
        """
        try:
            data = json.loads(bytes(stored))
            version = data["v"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise IndexUnreadable("the description of the stored variables is damaged") from None
        if version != VERSION:
            raise IndexUnreadable(
                f"the variables were stored in version {version!r} of the format, this kernel "
                f"reads version {VERSION}: use the version of the gateway that stored them, or "
                "restart the kernel, which empties the namespace and keeps the files"
            )
        return cls._from_data(data)

    @classmethod
    def _from_data(cls, data: dict[str, Any]) -> Index:
        next_object, next_component = data["next"]
        settings = data["settings"]
        return cls(
            python=data["python"],
            cell=data["cell"],
            next_object=next_object,
            next_component=next_component,
            rows={row[NUMBER]: row for row in data["components"]},
            settled_ids=[(object_id, gone) for object_id, gone in data.get("settled", ())],
            open_pack=data["open"],
            settings=None if settings is None else Ref(*settings),
            history=[Ref(*ref) for ref in data["history"]],
            aliases=data["aliases"],
            lost={name: Loss(**loss) for name, loss in data["lost"].items()},
            foreign={int(n): python for n, python in data.get("foreign", {}).items()},
            changed=data.get("changed", {}),
        )

    def read_by(self, python: str) -> None:
        """From now on, this version writes; what is stored already is of the one it was."""
        if self.python != python:
            for number in {*self.rows, *self.stored_names().values()}:
                self.foreign.setdefault(number, self.python)
            self.python = python

    def _foreign_left(self) -> dict[str, str]:
        if not self.foreign:
            return {}
        left = {*self.rows, *self.stored_names().values()}
        return {str(number): it for number, it in self.foreign.items() if number in left}

    def is_foreign(self, number: int) -> bool:
        """Return whether another version than the session's wrote a component."""
        return self.foreign.get(number, self.python) != self.python

    def read_settled(self, read: Callable[[int], bytes]) -> None:
        """Read what has settled; ``read`` returns a stored object.

        Raises:
            IndexUnreadable: it is damaged.
        """
        try:
            self.settled = [
                Settled(number, read(number), gone) for number, gone in self.settled_ids
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise IndexUnreadable("the description of the stored variables is damaged") from None

    def settle(self, write: Callable[[bytes], int]) -> None:
        """Let rows settle where enough will stay as they are; ``write`` stores an object."""
        for part in self.settled:
            part.settle(self.rows)
        kept = [part for part in self.settled if len(part) > len(part.gone)]
        thin = [part for part in self.settled if len(part) <= len(part.gone)]
        ready = [row for row in self.rows.values() if self._may_settle(row)]
        if len(kept) >= MAX_PARTS and len(ready) >= MIN_ROWS:
            kept, thin = [], self.settled
        for row in itertools.chain.from_iterable(part.take_all() for part in thin):
            self.rows[row[NUMBER]] = row
            ready.append(row)
        self.settled = kept
        if len(ready) >= MIN_ROWS:
            stored = Settled.to_bytes(ready)
            self.settled.append(Settled(write(stored), stored, ()))
            for row in ready:
                del self.rows[row[NUMBER]]

    def _may_settle(self, row: list[Any]) -> bool:
        # What is in the open pack moves with every cell.
        return row[PICKLE][0] != self.open_pack and is_plain(row)

    def component(self, number: int) -> Component:
        """Return the component of a number (raises KeyError: there is none)."""
        row = self.rows.get(number)
        if row is None:
            found = (part.take(number) for part in self.settled)
            row = next((each for each in found if each is not None), None)
            if row is None:
                raise KeyError(number)
            self.rows[number] = row
        return Component(row)

    def components(self) -> Iterator[Component]:
        """Yield all of them."""
        for part in self.settled:
            self.rows.update((row[NUMBER], row) for row in part.take_all())
        return map(Component, self.rows.values())

    def unsettled(self) -> Iterator[Component]:
        """Yield those that may have definitions, or use some."""
        return map(Component, self.rows.values())

    def put(self, component: Component) -> None:
        """Add a component, or replace the one of its number."""
        self.rows[component.number] = component.row

    def drop_empty(self) -> None:
        """Drop components that no name and no definition is left of."""
        empty = [n for n, row in self.rows.items() if not row[NAMES] and not row[DEFINITIONS]]
        for number in empty:
            del self.rows[number]

    def stored_names(self) -> dict[str, int]:
        """Return the number of its component for each name."""
        names: dict[str, int] = {}
        for part in self.settled:
            names.update(part.names())
        names.update((name, row[NUMBER]) for row in self.rows.values() for name in row[NAMES])
        return names

    def side_names(self) -> list[str]:
        """Return the names of the side state's objects."""
        return [n for row in self.rows.values() for n in row[NAMES] if n.startswith("(")]

    def changes_since(
        self, names: Mapping[str, int], rows: Mapping[int, list[Any]]
    ) -> dict[str, str]:
        """Return what became of names: added, changed or removed.

        Args:
            names: the numbers of their components before.
            rows: the components of then; one that is still there has not changed.
        """
        before = dict(rows)
        for part in self.settled:
            before.update(part.taken())
        now = {name: row for row in self.rows.values() for name in row[NAMES]}
        then = {name for name, number in names.items() if number in before}
        changes = {name: "removed" for name in names if name in then and name not in now}
        for name, row in now.items():
            if name not in names:
                changes[name] = "added"
            elif before[names[name]] is not row:
                changes[name] = "changed"
        return changes

    def homes(self) -> dict[str, int]:
        """Return the number of its component for each definition."""
        return {uid: row[NUMBER] for row in self.rows.values() for uid in row[DEFINITIONS]}

    def live_bytes(self) -> Counter[int]:
        """Return how many pickled bytes of each object the session needs."""
        live: Counter[int] = Counter()
        for part in self.settled:
            live.update(part.live_bytes())
        for row in self.rows.values():
            object_id, _, size_bytes = row[PICKLE]
            live[object_id] += size_bytes
        for ref in self.history:
            live[ref.object_id] += ref.size_bytes
        return live

    def size_bytes(self) -> int:
        """Return what the variables take together."""
        settled = sum(part.size_bytes() for part in self.settled)
        return int(settled + sum(row[SIZE] for row in self.rows.values()))

    def objects(self) -> set[int]:
        """Return the ids of the objects that the session needs."""
        ids = {row[PICKLE][0] for row in self.rows.values()}
        for part in self.settled:
            ids.add(part.object_id)
            ids.update(part.live_bytes())
        ids.update(ref.object_id for ref in self.history)
        for row in self.rows.values():
            if row[BUFFERS]:
                ids.update(row[BUFFERS])
        if self.settings is not None:
            ids.add(self.settings.object_id)
        return ids
