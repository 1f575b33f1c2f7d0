"""SeaweedFS's session tokens: who signs a request, under which policies, until when.

A token is a JWT (HS256) under SeaweedFS's configured key; access key id and secret key derive from
the session id in it. Whoever holds the signing key can therefore verify requests without asking.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kernel_gateway.local.storage_config import TOKEN_ISSUER

MAX_TOKEN_CHARACTERS = 16_384


class TokenRefused(Exception):
    """The token is not one that may be used now.

    Attributes:
        code: AWS's name of the error.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The session that a token stands for.

    Attributes:
        access_key_id: of the temporary credentials.
        secret_access_key: likewise.
        principal: ARN of the assumed role and session.
        policies: names of the role's policies.
        session_policy: the document given to AssumeRole; None where there was none.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    principal: str
    policies: tuple[str, ...]
    session_policy: Mapping[str, Any] | None


def read_session(
    token: str, signing_key: bytes, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Session:
    """Return the session of ``token``.

    Args:
        token: as the ``X-Amz-Security-Token`` header gave it.
        signing_key: SeaweedFS's key, decoded.
        now: the clock.

    Raises:
        TokenRefused: UnrecognizedClientException or ExpiredTokenException.
    """
    claims = _claims(token, signing_key)
    session_id, expires = claims.get("sid"), claims.get("exp")
    if claims.get("iss") != TOKEN_ISSUER or not isinstance(session_id, str) or not session_id:
        raise _invalid()
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise _invalid()
    if now().timestamp() >= expires:
        raise TokenRefused(
            "ExpiredTokenException", "The security token included in the request is expired"
        )
    digest = hashlib.sha256(f"access-key:{session_id}".encode()).hexdigest()
    secret = hmac.digest(signing_key, f"secret-key:{session_id}".encode(), "sha256")
    return Session(
        access_key_id=f"ASIA{digest[:16]}",
        secret_access_key=base64.b64encode(secret).decode(),
        principal=str(claims.get("principal", "")),
        policies=_names(claims.get("pol")),
        session_policy=_document(claims.get("spol")),
    )


def _claims(token: str, signing_key: bytes) -> dict[str, Any]:
    try:
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise _invalid()
        head, body, signature = token.encode("ascii").split(b".")
        expected = hmac.digest(signing_key, head + b"." + body, "sha256")
        # The signature comes first: nothing of a token is parsed that we did not sign.
        if not hmac.compare_digest(_decoded(signature), expected):
            raise _invalid()
        header, claims = json.loads(_decoded(head)), json.loads(_decoded(body))
    except (ValueError, RecursionError):
        raise _invalid() from None
    if not isinstance(header, dict) or header.get("alg") != "HS256" or not isinstance(claims, dict):
        raise _invalid()
    return claims


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _invalid()
    return tuple(value)


def _document(value: object) -> Mapping[str, Any] | None:
    if value is None or value == "":
        return None
    try:
        document = json.loads(str(value))
    except (ValueError, RecursionError):
        raise _invalid() from None
    if not isinstance(document, dict):
        raise _invalid()
    return document


def _decoded(part: bytes) -> bytes:
    return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _invalid() -> TokenRefused:
    return TokenRefused(
        "UnrecognizedClientException", "The security token included in the request is invalid."
    )
