"""Makes session tokens as SeaweedFS does, and as it never would."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

KEY = b"k" * 32
SESSION_ID = "5" * 32


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a session that lives for 15 minutes."""
    return {
        "iss": "lambda-kernel-gateway",
        "sub": SESSION_ID,
        "sid": SESSION_ID,
        "exp": int((datetime.now(UTC) + timedelta(minutes=15)).timestamp()),
        "role": "arn:aws:iam::000000000000:role/lkg-local-sandbox-scoped-role",
        "assumed": "lkg-local-sandbox-scoped-role:s",
        "principal": "arn:aws:sts::000000000000:assumed-role/lkg-local-sandbox-scoped-role/s",
        "typ": "session",
        "snam": "s",
        "pol": ["scoped"],
    } | changes


def mint(body: Any, key: bytes = KEY, header: Any = None) -> str:
    """Return a token with ``body``, signed with ``key``."""
    head = {"alg": "HS256", "typ": "JWT"} if header is None else header
    text = b".".join(_encoded(json.dumps(part).encode()) for part in (head, body))
    signature = _encoded(hmac.digest(key, text, "sha256"))
    return f"{text.decode()}.{signature.decode()}"


def credentials(body: dict[str, Any], key: bytes = KEY) -> dict[str, str]:
    """Return boto3's credential arguments for a token with ``body``."""
    digest = hashlib.sha256(f"access-key:{body['sid']}".encode()).hexdigest()
    secret = hmac.digest(key, f"secret-key:{body['sid']}".encode(), "sha256")
    return {
        "aws_access_key_id": f"ASIA{digest[:16]}",
        "aws_secret_access_key": base64.b64encode(secret).decode(),
        "aws_session_token": mint(body, key),
    }


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")
