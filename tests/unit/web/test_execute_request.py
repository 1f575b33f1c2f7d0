"""What may be in the body of an execute request, and what is said of anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.errors import BadRequest
from kernel_gateway.web.execute_request import ExecuteBody


def test_code_is_enough() -> None:
    body = ExecuteBody.read(b'{"code": "1 + 1"}', None)
    assert body.content == {"code": "1 + 1"}
    assert (body.timeout_s, body.interrupt_on_disconnect, body.idempotency_key) == (
        None,
        False,
        None,
    )


def test_null_stands_for_a_field_that_is_missing() -> None:
    body = ExecuteBody.read(b'{"code": "", "silent": null, "timeout_s": null}', None)
    assert body.content == {"code": ""}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "object"),
        ('"1 + 1"', "object"),
        ("{}", "code: is missing"),
        ('{"code": null}', "code: is missing"),
        ('{"code": 7}', "code: must be text"),
        ('{"code": ["1"]}', "code: must be text"),
        ('{"code": "1", "silent": 0}', "silent: must be true or false"),
        ('{"code": "1", "store_history": "yes"}', "store_history"),
        ('{"code": "1", "stop_on_error": 1.0}', "stop_on_error"),
        ('{"code": "1", "interrupt_on_disconnect": "true"}', "interrupt_on_disconnect"),
        ('{"code": "1", "user_expressions": []}', "user_expressions: must be an object"),
        ('{"code": "1", "user_expressions": {"a": 1}}', "user_expressions['a']"),
        ('{"code": "1", "timeout_s": 0}', "timeout_s"),
        ('{"code": "1", "timeout_s": -1}', "timeout_s"),
        ('{"code": "1", "timeout_s": true}', "timeout_s"),
        ('{"code": "1", "timeout_s": "5"}', "timeout_s"),
        ('{"code": "1", "timeout_s": 1e9}', "timeout_s"),
        ('{"code": "1", "timeout_s": 1e999}', "too large a number"),
        ('{"code": "1", "timeout_s": NaN}', "NaN"),
        ('{"code": "1", "timeout_s": -Infinity}', "-Infinity"),
        ('{"code": "1", "code": "2"}', "'code': stands there more than once"),
        ('{"code": "1", "user_expressions": {"a": "1", "a": "2"}}', "'a'"),
        ('{"code": "1", "allow_stdin": true}', "'allow_stdin': is not known"),
        ('{"code": "1", "Code": "2"}', "'Code': is not known"),
        ('{"code": "1", "idempotency_key": ""}', "idempotency_key"),
        ('{"code": "1", "idempotency_key": "a\\nb"}', "idempotency_key"),
        ('{"code": "1", "idempotency_key": "\\ud800"}', "idempotency_key"),
        ('{"code": "1", "idempotency_key": 7}', "idempotency_key: must be text"),
        ('{"code": "1", "timeout_s": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 100_000, "nested"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(BadRequest) as refused:
        ExecuteBody.read(text.encode(), None)
    assert named in str(refused.value)


@pytest.mark.parametrize("body", [b"\xff\xfe{\x00}\x00", b'{"code": "\xff"}'])
def test_a_body_that_is_not_utf8_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        ExecuteBody.read(body, None)


@pytest.mark.parametrize("header", ["k1", '"k1"', " k1 "])
def test_the_key_may_stand_in_the_header_bare_or_quoted(header: str) -> None:
    assert ExecuteBody.read(b'{"code": "1"}', header).idempotency_key == "k1"
    same = b'{"code": "1", "idempotency_key": "k1"}'
    assert ExecuteBody.read(same, header).idempotency_key == "k1"


def test_two_keys_are_refused() -> None:
    with pytest.raises(BadRequest, match="another"):
        ExecuteBody.read(b'{"code": "1", "idempotency_key": "k1"}', "k2")


WORDS = st.sampled_from(["", "code", "1 + 1", "\ud800", "\x00", "k" * 300])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(
    st.sampled_from(["code", "silent", "user_expressions", "timeout_s", "idempotency_key"]), JSON
)


@given(FIELDS)
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        found = ExecuteBody.read(json.dumps(body).encode(), None)
    except BadRequest:
        return
    assert isinstance(found.content["code"], str)
