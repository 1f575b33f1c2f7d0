"""The session policy of one invocation: what its credentials may do, and nothing else.

The serving process applies it, the gateway computes and records the same text.
"""

from __future__ import annotations

import json
from typing import Any

from lambda_kernel.contract import keys
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.schema import InvalidField

MAX_CHARACTERS = 2048
"""Source: AWS STS AssumeRole, "Policy"."""

READING = ("s3:GetObject", "s3:GetObjectVersion")
WRITING = ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject", "s3:AbortMultipartUpload")

MIN_DURATION_S = 900
MAX_DURATION_S = 3600
COMMIT_SLACK_S = 120
"""What rehydration and commit may take on top of the function's timeout."""


def session_policy(invocation: Invocation, stack: keys.Stack) -> str:
    """Return the policy text for AssumeRole.

    Args:
        invocation: whose scope, prefixes, agent and request id it is made for.
        stack: names of the buckets and secrets.

    Raises:
        InvalidField: the text would be longer than STS allows.

    Source: storage.md, "Roles".
    """
    scope = invocation.scope
    files = keys.user_prefix(scope.user)
    if invocation.write_prefix.startswith(f"{files}.replays/"):
        files = invocation.write_prefix
    state = keys.scope_prefix(scope)
    workspaces, state_bucket = f"arn:aws:s3:::{stack.workspaces}", f"arn:aws:s3:::{stack.state}"
    control = f"arn:aws:s3:::{stack.overflow}/{keys.control_prefix(invocation.request_id)}*"
    pinned = invocation.pinned
    # A pinned cell's own folder is empty: it is not listed.
    listed = [files if pinned is None else pinned.inputs]
    readable = [] if pinned is None else pinned.readable(stack)
    actions = [*READING, *(WRITING if invocation.commit else ())]
    statements = [
        _allow(actions, [f"{workspaces}/{files}*", f"{state_bucket}/{state}*"]),
        _allow(["s3:GetObject", "s3:DeleteObject"], [control]),
    ]
    if stack.governed_read_prefix is not None:
        listed.append(stack.governed_read_prefix)
        readable.append(f"{workspaces}/{stack.governed_read_prefix}*")
    if readable:
        statements.append(_allow([*READING], readable))
    statements.append(_allow_list(workspaces, listed))
    statements.append(_allow_list(state_bucket, [state]))
    if scope.agent is not None:
        secret = stack.connector_secret(scope.agent)
        arn = f"arn:aws:secretsmanager:*:{stack.account_id}:secret:{secret}-??????"
        statements.append(_allow(["secretsmanager:GetSecretValue"], [arn]))
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    if len(text) > MAX_CHARACTERS:
        raise InvalidField(
            "session_policy", f"is {len(text)} characters long, STS allows {MAX_CHARACTERS}"
        )
    return text


def duration_s(timeout_s: float) -> int:
    """Return how long the credentials of an invocation live, in seconds (900 to 3600)."""
    return max(MIN_DURATION_S, min(MAX_DURATION_S, int(timeout_s) + COMMIT_SLACK_S))


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _allow_list(bucket: str, prefixes: list[str]) -> dict[str, Any]:
    # Every listing names a prefix that ends in "/", so `users/u1/*` never matches `users/u10/`.
    return {
        **_allow(["s3:ListBucket"], [bucket]),
        "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
    }
