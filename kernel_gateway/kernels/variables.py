"""The variables of a session as its newest commit describes them; values stay closed.

The description is JSON that a process with user code in it has written: nothing of it is believed
but that it belongs to this session.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kernel_gateway.errors import NotFound, StorageError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, StoredObject, digest_of
from lambda_kernel.contract.scope import Scope

INDEX_VERSION = 2
INDEX_BYTES = 64 * 1024 * 1024
MAX_PARTS = 16
NO_PARTS: Mapping[int, bytes] = MappingProxyType({})
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
    found = await description_of(commit, store, bucket, scope)
    return [] if found is None else await asyncio.to_thread(read_index, *found)


async def description_of(
    commit: Commit, store: ObjectStore, bucket: str, *scopes: Scope
) -> tuple[bytes, dict[int, bytes]] | None:
    """Return the session's description and its parts; None where it has none.

    Raises:
        VariablesUnreadable: see there.
        StorageError: S3 does not answer.
    """
    index = commit.namespace.index
    if not index:
        return None
    objects = {each.id: each for each in commit.namespace.objects}
    stored = await bytes_of(described(objects, [index])[0], store, bucket, *scopes)
    found = described(objects, settled_parts(stored))
    return stored, {each.id: await bytes_of(each, store, bucket, *scopes) for each in found}


def settled_parts(stored: bytes) -> list[int]:
    """Return the objects that hold the rest of a description (raises VariablesUnreadable)."""
    parts: list[int] = []
    with damage_told():
        parts += [int(number) for number, _ in parsed(stored).get("settled", ())]
    if len(parts) > MAX_PARTS:
        raise VariablesUnreadable("the description of the variables is missing or too large")
    return parts


def read_index(stored: bytes, parts: Mapping[int, bytes] = NO_PARTS) -> list[Variable]:
    """Return the variables in a session's description, by name (raises VariablesUnreadable).

    Args:
        stored: the description.
        parts: the objects of ``settled_parts``.
    """
    found: dict[str, Variable] = {}
    with damage_told():
        data = parsed(stored)
        for number, gone in data.get("settled", ()):
            found |= {each.name: each for each in _settled(json.loads(parts[number]), gone)}
        found |= {each.name: each for each in _carried(data["components"])}
        # What is both is stored, but could not be read.
        found |= {each.name: each for each in _lost(data["lost"])}
    return [found[name] for name in sorted(found)]


def side_names(stored: bytes, parts: Mapping[int, bytes] = NO_PARTS) -> list[str]:
    """Return the names of what is stored beside variables (raises VariablesUnreadable)."""
    found: list[str] = []
    with damage_told():
        data = parsed(stored)
        for number, gone in data.get("settled", ()):
            if b"(" in parts[number]:
                settled = _settled(json.loads(parts[number]), gone, is_side_name)
                found += [each.name for each in settled]
        found += [each.name for each in _carried(data["components"], is_side_name)]
    return found


def is_side_name(name: str) -> bool:
    """Return whether a name is one of the side state's objects."""
    return name[:1] == "(" and len(name) <= MAX_NAME_CHARACTERS


def parsed(stored: bytes) -> dict[str, Any]:
    """Return the description of a session (raises VariablesUnreadable, or what is in damage)."""
    data: dict[str, Any] = json.loads(stored)
    if data["v"] != INDEX_VERSION:
        raise VariablesUnreadable(f"the variables are stored in version {data['v']!r:.20}")
    return data


@contextmanager
def damage_told() -> Iterator[None]:
    """Raise VariablesUnreadable for whatever a damaged description makes its readers raise."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        raise VariablesUnreadable("the description of the variables is damaged") from problem


def described(objects: Mapping[int, StoredObject], numbers: list[int]) -> list[StoredObject]:
    """Return objects by number (raises VariablesUnreadable: one is missing or too large)."""
    found = [objects[number] for number in numbers if number in objects]
    if len(found) < len(numbers) or sum(each.size_bytes for each in found) > INDEX_BYTES:
        raise VariablesUnreadable("the description of the variables is missing or too large")
    return found


async def bytes_of(found: StoredObject, store: ObjectStore, bucket: str, *scopes: Scope) -> bytes:
    """Return what an object holds (raises VariablesUnreadable, StorageError).

    Args:
        found: which object.
        store: S3.
        bucket: the state bucket.
        scopes: whose chunks it is made of; the first that has one is asked for it.
    """
    parts = []
    for chunk in found.chunks:
        part = await _chunk(chunk, store, bucket, scopes)
        if digest_of(part) != chunk.digest:
            raise VariablesUnreadable("the description of the variables is not what was committed")
        parts.append(part)
    return b"".join(parts)


async def _chunk(chunk: Blob, store: ObjectStore, bucket: str, scopes: Sequence[Scope]) -> bytes:
    if chunk.inline is not None:
        return base64.b64decode(chunk.inline)
    for scope in scopes:
        with suppress(NotFound):
            return (await store.get(bucket, keys.blob_key(scope, chunk.digest, chunk.day))).body
    raise VariablesUnreadable("the description of the variables is gone")


def _carried(
    components: list[Any], is_wanted: Callable[[str], bool] | None = None
) -> Iterator[Variable]:
    is_wanted = is_wanted or _is_shown
    for _, names, _, _, _, _, _, size_bytes, cell in components:
        for name, type_name in names.items():
            if is_wanted(name):
                yield Variable(
                    name=name,
                    type=_short(type_name),
                    cell=int(cell),
                    carried=True,
                    size_bytes=int(size_bytes),
                )


def _settled(
    part: dict[str, Any], gone: list[int], is_wanted: Callable[[str], bool] | None = None
) -> Iterator[Variable]:
    names, rows = part["names"].split(" "), zip(*json.loads(part["rest"]), strict=True)
    if sum(count for _, count in part["numbers"]) != len(names):
        # Also before room is made for what the numbers only claim.
        raise ValueError(len(names))
    numbers = (start + i for start, count in part["numbers"] for i in range(count))
    left_out = set(gone)
    for name, number, (kind, _, _, size, cell) in zip(names, numbers, rows, strict=True):
        if number not in left_out:
            yield from _carried(
                [[0, {name: part["types"][kind]}, 0, 0, 0, 0, 0, size, cell]], is_wanted
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
    """Return whether a name is one of the user's: not ``_``, nor IPython's own."""
    return len(name) <= MAX_NAME_CHARACTERS and name not in HIDDEN_NAMES and name[:1] not in "<("


def _short(text: object) -> str:
    return str(text)[:SHOWN_CHARACTERS]
