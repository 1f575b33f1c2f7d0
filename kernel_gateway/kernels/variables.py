"""The variables of a session as its newest commit describes them; values stay closed.

The description is JSON that a process with user code in it has written: nothing of it is believed
but that it belongs to this session.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernel_gateway.errors import NotFound, StorageError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, StoredObject, digest_of
from lambda_kernel.contract.scope import Scope

INDEX_VERSION = 2
INDEX_BYTES = 64 * 1024 * 1024
SHOWN_CHARACTERS = 400
MAX_NAME_CHARACTERS = 1000
HIDDEN_NAMES = frozenset({"_", "__", "___"})


class VariablesUnreadable(StorageError):
    """What the commit says of its variables is not there any more, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One name of a session.

    Attributes:
        name: an identifier, or ``Out[3]``.
        type: the name of its type.
        cell: execution count of the cell that stored or lost it.
        carried: whether the next cell has it.
        size_bytes: stored, together with what it shares memory with; 0 for a lost one.
        why: why it is lost.
        hint: what to do instead.
    """

    name: str
    type: str
    cell: int
    carried: bool
    size_bytes: int = 0
    why: str = ""
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the REST form."""
        model: dict[str, Any] = {"name": self.name, "type": self.type, "cell": self.cell}
        if self.carried:
            return model | {"bytes": self.size_bytes, "carried": True}
        return model | {"carried": False, "why": self.why, "hint": self.hint}


async def variables_of(
    commit: Commit, store: ObjectStore, bucket: str, scope: Scope
) -> list[Variable]:
    """Return the variables that ``commit`` holds or names as lost, by name.

    Raises:
        VariablesUnreadable: see there.
        StorageError: S3 does not answer.
    """
    index = commit.namespace.index
    if not index:
        return []
    found = next((each for each in commit.namespace.objects if each.id == index), None)
    if found is None or found.size_bytes > INDEX_BYTES:
        raise VariablesUnreadable("the description of the variables is missing or too large")
    return read_index(await _bytes_of(found, store, bucket, scope))


def read_index(stored: bytes) -> list[Variable]:
    """Return the variables in a session's description, by name (raises VariablesUnreadable)."""
    try:
        data = json.loads(stored)
        if data["v"] != INDEX_VERSION:
            raise VariablesUnreadable(f"the variables are stored in version {data['v']!r:.20}")
        found = {each.name: each for each in _carried(data["components"])}
        # What is both is stored, but could not be read.
        found |= {each.name: each for each in _lost(data["lost"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise VariablesUnreadable("the description of the variables is damaged") from problem
    return [found[name] for name in sorted(found)]


async def _bytes_of(found: StoredObject, store: ObjectStore, bucket: str, scope: Scope) -> bytes:
    parts = []
    for chunk in found.chunks:
        part = await _chunk(chunk, store, bucket, scope)
        if digest_of(part) != chunk.digest:
            raise VariablesUnreadable("the description of the variables is not what was committed")
        parts.append(part)
    return b"".join(parts)


async def _chunk(chunk: Blob, store: ObjectStore, bucket: str, scope: Scope) -> bytes:
    if chunk.inline is not None:
        return base64.b64decode(chunk.inline)
    key = keys.blob_key(scope, chunk.digest, chunk.day)
    try:
        return (await store.get(bucket, key)).body
    except NotFound as missing:
        raise VariablesUnreadable("the description of the variables is gone") from missing


def _carried(components: list[Any]) -> Iterator[Variable]:
    for _, names, _, _, _, _, _, size_bytes, cell in components:
        for name, type_name in names.items():
            if _is_shown(name):
                yield Variable(
                    name=name,
                    type=_short(type_name),
                    cell=int(cell),
                    carried=True,
                    size_bytes=int(size_bytes),
                )


def _lost(losses: dict[str, Any]) -> Iterator[Variable]:
    for name, loss in losses.items():
        if _is_shown(name):
            yield Variable(
                name=name,
                type=_short(loss["type"]),
                cell=int(loss["cell"]),
                carried=False,
                why=_short(loss["why"]),
                hint=_short(loss["hint"]),
            )


def _is_shown(name: str) -> bool:
    """Return whether a name is one of the user's: not ``_``, nor the display hook's own."""
    return len(name) <= MAX_NAME_CHARACTERS and name not in HIDDEN_NAMES and name[:1] != "<"


def _short(text: object) -> str:
    return str(text)[:SHOWN_CHARACTERS]
