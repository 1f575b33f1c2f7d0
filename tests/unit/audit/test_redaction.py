"""What configured patterns match does not get into a journal, whatever way it comes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import (
    CellFinished,
    CellStarted,
    Outputs,
    RecordedMessage,
    SessionClosed,
)
from kernel_gateway.audit.facts import (
    Credentials,
    HandlerFacts,
    Inputs,
    Owner,
    RunsIn,
    Session,
    StartFacts,
    Workspace,
)
from kernel_gateway.audit.file_lists import FileLists
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.keeping import Keeping, open_keeping
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.options import AuditOptions
from kernel_gateway.audit.redaction import TOO_LONG, Redactor
from kernel_gateway.audit.references import BlobShelf
from kernel_gateway.audit.stored_outputs import prepared, said_in
from kernel_gateway.audit.trail import statements
from kernel_gateway.audit.trail_index import TrailIndex
from kernel_gateway.audit.trail_query import TrailQuery
from kernel_gateway.audit.verifying import OK, verify
from kernel_gateway.errors import ConfigError
from kernel_gateway.messaging.caller import Actor, Caller
from kernel_gateway.messaging.idempotency import Idempotency
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.outcome import FileChange, LostName
from lambda_kernel.contract.schema import encode
from lambda_kernel.contract.witness import file_list_bytes
from tests.unit.audit.trails import KERNEL_ID, OTHER_ID, message, ran, stream, trail_text

SECRET = "sk-0123456789abcdef"
PATTERNS = {"api-key": r"sk-[0-9a-z]{16}", "password": r"password=\S+"}
KEY = b"k" * 32
UUID = "0f3c9a52-6d1e-4c55-9a0e-2b7d1f6c8e11"


def redactor(**patterns: str) -> Redactor:
    return Redactor.of(patterns or PATTERNS, KEY)


def a_start(code: str = "1", by: str | None = None, **changes: Any) -> CellStarted:
    started = ran(1, code)[0]
    assert isinstance(started, CellStarted)
    facts = StartFacts(
        session=Session(
            owner=Owner(user="u"), spec_name="s", workspace="w", scope="agent", created=""
        ),
        caller=Caller(user="u", client="rest", user_agent=by),
        source_digest=hashlib.sha256(code.encode()).hexdigest(),
        environment=RunsIn(
            id="e", function="f", handler_digest="", python="3", memory_mb=1, tier="process"
        ),
        credentials=Credentials(
            role_arn="", role_session_name="", policy_digest="", duration_s=900
        ),
    )
    return replace(started, gateway=facts, **changes)


def an_end(*said: RecordedMessage, **changes: Any) -> CellFinished:
    finished = ran(1, "1", *said)[1]
    assert isinstance(finished, CellFinished)
    return replace(finished, **changes)


def said(event: object) -> str:
    return json.dumps(encode(event))


PLACES: dict[str, Any] = {
    "source": a_start(f"k = '{SECRET}'"),
    "user_expressions": a_start(content={"code": "1", "user_expressions": {"a": SECRET}}),
    "a name in a request": a_start(content={"code": "1", "more": {SECRET: {SECRET: 1}}}),
    "metadata of a request": a_start(metadata={"cellId": SECRET, "tags": [SECRET]}),
    "header of a request": a_start(
        header={"msg_id": f"m-{SECRET}", "msg_type": "execute_request", "session": SECRET,
                "username": SECRET}),
    "comm message": a_start(content={"comm_id": UUID, "data": {"state": {"value": SECRET}}}),
    "stream": an_end(stream(f"it is {SECRET}\n")),
    "stream in pieces": an_end(*map(stream, ["it is sk-01", "23456789", "abcdef\n"])),
    "stream in pieces with others between": an_end(
        stream("it is sk-01"), message("display_data", data={}, metadata={}),
        message("stream", name="stderr", text="!"), stream("23456789abcdef\n")),
    "display": an_end(message("display_data", data={"text/html": f"<b>{SECRET}</b>"})),
    "display in lines": an_end(
        message("display_data", data={"text/html": ["<b>sk-0123456", "789abcdef</b>"]})),
    "display of JSON": an_end(message("display_data", data={"application/json": [{"a": SECRET}]})),
    "display metadata": an_end(message("display_data", data={}, metadata={"alt": SECRET})),
    "message metadata": an_end(replace(stream("x"), metadata={"note": SECRET})),
    "error": an_end(
        message("error", ename=SECRET, evalue=f"no {SECRET}", traceback=["1", f"2 {SECRET}"])),
    "reply": an_end(reply=message("execute_reply", status="error", evalue=SECRET)),
    "user_expressions of a reply": an_end(
        reply=message("execute_reply", user_expressions={"a": {"data": {"text/plain": SECRET}}})),
    "widget": an_end(message("comm_open", comm_id=UUID, data={"state": {"value": SECRET}})),
    "update of a display": an_end(
        message("update_display_data", data={}, transient={"display_id": SECRET})),
    "name of a file": an_end(
        handler=HandlerFacts(status="ok", files=(
            FileChange(path=f"{SECRET}.txt", change="created", key=f"users/u/w/{SECRET}.txt"),))),
    "name of a file of the workspace": an_end(
        handler=HandlerFacts(status="ok", workspace=Workspace(count=1, files=(
            CommittedFile(key=SECRET, version_id=None, digest="", size_bytes=1),)))),
    "name of a file that a cell found": an_end(
        handler=HandlerFacts(status="ok", inputs=Inputs(count=1, digest="", files=(
            CommittedFile(key=SECRET, version_id=None, digest="", size_bytes=1),)))),
    "name of a client's program": a_start(by=SECRET),
    "what was lost": an_end(
        handler=HandlerFacts(status="ok", message=SECRET,
                             lost=(LostName(name="a", type="T", why=SECRET),))),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_match_is_replaced_by_its_name(place: str) -> None:
    written = said(redactor().event(PLACES[place]))

    assert "[redacted:api-key]" in written
    for part in (SECRET, "789abcdef", "23456789"):
        assert part not in written


def test_the_text_around_a_match_in_pieces_stays_in_its_messages() -> None:
    found = redactor().event(an_end(*map(stream, ["a password=", "x", "yz b", "c"])))

    assert isinstance(found, CellFinished)
    texts = [each.content["text"] for each in found.outputs.messages]
    assert texts == ["a [redacted:password]", "", " b", "c"]


def test_a_match_in_a_binary_part_removes_that_part() -> None:
    parts = tuple(base64.b64encode(b"\xff" + x).decode() for x in (SECRET.encode(), b"other"))

    found = redactor().event(an_end(replace(stream("x"), buffers=parts)))

    assert isinstance(found, CellFinished)
    assert [base64.b64decode(part) for part in found.outputs.messages[0].buffers] == [
        b"[redacted:api-key]",
        b"\xffother",
    ]


def test_generated_ids_and_digests_stay_whatever_matches_them() -> None:
    digest = "a" * 64
    change = FileChange(path="f", change="created", key="k", version_id=digest, digest=digest)
    find = redactor(hex=r"[0-9a-f-]{32,}", forty="[0-9a-f]{40}")

    started = find.event(
        a_start(
            header={"msg_id": f"{UUID}_7_1", "msg_type": "execute_request", "session": UUID},
            metadata={"cellId": UUID},
        )
    )
    finished = find.event(an_end(handler=HandlerFacts(status="ok", files=(change,))))

    assert isinstance(started, CellStarted)
    assert (started.msg_id, started.session, started.cell_id) == (f"{UUID}_7_1", UUID, UUID)
    assert isinstance(finished, CellFinished)
    assert finished.handler is not None
    assert finished.handler.files == (change,)


def test_the_digest_of_a_redacted_source_does_not_let_the_secret_be_guessed() -> None:
    code = "login(pin='password=1234')"

    found = redactor().event(a_start(code))

    assert isinstance(found, CellStarted)
    assert found.gateway is not None
    assert found.source == "login(pin='[redacted:password]"
    assert found.gateway.source_digest == hashlib.sha256(found.source.encode()).hexdigest()
    assert found.gateway.received_mac == hmac.digest(KEY, code.encode(), "sha256").hex()
    assert hashlib.sha256(code.encode()).hexdigest() not in said(found)


def test_the_fingerprint_of_a_retried_request_does_not_let_the_secret_be_guessed() -> None:
    for code, is_kept in ((f"k = '{SECRET}'", False), ("k = 1", True)):
        started = a_start(code)
        assert started.gateway is not None
        key = Idempotency.of("key-1", {"code": code})
        started = replace(started, gateway=replace(started.gateway, idempotency=key))

        found = redactor().event(started)

        assert isinstance(found, CellStarted)
        assert found.gateway is not None
        expected = key.fingerprint if is_kept else ""
        assert found.gateway.idempotency == Idempotency(key="key-1", fingerprint=expected)


def test_a_source_without_a_match_keeps_its_digest() -> None:
    started = a_start("1 + 1")

    assert redactor().event(started) == started


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(0, 200))
def test_no_match_is_left_wherever_a_stream_is_cut(texts: list[str], at: int) -> None:
    whole = "".join(texts)
    at = min(at, len(whole))
    whole = whole[:at] + SECRET + whole[at:]
    cuts = sorted({0, len(whole), *(len(text) for text in texts if len(text) <= len(whole))})
    pieces = [whole[a:b] for a, b in itertools.pairwise(cuts)]

    found = redactor().event(an_end(*map(stream, pieces)))

    assert isinstance(found, CellFinished)
    assert len(found.outputs.messages) == len(pieces)
    joined = "".join(each.content["text"] for each in found.outputs.messages)
    assert SECRET not in joined
    assert joined.replace("[redacted:api-key]", SECRET) == whole


def test_lone_surrogates_are_no_obstacle() -> None:
    found = redactor().event(an_end(stream(f"\ud800{SECRET}\udfff")))

    assert isinstance(found, CellFinished)
    assert found.outputs.messages[0].content["text"] == "\ud800[redacted:api-key]\udfff"


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+b", r"(.*a){20}b", r"(x+x+)+y"])
def test_no_output_makes_a_search_explode(pattern: str) -> None:
    """Python's own `re` would take years for each."""
    text = "ax" * 20_000 + "a" * 20_000 + "!"

    found = Redactor.of({"p": pattern}, KEY).event(an_end(stream(text)))

    assert isinstance(found, CellFinished)
    assert found.outputs.messages[0].content["text"] != TOO_LONG


def test_what_could_not_be_searched_in_time_is_not_written() -> None:
    moments = itertools.count(0.0, 100.0)
    slow = Redactor.of(PATTERNS, KEY, clock=lambda: next(moments))

    found = slow.event(an_end(stream(f"{SECRET} and more"), stream("rest")))

    assert isinstance(found, CellFinished)
    assert [each.content["text"] for each in found.outputs.messages] == [TOO_LONG, ""]


def test_deep_json_is_not_written_unseen() -> None:
    deep: Any = SECRET
    for _ in range(300):
        deep = [deep]

    assert SECRET not in said(redactor().event(an_end(message("display_data", data={"a": deep}))))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"redact": {"a": "(x"}}, "audit.redact 'a': '(x' is no regular expression"),
        ({"redact": ["fine", "(?=x)"]}, "audit.redact '2'"),
        ({"redact": {"a": r"(a)\1"}}, "backreferences"),
        ({"redact": {"a": "x*"}}, "matches the empty text"),
        ({"redact": {"a b": "x"}}, "a name is"),
        ({"redact": {"a": 1}}, "audit.redact"),
        ({"redact": "x"}, "audit.redact"),
        ({"required": "yes"}, "audit.required"),
        ({"retention_days": 0}, "audit.retention_days"),
        ({"object_lock": "FOREVER"}, "audit.object_lock 'FOREVER': must be like"),
        ({"needed": False}, "audit.needed"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(table: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AuditOptions.read(table)

    assert text in str(refused.value)


async def test_a_redacted_session_verifies_and_nothing_stored_holds_the_secret(
    tmp_path: Path,
) -> None:
    store = MemoryObjectStore()
    keeping = open_keeping(tmp_path, AuditOptions(redact=PATTERNS))
    journal = Journal(
        store, "records", KERNEL_ID, is_new=True, sealer=KeyFolder(tmp_path), keeping=keeping
    )
    for event in [
        *ran(1, f"k = '{SECRET}'", stream(f"{SECRET}\n")),
        *ran(2, "k", stream("x" * 300_000 + SECRET)),
    ]:
        await journal.append(event, epoch=0, time="2026-01-01T00:00:00.000000Z")

    text = await trail_text(journal)

    assert verify(read_trail(text.encode()), KeyFolder(tmp_path).keys()).exit_code == OK
    assert "[redacted:api-key]" in text
    stored = [base64.b64decode(json.loads(body)["payload"]) if b"payloadType" in body else body
              for body in store.objects.values()]  # fmt: skip
    assert len(stored) == 5
    assert not any(SECRET.encode() in body for body in stored)
    assert (tmp_path / "keys" / "redaction.key").stat().st_mode & 0o777 == 0o600


def test_without_patterns_nothing_is_searched() -> None:
    event = an_end(stream(SECRET), outputs=Outputs())

    assert Keeping().redactor.event(event) is event


NAMES = [f"users/u/w/{number}" for number in range(300)]


def listed(*more: str) -> bytes:
    return file_list_bytes((name, "v1", "d" * 64, 1) for name in [*NAMES, *more])


async def test_a_list_of_many_files_is_stored_without_what_patterns_match() -> None:
    store = MemoryObjectStore()
    shelf = BlobShelf(store, "records")
    lists = FileLists(shelf, redactor())
    body = listed(f"users/u/w/\u00e4 {SECRET}")
    digest = hashlib.sha256(body).hexdigest()

    assert lists.keep(KERNEL_ID, digest, None) is None
    written = lists.keep(KERNEL_ID, digest, body)
    await shelf.flush()

    assert written == lists.keep(KERNEL_ID, digest, None) != digest
    assert lists.keep(OTHER_ID, digest, None) is None
    (stored,) = store.objects.values()
    names = [row[0] for row in json.loads(stored)["files"]]
    assert sorted(names) == sorted([*NAMES, "users/u/w/\u00e4 [redacted:api-key]"])
    assert hashlib.sha256(stored).hexdigest() == written


async def test_a_list_without_a_match_is_stored_as_it_is() -> None:
    for redacts in (redactor(), Redactor()):
        store = MemoryObjectStore()
        shelf = BlobShelf(store, "records")
        digest = hashlib.sha256(listed()).hexdigest()
        assert FileLists(shelf, redacts).keep(KERNEL_ID, digest, listed()) == digest
        await shelf.flush()
        assert list(store.objects.values()) == [listed()]


async def test_neither_the_index_nor_statements_hold_what_patterns_match(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    keeping = open_keeping(tmp_path, AuditOptions(redact=PATTERNS))
    journal = Journal(store, "records", KERNEL_ID, is_new=True, keeping=keeping)
    file = CommittedFile(key=f"users/u/w/{SECRET}", version_id="v", digest="d" * 64, size_bytes=1)
    handler = HandlerFacts(
        status="ok",
        files=(FileChange(path=SECRET, change="created", key=file.key, digest="d" * 64),),
        inputs=Inputs(count=1, digest="e" * 64, files=(file,)),
        workspace=Workspace(count=1, files=(file,)),
    )
    for event in (a_start(f"k = '{SECRET}'", by=SECRET), an_end(stream(SECRET), handler=handler)):
        await journal.append(event, epoch=0, time="2026-01-01T00:00:00.000000Z")

    answer = await TrailIndex(store, "records").search(
        TrailQuery.of_text({"path": "[redacted:api-key]"}), lambda start: True
    )
    made = [line async for line in statements(journal, "workspaces")]

    (cell,) = answer.cells
    assert cell.matched == ("created [redacted:api-key]",)
    assert any(key.startswith("trail-index/") for _, key in store.objects)
    held = [base64.b64decode(json.loads(body)["payload"]) if b"payloadType" in body else body
            for body in store.objects.values()]  # fmt: skip
    assert len(made) == 1
    assert not [body for body in [*held, *made] if SECRET.encode() in body]


def test_answers_and_programs_of_actors_are_redacted_and_a_changed_answer_says_so() -> None:
    by = Caller(user="u", client="websocket", user_agent=f"client {SECRET}")
    given = [Answer(prompt=SECRET, value=value, caller=by) for value in (f"k {SECRET}", "plain")]

    end = redactor().event(an_end(answers=tuple(given)))
    closed = redactor().event(SessionClosed(reason="", actor=Actor(door="websocket", caller=by)))

    assert SECRET not in said(end) + said(closed)
    assert isinstance(end, CellFinished)
    assert [(each.value, each.left_out) for each in end.answers] == [
        ("k [redacted:api-key]", "redacted"), ("plain", None),
    ]  # fmt: skip
    assert "[redacted:api-key]" in said(closed)


def test_removable_answers_stand_beside_the_entry_and_come_back_from_there() -> None:
    answers = (Answer(prompt="?", value="mine"),)

    kept, stored = prepared(an_end(stream("x"), answers=answers), is_removable=True)

    assert "mine" not in said(kept)
    assert said_in(stored).answers == answers
    kept, _ = prepared(an_end(stream("x"), answers=answers), is_removable=False)
    assert kept.answers == answers
