"""What a snapshot says of itself: which stored bytes make which variables.

It is JSON, so that the gateway can list variables without opening a pickle.
"""

from __future__ import annotations

import json
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


@dataclass(slots=True, kw_only=True)
class Component:
    """Variables and definitions that are stored as one pickle.

    Attributes:
        names: the variables that the session still has, with their type names.
        order: the names in the order of the pickle, those of other values now included.
        definitions: identities of the definitions in it, in the order of the pickle.
        uses: identities of the definitions of other components that it refers to.
        pickle: where its bytes are.
        buffers: ids of the objects that hold its large buffers.
        size_bytes: of pickle and buffers together.
        cell: the execution count of the cell that stored it.
    """

    names: dict[str, str]
    order: list[str]
    definitions: list[str]
    uses: list[str]
    pickle: Ref
    buffers: list[int]
    size_bytes: int
    cell: int

    def move_to(self, ref: Ref) -> None:
        """Note where the pickle is now."""
        self.pickle = ref

    def to_list(self) -> list[Any]:
        """Return the JSON form."""
        return [
            self.names,
            self.order if self.order != list(self.names) else 0,
            self.definitions,
            self.uses,
            self.pickle,
            self.buffers,
            self.size_bytes,
            self.cell,
        ]

    @classmethod
    def from_list(cls, data: list[Any]) -> Component:
        """Return what ``to_list`` described."""
        names, order, definitions, uses, pickle, buffers, size_bytes, cell = data
        return cls(
            names=names,
            order=order or list(names),
            definitions=definitions,
            uses=uses,
            pickle=Ref(*pickle),
            buffers=buffers,
            size_bytes=size_bytes,
            cell=cell,
        )


@dataclass(slots=True, kw_only=True)
class Index:
    """Everything that is stored of a session.

    Attributes:
        python: ``major.minor`` of the interpreter that wrote it.
        cell: the execution count it was written after.
        next_object, next_component: numbers that nobody has used yet.
        components: by number.
        open_pack: the object that the next small pickles join; 0 = none.
        settings: where the side state is.
        history: where the inputs of earlier cells are, oldest first.
        aliases: names of the namespace itself (None), of ``In`` and of ``Out``.
        lost: names that could not be carried, and why.
    """

    python: str
    cell: int = 0
    next_object: int = 1
    next_component: int = 1
    components: dict[int, Component] = field(default_factory=dict)
    open_pack: int = 0
    settings: Ref | None = None
    history: list[Ref] = field(default_factory=list)
    aliases: dict[str, str | None] = field(default_factory=dict)
    lost: dict[str, Loss] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        data = {
            "v": VERSION,
            "python": self.python,
            "cell": self.cell,
            "next": [self.next_object, self.next_component],
            "components": {k: c.to_list() for k, c in self.components.items()},
            "open": self.open_pack,
            "settings": self.settings,
            "history": self.history,
            "aliases": self.aliases,
            "lost": {name: loss.to_dict() for name, loss in self.lost.items()},
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
                f"the variables were stored in version {version!r} of the format, "
                f"this kernel reads version {VERSION}"
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
            components={int(k): Component.from_list(c) for k, c in data["components"].items()},
            open_pack=data["open"],
            settings=None if settings is None else Ref(*settings),
            history=[Ref(*ref) for ref in data["history"]],
            aliases=data["aliases"],
            lost={name: Loss(**loss) for name, loss in data["lost"].items()},
        )

    def refs(self) -> list[Ref]:
        """Return every reference to pickled bytes."""
        refs = [c.pickle for c in self.components.values()] + self.history
        return refs if self.settings is None else [self.settings, *refs]

    def objects(self) -> set[int]:
        """Return the ids of the objects that the session needs."""
        ids = {ref.object_id for ref in self.refs()}
        for component in self.components.values():
            ids.update(component.buffers)
        return ids
