"""What a snapshot says of itself: which stored bytes make which variables.

It is JSON, so that the gateway can list variables without opening a pickle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lambda_kernel.child.losses import Loss

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
        return int(self.row[_NUMBER])

    @property
    def names(self) -> dict[str, str]:
        """The variables that the session still has, with their type names."""
        names: dict[str, str] = self.row[_NAMES]
        return names

    @property
    def order(self) -> list[str | None]:
        """The names in the order of the pickle; None = another value has taken the name."""
        order: list[str | None] | None = self.row[_ORDER]
        return list(self.names) if order is None else order

    @property
    def definitions(self) -> list[str]:
        """Identities of the definitions in it, in the order of the pickle."""
        definitions: list[str] = self.row[_DEFINITIONS]
        return definitions

    @property
    def uses(self) -> list[str]:
        """Identities of the definitions of other components that it refers to."""
        uses: list[str] = self.row[_USES]
        return uses

    @property
    def pickle(self) -> Ref:
        """Where its bytes are."""
        return Ref(*self.row[_PICKLE])

    @property
    def buffers(self) -> list[int]:
        """Ids of the objects that hold its large buffers."""
        buffers: list[int] = self.row[_BUFFERS]
        return buffers

    @property
    def size_bytes(self) -> int:
        """Of pickle and buffers together."""
        return int(self.row[_SIZE])

    @property
    def cell(self) -> int:
        """The execution count of the cell that stored it."""
        return int(self.row[_CELL])

    def rename(self, old: str, new: str | None) -> None:
        """Give a variable another name; None = the session has lost it."""
        self.row[_ORDER] = [new if name == old else name for name in self.order]
        self.row[_NAMES] = {
            (new if name == old else name): kind
            for name, kind in self.names.items()
            if name != old or new is not None
        }

    def move_to(self, ref: Ref) -> None:
        """Note where the pickle is now."""
        self.row[_PICKLE] = ref


_NUMBER, _NAMES, _ORDER, _DEFINITIONS, _USES, _PICKLE, _BUFFERS, _SIZE, _CELL = range(9)


@dataclass(slots=True, kw_only=True)
class Index:
    """Everything that is stored of a session.

    Attributes:
        python: ``major.minor`` of the interpreter that wrote it.
        cell: the execution count it was written after.
        next_object, next_component: numbers that nobody has used yet.
        rows: of the components, by number.
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
            "open": self.open_pack,
            "settings": self.settings,
            "history": self.history,
            "aliases": self.aliases,
            "lost": {name: loss.to_dict() for name, loss in self.lost.items()},
            "foreign": {str(n): p for n, p in self.foreign.items() if n in self.rows},
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
            rows={row[_NUMBER]: row for row in data["components"]},
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
            for number in self.rows:
                self.foreign.setdefault(number, self.python)
            self.python = python

    def is_foreign(self, number: int) -> bool:
        """Return whether another version than the session's wrote a component."""
        return self.foreign.get(number, self.python) != self.python

    def component(self, number: int) -> Component:
        """Return the component of a number (raises KeyError: there is none)."""
        return Component(self.rows[number])

    def components(self) -> Iterator[Component]:
        """Yield all of them."""
        return map(Component, self.rows.values())

    def put(self, component: Component) -> None:
        """Add a component, or replace the one of its number."""
        self.rows[component.number] = component.row

    def drop_empty(self) -> None:
        """Drop components that no name and no definition is left of."""
        empty = [n for n, row in self.rows.items() if not row[_NAMES] and not row[_DEFINITIONS]]
        for number in empty:
            del self.rows[number]

    def stored_names(self) -> dict[str, int]:
        """Return the number of its component for each name."""
        return {name: row[_NUMBER] for row in self.rows.values() for name in row[_NAMES]}

    def changes_since(
        self, names: Mapping[str, int], rows: Mapping[int, list[Any]]
    ) -> dict[str, str]:
        """Return what became of names: added, changed or removed.

        Args:
            names: the numbers of their components before.
            rows: the components of then; one that is still there has not changed.
        """
        now = {name: row for row in self.rows.values() for name in row[_NAMES]}
        changes = {name: "removed" for name in names if name not in now}
        for name, row in now.items():
            if name not in names:
                changes[name] = "added"
            elif rows[names[name]] is not row:
                changes[name] = "changed"
        return changes

    def homes(self) -> dict[str, int]:
        """Return the number of its component for each definition."""
        return {uid: row[_NUMBER] for row in self.rows.values() for uid in row[_DEFINITIONS]}

    def live_bytes(self) -> Counter[int]:
        """Return how many pickled bytes of each object the session needs."""
        live: Counter[int] = Counter()
        for row in self.rows.values():
            object_id, _, size_bytes = row[_PICKLE]
            live[object_id] += size_bytes
        for ref in self.history:
            live[ref.object_id] += ref.size_bytes
        return live

    def size_bytes(self) -> int:
        """Return what the variables take together."""
        return sum(row[_SIZE] for row in self.rows.values())

    def objects(self) -> set[int]:
        """Return the ids of the objects that the session needs."""
        ids = {row[_PICKLE][0] for row in self.rows.values()}
        ids.update(ref.object_id for ref in self.history)
        for row in self.rows.values():
            if row[_BUFFERS]:
                ids.update(row[_BUFFERS])
        if self.settings is not None:
            ids.add(self.settings.object_id)
        return ids
