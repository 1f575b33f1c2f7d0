"""What a session's description says of its variables; nothing of it is trusted."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kernel_gateway.kernels.variables import (
    VariablesUnreadable,
    read_index,
    settled_parts,
    variables_of,
)
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.child.losses import Loss
from lambda_kernel.child.state.index import Component, Index, Ref
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, Namespace, StoredObject, digest_of
from lambda_kernel.contract.scope import Scope

SCOPE = Scope(user="u1")


def index(names: dict[str, str], lost: dict[str, Loss] | None = None) -> Index:
    component = Component.make(
        number=1,
        names=names,
        definitions=[],
        uses=[],
        pickle=Ref(2, 0, 10),
        buffers=[3],
        size_bytes=110,
        cell=4,
    )
    return Index(python="3.11", rows={1: component.row}, lost=lost or {})


def commit(chunk: Blob) -> Commit:
    stored = StoredObject(id=7, size_bytes=chunk.size_bytes, chunks=(chunk,))
    return Commit(
        kernel_id="12345678-1234-1234-1234-123456789012",
        scope_hash=SCOPE.hash,
        seq=1,
        parent=None,
        void=True,
        request_id="0" * 32,
        execution_count=1,
        namespace=Namespace(objects=(stored,), index=7),
    )


def test_variables_come_by_name_with_the_lost_ones_among_them() -> None:
    lost = Loss(type="generator", cell=3, why="it runs", hint="g = list(g)")
    found = read_index(index({"z": "list", "a": "int", "Out[3]": "str"}, {"g": lost}).to_bytes())

    assert [each.to_dict() for each in found] == [
        {"name": "Out[3]", "type": "str", "cell": 4, "bytes": 110, "carried": True},
        {"name": "a", "type": "int", "cell": 4, "bytes": 110, "carried": True},
        {
            "name": "g",
            "type": "generator",
            "cell": 3,
            "carried": False,
            "why": "it runs",
            "hint": "g = list(g)",
        },
        {"name": "z", "type": "list", "cell": 4, "bytes": 110, "carried": True},
    ]


def test_what_has_settled_is_listed_with_the_rest() -> None:
    plain: list[list[Any]] = [
        [n, {f"v{n}": "int"}, None, [], [], [2, n, 10], [], 10, 4] for n in range(1, 1000)
    ]
    whole = Index(python="3.11", rows={row[0]: row for row in plain})
    parts: dict[int, bytes] = {}

    def write(stored: bytes) -> int:
        parts[9] = stored
        return 9

    whole.settle(write)
    whole.component(5).rename("v5", "w")

    found = {each.name: each for each in read_index(settled(whole), parts)}
    assert settled_parts(settled(whole)) == [9]
    assert found.keys() == {f"v{n}" for n in range(1, 1000) if n != 5} | {"w"}
    assert found["v6"].to_dict() == {
        "name": "v6", "type": "int", "cell": 4, "bytes": 10, "carried": True
    }  # fmt: skip


def settled(whole: Index) -> bytes:
    whole.settle(lambda _: 0)
    return whole.to_bytes()


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        (b"[]", []),
        (b"{}", []),
        (b'{"names":"a","numbers":[[1,9000000000]],"types":[],"rest":"[]"}', []),
        (b'{"names":"a","numbers":[[1,1]],"types":[],"rest":"[[0],[2],[0],[9],[1]]"}', []),
        (b'{"names":"a","numbers":[[1,1]],"types":["int"],"rest":"[[0],[2],[0],[9]]"}', []),
        (b'{"names":"a","numbers":[[1,1]],"types":["int"],"rest":"5"}', []),
        (b'{"names":"a","numbers":[[1,1]],"types":["int"],"rest":"[]"}', [[]]),
    ],
)
def test_a_settled_part_that_makes_no_sense_is_refused(part: bytes, gone: Any) -> None:
    data = {"v": 2, "components": [], "lost": {}, "settled": [[9, gone]]}
    with pytest.raises(VariablesUnreadable):
        read_index(json.dumps(data).encode(), {9: part})


@pytest.mark.parametrize("count", [1, 100])
def test_a_settled_part_that_is_not_there_is_refused(count: int) -> None:
    parts = [[number, []] for number in range(count)]
    data = {"v": 2, "components": [], "lost": {}, "settled": parts}
    with pytest.raises(VariablesUnreadable):
        read_index(json.dumps(data).encode())


def test_a_description_in_very_many_parts_is_refused() -> None:
    data = {"v": 2, "components": [], "lost": {}, "settled": [[n, []] for n in range(100)]}
    with pytest.raises(VariablesUnreadable, match="too large"):
        settled_parts(json.dumps(data).encode())


def test_the_display_hooks_own_names_are_no_variables() -> None:
    assert read_index(index({"_": "int", "<_>": "int", "__": "int"}).to_bytes()) == []


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"v": 3, "components": [], "lost": {}},
        {"v": 2, "components": 1, "lost": {}},
        {"v": 2, "components": [5], "lost": {}},
        {"v": 2, "components": [[1, 5, 0, 0, 0, 0, 0, 0, 0]], "lost": {}},
        {"v": 2, "components": [[1, {"a": "int"}, 0, 0, 0, 0, 0, "many", 0]], "lost": {}},
        {"v": 2, "components": [], "lost": {"g": {"type": "int"}}},
        {"v": 2, "components": [], "lost": {"g": 1}},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(data: Any) -> None:
    with pytest.raises(VariablesUnreadable):
        read_index(json.dumps(data).encode())


def test_long_texts_are_cut() -> None:
    (found,) = read_index(index({"a": "t" * 10_000, "n" * 10_000: "int"}).to_bytes())
    assert len(found.type) == 400


async def test_the_description_is_read_from_the_commit_or_from_a_blob() -> None:
    body, store = index({"a": "int"}).to_bytes(), MemoryObjectStore()
    digest = digest_of(body)
    text = base64.b64encode(body).decode()
    inline = Blob(digest=digest, size_bytes=len(body), inline=text)
    outside = Blob(digest=digest, size_bytes=len(body), day=3)
    await store.put("state", keys.blob_key(SCOPE, digest, 3), body)

    for chunk in (inline, outside):
        found = await variables_of(commit(chunk), store, "state", SCOPE)
        assert [each.name for each in found] == ["a"]


async def test_a_description_that_is_gone_or_another_is_refused() -> None:
    body, store = index({"a": "int"}).to_bytes(), MemoryObjectStore()
    blob = Blob(digest=digest_of(body), size_bytes=len(body), day=3)
    with pytest.raises(VariablesUnreadable, match="gone"):
        await variables_of(commit(blob), store, "state", SCOPE)

    await store.put("state", keys.blob_key(SCOPE, blob.digest, 3), body[:-1])
    with pytest.raises(VariablesUnreadable, match="not what was committed"):
        await variables_of(commit(blob), store, "state", SCOPE)
