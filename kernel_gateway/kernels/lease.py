"""The lease of a gateway: how long one may trust its own, and when another's is over.

A kernel's record names the lease under which it is held, and is changed by compare-and-set only.
One lease serves all kernels of a gateway: renewing it costs one request, however many they are.
No clock is ever compared with another machine's: a holder counts from before it wrote, an observer
from after it read, each on its own clock.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from lambda_kernel.contract.schema import InvalidField, decode, encode

SCHEMA = 1
MAX_DURATION_S = 3600.0
TRUSTED_PART = 0.8
"""What a holder uses of the duration; the rest is for clocks that run at different speeds."""
RENEWALS_PER_DURATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Who this gateway is to the others.

    Attributes:
        replica_id: no two gateways that run at once have the same.
        url: where the others reach it; None = they cannot.
        lease_s: after so long without a sign of it the others take over its kernels.
    """

    replica_id: str = "gateway"
    url: str | None = None
    lease_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a gateway writes of itself; every renewal changes it, and so its ETag.

    Attributes:
        schema: version of this form.
        lease_id: drawn for this lease; records of kernels name it.
        replica_id: of the gateway; the next process of the same gateway has the same.
        url: where other gateways reach it; None = they cannot.
        duration_s: so long nobody else takes what it holds.
        renewal: counts the renewals.
        ended: it is over, whatever its holder believes.
    """

    schema: int = SCHEMA
    lease_id: str
    replica_id: str
    url: str | None
    duration_s: float
    renewal: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise InvalidField("lease.schema", f"must be {SCHEMA}")
        if not 0 < self.duration_s <= MAX_DURATION_S:
            raise InvalidField("lease.duration_s", f"must be above 0, up to {MAX_DURATION_S:g}")

    def to_bytes(self) -> bytes:
        """Return the stored form, JSON."""
        return json.dumps(encode(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Lease:
        """Return the lease in ``stored`` (raises InvalidField)."""
        try:
            data: Any = json.loads(stored)
        except (ValueError, RecursionError):
            raise InvalidField("lease", "is not JSON") from None
        return decode(cls, data, "lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLease:
    """A gateway's own lease.

    Attributes:
        lease: as it was written last.
        etag: of that.
        good_until_s: on this machine's clock; after it nothing may be begun.
    """

    lease: Lease
    etag: str
    good_until_s: float

    @classmethod
    def written(cls, lease: Lease, etag: str, *, asked_s: float) -> OwnLease:
        """Return the lease that a write begun at ``asked_s`` has stored."""
        return cls(lease=lease, etag=etag, good_until_s=asked_s + lease.duration_s * TRUSTED_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Another gateway's lease, as it was seen.

    Attributes:
        lease: what it says.
        etag: of that.
        since_s: when it was seen first, on this machine's clock.
    """

    lease: Lease
    etag: str
    since_s: float

    def next(self, lease: Lease, etag: str, *, now_s: float) -> Sighting:
        """Return what is known after it was read again; ``now_s`` is after the answer came."""
        return self if etag == self.etag else Sighting(lease=lease, etag=etag, since_s=now_s)

    def left_s(self, now_s: float) -> float:
        """Return the seconds for which nobody may take what it holds; 0 = it is over."""
        if self.lease.ended:
            return 0.0
        return max(0.0, self.since_s + self.lease.duration_s - now_s)


def clock_s() -> float:
    """Return the time of a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
