"""What AWS's refusals are called, and the clocks that differ among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from kernel_gateway.dispatch.lambda_invoker import translated
from kernel_gateway.errors import InvokeRefused
from kernel_gateway.local.sigv4 import SignatureRefused, verify
from lambda_kernel.storage.refusals import refusal_of, refusal_text
from tests.unit.local.test_sigv4 import KEYS, signed

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
DATE_S = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestTimeTooSkewed", "The difference between the request time and the current time"),
        ("SignatureDoesNotMatch", "Signature expired: 20261130T115000Z is now earlier than"),
        ("InvalidSignatureException", "Signature not yet current: 20261130T121000Z is still"),
    ],
)
@pytest.mark.parametrize(("by_s", "words"), [(600, "600 s ahead"), (-600, "600 s behind")])
def test_a_clock_that_is_wrong_is_told_with_by_how_much(
    code: str, message: str, by_s: int, words: str
) -> None:
    text = refusal_text(code, message, DATE, DATE_S + by_s)
    assert text.startswith(f"{code}: the clock of the machine that asked is wrong, {words}")
    assert "set it" in text


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_an_answer_without_a_date_still_says_what_is_wrong(date: str | None) -> None:
    assert "asked is wrong; set it" in refusal_text("RequestTimeTooSkewed", "", date)


@pytest.mark.parametrize(
    ("code", "message"),
    [("AccessDenied", "Signature expired"), ("SignatureDoesNotMatch", "The request signature")],
)
def test_another_refusal_is_its_code(code: str, message: str) -> None:
    assert refusal_text(code, message, DATE) == code
    assert refusal_of({}, code) == code


@pytest.mark.parametrize("minutes", [-6, 6])
def test_a_cell_that_lambda_refuses_for_the_clock_says_so_and_did_not_start(minutes: int) -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(
            signed(),
            secret_keys=KEYS,
            service="lambda",
            region="us-east-1",
            now=lambda: datetime.now(UTC) + timedelta(minutes=minutes),
        )
    told = {"Code": refused.value.code, "Message": str(refused.value)}
    response = {"Error": told, "ResponseMetadata": {"HTTPStatusCode": 403}}
    problem = translated(ClientError(response, "Invoke"))
    assert isinstance(problem, InvokeRefused)
    assert "the clock of the machine that asked is wrong" in str(problem)
