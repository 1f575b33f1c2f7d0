"""Secrets Manager's GetSecretValue: signature, session, role policy AND session policy.

Source: AWS Secrets Manager API reference, GetSecretValue and "Common Errors".
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernel_gateway.errors import StorageError
from kernel_gateway.local import policies
from kernel_gateway.local.secrets_store import Secret, SecretStore
from kernel_gateway.local.session_token import Session, TokenRefused, read_session
from kernel_gateway.local.sigv4 import SignatureRefused, SignedRequest, verify

logger = logging.getLogger(__name__)

SERVICE = "secretsmanager"
_ACTION = f"{SERVICE}:GetSecretValue"
TARGET_PREFIX = "secretsmanager."
CONTENT_TYPE = "application/x-amz-json-1.1"
_CURRENT = "AWSCURRENT"


class SecretsError(Exception):
    """An answer other than a secret.

    Attributes:
        code: AWS's name of it.
        status: its HTTP status.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsAuthority:
    """What requests are judged by.

    Attributes:
        signing_key: verifies session tokens.
        policies: the roles' policies, by the names that tokens carry.
        region: that signatures must be scoped to.
        account_id: in ARNs.
        now: the clock.
    """

    signing_key: bytes = field(repr=False)
    policies: Mapping[str, Mapping[str, Any]]
    region: str
    account_id: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class SecretsApi:
    """Answers requests to Secrets Manager and keeps the record of them."""

    def __init__(self, store: SecretStore, authority: SecretsAuthority, record_path: Path) -> None:
        self._store = store
        self._authority = authority
        self._record_path = record_path
        record_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def answer(self, request: SignedRequest, source: str) -> Answer:
        """Return what Secrets Manager says to ``request``, which came from ``source``."""
        facts: dict[str, Any] = {"principal": None, "secret_id": None}
        try:
            body = self._get_secret_value(request, facts)
            answer = _answer(200, body)
        except (SecretsError, SignatureRefused, TokenRefused) as error:
            status = error.status if isinstance(error, SecretsError) else 400
            answer = _answer(status, {"__type": error.code, "Message": str(error)}, error.code)
            facts["error"] = error.code
        self._record({**facts, "source": source, "status": answer.status})
        return answer

    def _get_secret_value(self, request: SignedRequest, facts: dict[str, Any]) -> dict[str, Any]:
        headers = {name.lower(): value for name, value in request.headers.items()}
        session = self._authenticated(request, headers)
        facts["principal"] = session.principal
        action = headers.get("x-amz-target", "")
        if action != f"{TARGET_PREFIX}GetSecretValue":
            raise SecretsError("UnknownOperationException", "only GetSecretValue is offered here")
        asked = _parameters(request.body)
        secret_id = facts["secret_id"] = asked["SecretId"]
        secret = self._find(secret_id)
        # As AWS does: a secret that does not exist is judged by the name that was asked for, which
        # a policy that ends in the suffix does not match. Nobody learns which secrets there are.
        arn = self._arn(secret_id) if secret is None else self._arn(_full_name(secret))
        refusing = self._refusing(session, arn)
        if refusing is not None:
            raise SecretsError(
                "AccessDeniedException",
                f"User: {session.principal} is not authorized to perform: "
                f"{_ACTION} on resource: {secret_id} "
                f"because no {refusing} policy allows the {_ACTION} action",
            )
        if secret is None or not _is_current(secret, asked):
            raise SecretsError(
                "ResourceNotFoundException", "Secrets Manager can't find the specified secret."
            )
        return {
            "ARN": arn,
            "Name": secret.name,
            "VersionId": secret.version_id,
            "SecretString": secret.text,
            "VersionStages": [_CURRENT],
            "CreatedDate": secret.created,
        }

    def _authenticated(self, request: SignedRequest, headers: Mapping[str, str]) -> Session:
        token = headers.get("x-amz-security-token")
        if token is None:
            # Only sessions of the scoped role may read here: no static key is known.
            signed = "authorization" in headers
            code = (
                "UnrecognizedClientException" if signed else "MissingAuthenticationTokenException"
            )
            raise TokenRefused(code, "The request has no security token.")
        authority = self._authority
        session = read_session(token, authority.signing_key, authority.now)
        verify(
            request,
            secret_keys={session.access_key_id: session.secret_access_key},
            service=SERVICE,
            region=authority.region,
            now=authority.now,
        )
        return session

    def _refusing(self, session: Session, arn: str) -> str | None:
        """Return which kind of policy does not let ``session`` read, None where it may."""
        known = self._authority.policies
        role = [known[name] for name in session.policies if name in known]
        if not policies.allows(role, _ACTION, arn):
            return "identity-based"
        # A session without a policy of its own has its role's rights, as on AWS.
        narrowed = session.session_policy
        if narrowed is not None and not policies.allows([narrowed], _ACTION, arn):
            return "session"
        return None

    def _find(self, secret_id: str) -> Secret | None:
        name = secret_id.removeprefix(self._arn(""))
        try:
            if name == secret_id:
                return self._store.get(name)
            found = self._store.get(name.rpartition("-")[0])
        except StorageError as error:
            logger.exception("a secret cannot be read")
            raise SecretsError("InternalServiceError", "the secret cannot be read", 500) from error
        return found if found is not None and _full_name(found) == name else None

    def _arn(self, name: str) -> str:
        authority = self._authority
        if name.startswith("arn:"):
            return name
        return f"arn:aws:{SERVICE}:{authority.region}:{authority.account_id}:secret:{name}"

    def _record(self, facts: Mapping[str, Any]) -> None:
        time = self._authority.now().isoformat(timespec="milliseconds")
        with self._record_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time, **facts}) + "\n")


def _parameters(body: bytes) -> dict[str, str]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise SecretsError("SerializationException", "the request is not a JSON object")
    if not isinstance(asked.get("SecretId"), str) or not 1 <= len(asked["SecretId"]) <= 2048:
        raise SecretsError("InvalidParameterException", "SecretId must be 1 to 2048 characters")
    return {name: value for name, value in asked.items() if isinstance(value, str)}


def _is_current(secret: Secret, asked: Mapping[str, str]) -> bool:
    stage, version = asked.get("VersionStage", _CURRENT), asked.get("VersionId", secret.version_id)
    return (stage, version) == (_CURRENT, secret.version_id)


def _full_name(secret: Secret) -> str:
    return f"{secret.name}-{secret.suffix}"


def _answer(status: int, body: Mapping[str, Any], error: str | None = None) -> Answer:
    headers = {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": str(uuid.uuid4())}
    if error is not None:
        headers["x-amzn-ErrorType"] = error
    return Answer(status=status, headers=headers, body=json.dumps(body).encode())
