"""A caller as the journal names it."""

from __future__ import annotations

from typing import Literal

from tornado.httputil import HTTPHeaders

from kernel_gateway.kernels.identity import Identity
from kernel_gateway.messaging.caller import Caller

LONGEST_USER_AGENT = 256


def caller_of(
    identity: Identity, client: Literal["websocket", "rest"], headers: HTTPHeaders
) -> Caller:
    """Return who sends a request, whose token was checked."""
    named = headers.get("User-Agent")
    return Caller(
        user=identity.user,
        agent=identity.agent,
        admin=identity.admin,
        client=client,
        user_agent=None if named is None else named[:LONGEST_USER_AGENT],
    )
