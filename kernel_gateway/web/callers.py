"""A caller as the journal names it."""

from __future__ import annotations

from typing import Literal

from kernel_gateway.kernels.identity import Identity
from kernel_gateway.messaging.caller import Caller


def caller_of(identity: Identity, client: Literal["websocket", "rest"]) -> Caller:
    """Return who sends a request, whose token was checked."""
    return Caller(user=identity.user, agent=identity.agent, admin=identity.admin, client=client)
