"""What the client sends again, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest

from kernel_gateway.client import (
    AnswerPending,
    ApiError,
    BadInput,
    Conflict,
    NoSuchThing,
    OutcomeUnknown,
    ResultGone,
    TryLater,
    Unauthorized,
    Unreachable,
)
from kernel_gateway.client import operations as ops
from kernel_gateway.client.models import EventReader
from kernel_gateway.client.operations import Pause, Send

RESULT = {
    "status": "ok",
    "execution_count": 1,
    "outputs": [{"output_type": "stream", "name": "stdout", "text": "x"}],
    "user_expressions": {},
    "payload": [],
    "lambda_kernel": {"committed": True},
}
LOST = Unreachable("lost", was_sent=True)
REFUSED = Unreachable("refused", was_sent=False)
SLOW = AnswerPending("slow", was_sent=True)
EXECUTE = ops.execute_request("k", {"code": "x"}, None)


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> httpx.Response:
    request = httpx.Request("GET", "http://gateway/")
    return httpx.Response(status, json=body, headers=headers, request=request)


def driven(
    steps: ops.Steps[Any], replies: Iterable[httpx.Response | Unreachable]
) -> tuple[Any, list[Send], list[float]]:
    """Drive ``steps`` with ``replies``; return its result, what was sent, and the pauses."""
    left = list(replies)
    sent: list[Send] = []
    pauses: list[float] = []
    advance: Callable[[], Send | Pause] = lambda: next(steps)  # noqa: E731
    while True:
        try:
            step = advance()
        except StopIteration as end:
            assert not left
            return end.value, sent, pauses
        if isinstance(step, Pause):
            pauses.append(step.seconds)
            advance = lambda: steps.send(None)  # noqa: E731
            continue
        sent.append(step)
        reply = left.pop(0)
        if isinstance(reply, Unreachable):
            advance = lambda problem=reply: steps.throw(problem)  # type: ignore[misc]  # noqa: E731
        else:
            advance = lambda found=reply: steps.send(found)  # type: ignore[misc]  # noqa: E731


def test_a_lost_request_is_sent_again_with_its_key() -> None:
    result, sent, pauses = driven(ops.execute(EXECUTE), [LOST, answer(RESULT)])
    assert result.text == "x"
    bodies = [send.json for send in sent if send.method == "POST"]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    assert bodies[0]["idempotency_key"]
    assert len(pauses) == 1


def test_a_request_that_did_not_arrive_is_sent_again_whatever_gateway_answers() -> None:
    result, _, pauses = driven(ops.execute(EXECUTE), [REFUSED, REFUSED, answer(RESULT)])
    assert result.status == "ok"
    assert pauses == sorted(set(pauses))


def test_a_long_cell_is_asked_for_again_and_again_without_a_pause() -> None:
    result, sent, pauses = driven(ops.execute(EXECUTE), [*[SLOW] * 20, answer(RESULT)])
    assert result.status == "ok"
    assert pauses == []
    assert len({send.json["idempotency_key"] for send in sent if send.method == "POST"}) == 1


def test_a_gateway_that_cannot_tell_yet_is_asked_again_and_at_last_given_up() -> None:
    unavailable = answer({"message": "S3 does not answer"}, 503)
    result, _, pauses = driven(ops.execute(EXECUTE), [LOST, unavailable, answer(RESULT)])
    assert result.status == "ok"
    assert len(pauses) == 2
    with pytest.raises(OutcomeUnknown, match="S3 does not answer"):
        driven(ops.execute(EXECUTE), [LOST, *[unavailable] * ops.IN_FLIGHT_ATTEMPTS_COUNT])


def refused(status: int, code_started: str) -> httpx.Response:
    return answer({"message": "told so", "code_started": code_started}, status)


def test_what_the_gateway_cannot_tell_of_a_key_is_asked_again() -> None:
    lost = refused(502, "unknown")
    result, _, pauses = driven(
        ops.execute(EXECUTE), [lost, refused(503, "unknown"), answer(RESULT)]
    )
    assert (result.status, len(pauses)) == ("ok", 2)
    with pytest.raises(OutcomeUnknown, match="told so"):
        driven(ops.execute(EXECUTE), [lost] * ops.IN_FLIGHT_ATTEMPTS_COUNT)
    given = ops.execute_request("k", {"code": "x"}, "a key of an earlier process")
    unknown = [refused(503, "unknown")] * ops.IN_FLIGHT_ATTEMPTS_COUNT
    with pytest.raises(OutcomeUnknown, match="told so"):
        driven(ops.execute(given), unknown)


def test_a_new_key_was_never_run_and_what_surely_did_not_run_is_not_called_unknown() -> None:
    with pytest.raises(TryLater, match="told so"):
        driven(ops.execute(EXECUTE), [refused(503, "unknown")])
    with pytest.raises(TryLater, match="told so"):
        driven(ops.execute(EXECUTE), [LOST, refused(503, "no")])


@pytest.mark.parametrize("replies", [[503], [LOST, 429]])
def test_a_request_of_which_nothing_ran_is_left_to_the_caller(replies: list[Any]) -> None:
    refused = [answer({"message": "no"}, r) if isinstance(r, int) else r for r in replies]
    with pytest.raises(TryLater):
        driven(ops.execute(EXECUTE), refused)


def test_a_gateway_that_is_gone_is_given_up() -> None:
    with pytest.raises(Unreachable, match="refused"):
        driven(ops.execute(EXECUTE), [REFUSED] * ops.ATTEMPTS_COUNT)
    with pytest.raises(Unreachable):
        driven(ops.kernels(), [REFUSED] * ops.ATTEMPTS_COUNT)


def test_starting_a_kernel_is_never_repeated() -> None:
    with pytest.raises(Unreachable):
        driven(ops.start_kernel(None, "w", None), [LOST])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadInput),
        (403, Unauthorized),
        (404, NoSuchThing),
        (409, Conflict),
        (410, ResultGone),
        (413, BadInput),
        (422, BadInput),
        (429, TryLater),
        (500, ApiError),
        (503, TryLater),
    ],
)
def test_a_refusal_has_a_type_and_the_gateways_text(status: int, kind: type[ApiError]) -> None:
    with pytest.raises(kind, match="told so") as refused:
        driven(ops.execute(EXECUTE), [answer({"message": "told so"}, status)])
    assert refused.value.status == status


def test_what_is_no_gateway_is_said_so() -> None:
    page = httpx.Response(200, text="<html>", request=httpx.Request("GET", "http://x/"))
    with pytest.raises(ApiError, match="as no gateway does"):
        driven(ops.kernels(), [page])


def test_a_cell_that_ends_with_its_connection_is_waited_for_without_end() -> None:
    assert (
        ops.execute_request("k", {"code": "", "interrupt_on_disconnect": True}, None).answer_s
        is None
    )
    assert EXECUTE.answer_s == ops.ANSWER_S


def test_events_are_read_with_heartbeats_between_and_half_events_are_dropped() -> None:
    reader = EventReader()
    data = 'data: {"content": {"name": "stdout", "text": "x"}, "metadata": {}, "buffers": ["AP8="]}'
    lines = [": still there", "", "id: 4", "event: stream", data, "", "id: 5", "event: stream"]
    (event,) = [found for line in lines if (found := reader.feed(line))]
    assert (event.number, event.msg_type, event.text) == (4, "stream", "x")
    assert event.buffers == (b"\x00\xff",)
    assert reader.last_number == 4
    reader.begin()
    assert reader.feed("") is None
