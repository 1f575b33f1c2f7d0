"""The states of a kernel and the one table of transitions between them."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from kernel_gateway.errors import GatewayError


class ExecutionState(StrEnum):
    """What ``execution_state`` of the REST model and of ``status`` messages may say."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    RESTARTING = "restarting"
    DEAD = "dead"


class KernelEvent(StrEnum):
    """What moves a kernel from one state to another."""

    READY = "ready"
    """Its record is durable (again)."""
    CELL_BEGINS = "cell begins"
    CELL_ENDS = "cell ends"
    RESTART = "restart"
    SHUTDOWN = "shutdown"


class IllegalTransition(GatewayError):
    """The event cannot happen in this state: the request comes too late or too early."""

    http_status = 409


_S, _E = ExecutionState, KernelEvent

TRANSITIONS = MappingProxyType(
    {
        (_S.STARTING, _E.READY): _S.IDLE,
        (_S.STARTING, _E.SHUTDOWN): _S.DEAD,
        (_S.IDLE, _E.CELL_BEGINS): _S.BUSY,
        (_S.IDLE, _E.RESTART): _S.RESTARTING,
        (_S.IDLE, _E.SHUTDOWN): _S.DEAD,
        (_S.BUSY, _E.CELL_ENDS): _S.IDLE,
        (_S.BUSY, _E.RESTART): _S.RESTARTING,
        (_S.BUSY, _E.SHUTDOWN): _S.DEAD,
        (_S.RESTARTING, _E.READY): _S.IDLE,
        (_S.RESTARTING, _E.SHUTDOWN): _S.DEAD,
    }
)
"""Every pair that is not here is illegal; nothing leaves ``dead``."""


def next_state(state: ExecutionState, event: KernelEvent) -> ExecutionState:
    """Return the state after ``event``.

    Raises:
        IllegalTransition: the table has no such pair.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"a kernel that is {state} has no {event!s}") from None
