"""What ends a cell from outside."""

from __future__ import annotations

from dataclasses import dataclass

from lambda_kernel.serving.control import Orders

REAP_PATIENCE_S = 3.0
"""For a zygote that was woken: on a busy machine the end of namespaces takes its time."""
FORK_WAIT_S = 20.0
"""For the zygote to fork; it may be busy with an import of some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLimitsInForce:
    """What ends a cell from outside.

    Attributes:
        deadline: when it is interrupted, on the clock.
        kill_by: when it is killed, if it is not over by then.
        timeout_s: the time it had, for people.
        memory_bytes: of its processes together.
        orders: what the gateway orders meanwhile.
        fork_wait_s: how long the zygote may take to fork.
        reap_patience_s: how long it may take to report that its child is dead, once it was woken.
    """

    deadline: float
    kill_by: float
    timeout_s: float
    memory_bytes: int
    orders: Orders
    fork_wait_s: float = FORK_WAIT_S
    reap_patience_s: float = REAP_PATIENCE_S
