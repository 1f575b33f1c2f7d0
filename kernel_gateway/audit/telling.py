"""Events of a journal in words, for the Markdown of a trail; no evidence."""

from __future__ import annotations

from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    CellStarted,
    Event,
    KernelRestarted,
    SessionClosed,
)
from kernel_gateway.audit.events import (
    ConnectorsGranted,
    PolicyChanged,
    SessionForked,
    SessionOpened,
)
from kernel_gateway.audit.later_events import (
    CellsUnrecorded,
    ContentRemoved,
    gap_text,
    removal_text,
)
from kernel_gateway.audit.view import plain_text
from kernel_gateway.messaging.caller import Actor

_DOORS = {
    "websocket": "over a websocket",
    "rest": "by REST",
    "jupyter_server": "through the Jupyter server",
    "culler": "by the culler",
    "time_limit": "by the time limit of its request",
    "client_gone": "because its client was gone",
    "replay": "because the replay was over",
    "gateway": "by the gateway itself",
}


def told(event: Event, time: str) -> str:
    """Return what happened, and when."""
    return f"*{time}* {_text(event)}."


def who_text(actor: Actor | None) -> str:
    """Return who did something, and by which door; "" where that is not recorded."""
    if actor is None:
        return ""
    door, caller = _DOORS[actor.door], actor.caller
    if caller is None:
        return f" {door}"
    agent = f", agent `{caller.agent}`" if caller.agent else ""
    return f" by user `{caller.user}`{agent}, {door}"


def _text(event: Event) -> str:
    match event:
        case CellStarted():
            return "A comm message of a front end (a widget) ran in the session"
        case CellFinished():
            return f"It ended: {event.status}" + (f", {event.failure}" if event.failure else "")
        case CellInterrupted():
            return f"An interrupt was asked for{who_text(event.actor)}"
        case KernelRestarted():
            who = who_text(event.actor)
            return f"The kernel was restarted{who}: its variables are gone"
        case SessionOpened():
            return f"The kernel was started{who_text(event.actor)} at {event.session.created}"
        case SessionForked():
            where = f"as they were after cell [{event.execution_count}]"
            who = who_text(event.actor)
            return f"Kernel `{event.kernel_id}` began with the variables, {where}{who}"
        case SessionClosed():
            who = who_text(event.actor)
            return f"The kernel was shut down{who}: {plain_text(event.reason)}"
        case _:
            return _condition_text(event)


def _condition_text(event: Event) -> str:
    match event:
        case PolicyChanged():
            return f"The next cells run under other conditions: {', '.join(event.changed)}"
        case ConnectorsGranted():
            named = ", ".join(event.connectors) or "none"
            return f"From the last cell on, code can read the connectors: {named}"
        case ContentRemoved():
            return removal_text(event)
        case CellsUnrecorded():
            return gap_text(event)
        case _:
            raise TypeError(f"{type(event).__name__} has no words")
