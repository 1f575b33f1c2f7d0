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


Door = Literal[
    "websocket",
    "rest",
    "jupyter_server",
    "culler",
    "time_limit",
    "client_gone",
    "replay",
    "gateway",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who did something to a kernel, and by which door.

    Attributes:
        door: how it was asked for. ``websocket``: by a message. ``rest``: by a request.
            ``jupyter_server``: through the Jupyter server that the gateway is a part of, which
            alone knows who. ``culler``: by nobody, the kernel was idle for too long.
            ``time_limit``: it came with the request for the cell. ``client_gone``: who asked for
            the cell, or whose kernel it was, has gone. ``replay``: the replay that it ran for is
            over. ``gateway``: by nobody, the gateway does it on its own.
        caller: who asked, or had asked for what ends by it; None where nobody did, or nobody
            knows.
    """

    door: Door
    caller: Caller | None = None

    @classmethod
    def of(cls, caller: Caller | None) -> Actor:
        """Return who asked himself."""
        return cls(door="gateway" if caller is None else caller.client, caller=caller)


GATEWAY = Actor(door="gateway")
