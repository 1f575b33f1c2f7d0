"""Verifies AWS Signature Version 4 by signing the received request again with botocore."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

MAX_SKEW = timedelta(minutes=5)
"""Source: AWS Signature Version 4, requests must reach AWS within five minutes."""

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/(\d{8})/([^/,\s]+)/([^/,\s]+)/aws4_request,\s*"
    r"SignedHeaders=([a-z0-9;-]+),\s*Signature=([0-9a-f]{64})"
)


class SignatureRefused(Exception):
    """The request is not signed as it must be.

    Attributes:
        code: AWS's name of the error.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it was received."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


def verify(
    request: SignedRequest,
    *,
    secret_keys: Mapping[str, str],
    service: str,
    region: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> str:
    """Return the access key id that signed ``request``.

    Args:
        request: what was received.
        secret_keys: access key id to secret key of those who may call.
        service: the service name the signature must be scoped to.
        region: the region it must be scoped to.
        now: the clock.

    Raises:
        SignatureRefused: there is no signature, or it is not a valid, recent one of these keys.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    claim = _claim(headers.get("authorization"))
    secret_key = secret_keys.get(claim.access_key_id)
    if secret_key is None:
        raise SignatureRefused("UnrecognizedClientException", "the access key is not known here")
    timestamp = headers.get("x-amz-date", "")
    _check_scope(claim, timestamp, service, region, now())
    digest = headers.get("x-amz-content-sha256")
    if digest is not None and digest != hashlib.sha256(request.body).hexdigest():
        raise SignatureRefused("InvalidSignatureException", "the payload is not the signed one")
    if hmac.compare_digest(_signature(request, claim, headers, secret_key), claim.signature):
        return claim.access_key_id
    raise SignatureRefused("InvalidSignatureException", "the signature does not match")


def _claim(authorization: str | None) -> _Claim:
    if authorization is None:
        raise SignatureRefused("MissingAuthenticationTokenException", "the request is not signed")
    match = _AUTHORIZATION.fullmatch(authorization)
    if match is None:
        raise SignatureRefused(
            "IncompleteSignatureException", "the Authorization header is malformed"
        )
    access_key_id, date, region, service, signed, signature = match.groups()
    return _Claim(
        access_key_id=access_key_id,
        date=date,
        region=region,
        service=service,
        signed_headers=tuple(signed.split(";")),
        signature=signature,
    )


def _check_scope(claim: _Claim, timestamp: str, service: str, region: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SignatureRefused("IncompleteSignatureException", "X-Amz-Date is malformed") from None
    if (claim.service, claim.region, claim.date) != (service, region, timestamp[:8]):
        raise SignatureRefused(
            "InvalidSignatureException", f"the credential must be scoped to {region}/{service}"
        )
    if abs(now - signed_at) > MAX_SKEW:
        is_old = signed_at < now
        words = "expired: {} is now earlier" if is_old else "not yet current: {} is still later"
        there = f"{now:%Y%m%dT%H%M%SZ}"
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Signature {words.format(timestamp)} than what {there} admits",
        )
    if not {"host", "x-amz-date"} <= set(claim.signed_headers):
        raise SignatureRefused("IncompleteSignatureException", "host and x-amz-date must be signed")


def _signature(
    request: SignedRequest, claim: _Claim, headers: Mapping[str, str], secret_key: str
) -> str:
    signed = {name: headers.get(name, "") for name in claim.signed_headers}
    again = AWSRequest(method=request.method, url=request.url, headers=signed, data=request.body)
    again.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials(claim.access_key_id, secret_key), claim.service, claim.region)
    text = signer.string_to_sign(again, signer.canonical_request(again))
    signature: str = signer.signature(text, again)
    return signature
