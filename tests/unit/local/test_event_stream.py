"""The event stream encoder against botocore's decoder."""

from __future__ import annotations

import json

from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.local.event_stream import event, invoke_complete, payload_chunk


@given(st.lists(st.binary(max_size=4096), max_size=5))
def test_botocore_reads_back_what_was_encoded(payloads: list[bytes]) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(b"".join(payload_chunk(payload) for payload in payloads) + invoke_complete())

    messages = list(buffer)

    assert [m.payload for m in messages[:-1]] == payloads
    assert [m.headers[":event-type"] for m in messages] == ["PayloadChunk"] * len(payloads) + [
        "InvokeComplete"
    ]
    assert {m.headers[":message-type"] for m in messages} == {"event"}


def test_a_failure_names_its_code_and_details() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(invoke_complete("Sandbox.Timedout", '{"errorMessage": "ü"}'))

    (message,) = buffer

    assert json.loads(message.payload) == {
        "ErrorCode": "Sandbox.Timedout",
        "ErrorDetails": '{"errorMessage": "ü"}',
    }


def test_a_success_says_nothing_of_errors() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(invoke_complete())

    (message,) = buffer

    assert json.loads(message.payload) == {}


def test_an_event_carries_its_content_type() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(event("X", "text/plain", b"1"))

    (message,) = buffer

    assert message.headers[":content-type"] == "text/plain"
