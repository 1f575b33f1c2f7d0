"""Signature Version 4: what botocore signs is accepted, everything else is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kernel_gateway.local.sigv4 import SignatureRefused, SignedRequest, verify

KEYS = {"AKIATEST": "secret"}
URL = "http://127.0.0.1:1234/2015-03-31/functions/lkg-env-default/invocations?Qualifier=%24LATEST"


def signed(
    *, secret: str = "secret", service: str = "lambda", region: str = "us-east-1"
) -> SignedRequest:
    headers = {"Host": "127.0.0.1:1234", "X-Amz-Tenant-Id": "scope  one", "User-Agent": "x"}
    request = AWSRequest(method="POST", url=URL, headers=headers, data=b'{"a": 1}')
    SigV4Auth(Credentials("AKIATEST", secret), service, region).add_auth(request)
    return SignedRequest(
        method="POST", url=URL, headers=dict(request.headers.items()), body=b'{"a": 1}'
    )


def check(request: SignedRequest, *, later: timedelta = timedelta(0)) -> str:
    return verify(
        request,
        secret_keys=KEYS,
        service="lambda",
        region="us-east-1",
        now=lambda: datetime.now(UTC) + later,
    )


def test_what_botocore_signed_is_accepted() -> None:
    assert check(signed()) == "AKIATEST"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(signed(secret="guess"), id="another secret"),
        pytest.param(signed(service="s3"), id="another service"),
        pytest.param(signed(region="eu-west-1"), id="another region"),
        pytest.param(replace(signed(), body=b'{"a": 2}'), id="another body"),
        pytest.param(replace(signed(), method="PUT"), id="another method"),
        pytest.param(replace(signed(), url=URL.replace("default", "other")), id="another path"),
        pytest.param(replace(signed(), url=URL.replace("LATEST", "1")), id="another query"),
    ],
)
def test_what_was_changed_is_refused(request_: SignedRequest) -> None:
    with pytest.raises(SignatureRefused):
        check(request_)


@pytest.mark.parametrize("name", ["X-Amz-Tenant-Id", "Host", "X-Amz-Date"])
def test_a_changed_header_is_refused(name: str) -> None:
    request = signed()
    headers = {**request.headers, name: "20260101T000000Z"}

    with pytest.raises(SignatureRefused):
        check(replace(request, headers=headers))


@pytest.mark.parametrize("minutes", [-6, 6])
def test_an_old_or_early_signature_is_refused(minutes: int) -> None:
    with pytest.raises(SignatureRefused, match=r"Signature (expired|not yet current)"):
        check(signed(), later=timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "MissingAuthenticationTokenException"),
        ("", "IncompleteSignatureException"),
        ("Bearer x", "IncompleteSignatureException"),
        ("AWS4-HMAC-SHA256 Credential=a/b/c", "IncompleteSignatureException"),
    ],
)
def test_a_malformed_authorization_is_refused(authorization: str | None, code: str) -> None:
    request = signed()
    headers = {k: v for k, v in request.headers.items() if k != "Authorization"}
    if authorization is not None:
        headers["Authorization"] = authorization

    with pytest.raises(SignatureRefused) as refused:
        check(replace(request, headers=headers))

    assert refused.value.code == code


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(signed(), secret_keys={}, service="lambda", region="us-east-1")

    assert refused.value.code == "UnrecognizedClientException"
