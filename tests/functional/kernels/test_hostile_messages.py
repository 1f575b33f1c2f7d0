"""Messages whose fields are wrong, missing, huge or hostile; and what a hostile child stored."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.kernels.inputs import MAX_PARTS
from kernel_gateway.kernels.variables import INDEX_VERSION
from kernel_gateway.messaging.message import MAX_HEADER_CHARACTERS
from kernel_gateway.messaging.requests import FIELDS
from lambda_kernel.contract.commit import Blob, Namespace, StoredObject, digest_of
from tests.functional.kernels import conftest

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World

DEEP: Any = []
for _ in range(60):
    DEEP = [DEEP]
HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 10**4000, 1e308, -0.0),
    *("", "\x00", "\ud800", "x" * 100_000, "*" * 5000, "../../x", "__class__"),
    *([], {}, DEEP, {"": {"": DEEP}}, ["x"] * 10_000, {"state": []}, {"method": {}}),
]
OTHER_TYPES = ("input_reply", "status", "unknown_request", "_request", "debug_request", "\ud800")


def contents(msg_type: str) -> list[dict[str, Any]]:
    """Return contents in which one field after the other is hostile, and one where it misses."""
    whole = {"code": "print x", "comm_id": "c", "target_name": "t", "data": {}, "value": "v"}
    names = [*FIELDS.get(msg_type, whole), "unknown field"]
    found = [{**whole, name: value} for name in names for value in HOSTILE]
    found += [{n: v for n, v in whole.items() if n != name} for name in names]
    if msg_type == "shutdown_request":
        return [each for each in found if each.get("restart", False) not in (False, None)]
    return found


@pytest.mark.parametrize("msg_type", [*FIELDS, *OTHER_TYPES])
async def test_a_kernel_survives_any_content_and_answers_each_request_once(
    world: World, msg_type: str
) -> None:
    client = await world.client()
    asked = {}
    for number, content in enumerate(contents(msg_type)):
        asked[f"m{number}"] = content
        header = {"msg_id": f"m{number}", "msg_type": msg_type, "session": "s"}
        client.kernel.receive_raw({"header": header, "content": content}, client.take)
        if number % 50 == 0:
            await world.quiet()
    await world.quiet()

    counts = Counter(
        (m.parent_header.get("msg_id"), m.content.get("execution_state", "reply"))
        for m in client.messages
        if m.msg_type == "status" or m.msg_type.endswith("_reply")
    )
    if msg_type.endswith("_request"):
        assert {(i, kind): counts[i, kind] for i in asked for kind in ("reply", "idle")} == {
            (i, kind): 1 for i in asked for kind in ("reply", "idle")
        }
    ok = await client.run("print ok")
    assert [m.content["text"] for m in ok if m.msg_type == "stream"] == ["ok\n"]


async def test_a_header_goes_out_with_every_message_and_is_bounded(world: World) -> None:
    client = await world.client()
    header = {"msg_id": "m", "msg_type": "execute_request", "more": "x" * MAX_HEADER_CHARACTERS}

    client.kernel.receive_raw({"header": header, "content": {"code": "print x"}}, client.take)

    assert "header is longer than" in client.messages[-1].content["evalue"]
    assert world.function.ran == []


async def history_of(
    world: World, monkeypatch: pytest.MonkeyPatch, parts: list[Any], copies: int = 1
) -> list[Any]:
    """Return the history after a hostile child has stored ``parts`` as the session's inputs."""
    body = b"".join(json.dumps(part).encode() for part in parts)
    refs, at = [], 0
    for part in parts:
        size = len(json.dumps(part).encode())
        refs += [[2, at, size]] * copies
        at += size
    index = {"v": INDEX_VERSION, "components": [], "lost": {}, "history": refs}
    objects = []
    for number, stored in ((1, json.dumps(index).encode()), (2, body)):
        inline = base64.b64encode(stored).decode()
        blob = Blob(digest=digest_of(stored), size_bytes=len(stored), inline=inline)
        objects.append(StoredObject(id=number, size_bytes=len(stored), chunks=(blob,)))
    namespace = Namespace(objects=tuple(objects), index=1)
    monkeypatch.setattr(conftest, "holding", lambda names: namespace)
    client = await world.client()
    await client.run("print x")
    later: Client = world.attached((await world.reopen()).get(client.kernel.kernel_id))
    reply = await later.ask("history_request", hist_access_type="tail", n=9)
    assert reply["status"] == "ok"
    found: list[Any] = reply["history"]
    return found


async def test_numbers_in_a_stored_history_make_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [{"first": i * 10**12, "raw": ["far"]} for i in range(MAX_PARTS)]

    found = await history_of(world, monkeypatch, parts)

    assert found[-1] == (1, (MAX_PARTS - 1) * 10**12, "far")


async def test_parts_of_a_stored_history_replace_what_came_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [{"first": 1, "raw": ["a", "b", "c"]}, {"first": 2, "raw": ["d"]}]

    assert await history_of(world, monkeypatch, parts) == [(1, 1, "a"), (1, 2, "d")]


async def test_a_stored_history_that_names_one_large_part_often_is_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [{"first": 1, "raw": ["x" * 1024 * 1024]}]

    assert await history_of(world, monkeypatch, parts, copies=MAX_PARTS) == []
