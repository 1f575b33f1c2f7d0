"""Whoever trusts its lease has it, however the clocks of two machines differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.kernels.lease import Lease, OwnLease, Sighting
from lambda_kernel.contract.schema import InvalidField

LEASE = Lease(lease_id="l1", replica_id="r1", url="http://a:1", duration_s=15.0)
moments = st.floats(0, 1e6)
waits = st.floats(0, 1e4)
rates = st.floats(0.95, 1.05)


def test_what_is_stored_is_read_again() -> None:
    assert Lease.from_bytes(LEASE.to_bytes()) == LEASE


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 3601.0, float("nan")])
def test_a_duration_that_nobody_means_is_refused(duration_s: float) -> None:
    with pytest.raises(InvalidField, match="duration_s"):
        Lease(lease_id="l", replica_id="r", url=None, duration_s=duration_s)


@pytest.mark.parametrize("stored", [b"", b"[]", b"{}", b'{"schema": 2}', b"\xff"])
def test_what_is_no_lease_is_refused(stored: bytes) -> None:
    with pytest.raises(InvalidField):
        Lease.from_bytes(stored)


def test_a_lease_that_changes_is_counted_anew() -> None:
    seen = Sighting(lease=LEASE, etag="1", since_s=100.0)

    assert seen.next(LEASE, "1", now_s=110.0).left_s(110.0) == 5.0
    assert seen.next(LEASE, "2", now_s=110.0).left_s(110.0) == 15.0
    assert seen.left_s(1000.0) == 0.0


@given(
    asked=moments,
    to_write=waits,
    to_sight=waits,
    holder=st.tuples(moments, rates),
    observer=st.tuples(moments, rates),
    later=waits,
)
def test_nobody_sees_a_lease_as_over_while_its_holder_trusts_it(
    asked: float,
    to_write: float,
    to_sight: float,
    holder: tuple[float, float],
    observer: tuple[float, float],
    later: float,
) -> None:
    """Whatever the clocks show, as long as they run at nearly the same speed."""

    def shown(clock: tuple[float, float], moment: float) -> float:
        return clock[0] + clock[1] * (moment - asked)

    own = OwnLease.written(LEASE, "1", asked_s=shown(holder, asked))
    # It can be seen only once it is written, and that is after it was asked for.
    sighted = asked + to_write + to_sight
    seen = Sighting(lease=LEASE, etag="1", since_s=shown(observer, sighted))
    moment = sighted + later

    trusted = shown(holder, moment) < own.good_until_s
    assert not (trusted and seen.left_s(shown(observer, moment)) == 0)
