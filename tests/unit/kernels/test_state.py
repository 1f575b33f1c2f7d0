"""The table of kernel states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.kernels.state import (
    TRANSITIONS,
    ExecutionState,
    IllegalTransition,
    KernelEvent,
    next_state,
)

S, E = ExecutionState, KernelEvent


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (S.STARTING, E.READY, S.IDLE),
        (S.IDLE, E.CELL_BEGINS, S.BUSY),
        (S.BUSY, E.CELL_ENDS, S.IDLE),
        (S.BUSY, E.RESTART, S.RESTARTING),
        (S.IDLE, E.RESTART, S.RESTARTING),
        (S.RESTARTING, E.READY, S.IDLE),
    ],
)
def test_an_event_leads_to_its_state(
    state: ExecutionState, event: KernelEvent, after: ExecutionState
) -> None:
    assert next_state(state, event) is after


@given(st.sampled_from(S), st.sampled_from(E))
def test_what_the_table_does_not_name_is_illegal(state: ExecutionState, event: KernelEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, event)


@given(st.lists(st.sampled_from(E)))
def test_whatever_happens_a_kernel_can_be_shut_down_and_then_stays_dead(
    events: list[KernelEvent],
) -> None:
    state = S.STARTING
    for event in events:
        if (state, event) in TRANSITIONS:
            state = next_state(state, event)
    if state is not S.DEAD:
        state = next_state(state, E.SHUTDOWN)
    assert state is S.DEAD
    assert not [pair for pair in TRANSITIONS if pair[0] is S.DEAD]


def test_every_state_but_the_first_is_reached() -> None:
    assert set(TRANSITIONS.values()) == set(S) - {S.STARTING}
