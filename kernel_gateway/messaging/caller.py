"""Who sent a request, as far as the gateway itself knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request.

    Attributes:
        user, agent, admin: as the token says.
        auth: how the caller was known.
        client: what it spoke.
        user_agent: how its program names itself; anybody can claim anything.
    """

    user: str
    agent: str | None = None
    admin: bool = False
    auth: Literal["token"] = "token"
    client: Literal["websocket", "rest"]
    user_agent: str | None = None
