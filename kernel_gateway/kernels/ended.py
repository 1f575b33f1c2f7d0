"""Kernels that ended lately: whose they were, and why they ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_gateway.kernels.identity import Identity

REMEMBERED_COUNT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedKernel:
    """A kernel that is no more.

    Attributes:
        kernel_id: that it had.
        owner: whose it was; only who may see the owner's kernels learns more than that it is gone.
        reason: why it ended, as in "it was …".
    """

    kernel_id: str
    owner: Identity
    reason: str

    def __str__(self) -> str:
        return f"Kernel does not exist any more: {self.kernel_id}: it was {self.reason}"


@dataclass(slots=True)
class EndedKernels:
    """The latest of this gateway process, in memory."""

    _by_id: dict[str, EndedKernel] = field(default_factory=dict)

    def add(self, ended: EndedKernel) -> None:
        """Remember it; the oldest is forgotten where there are too many."""
        self._by_id[ended.kernel_id] = ended
        while len(self._by_id) > REMEMBERED_COUNT:
            del self._by_id[next(iter(self._by_id))]

    def find(self, kernel_id: str) -> EndedKernel | None:
        """Return what is known of it, None where nothing is."""
        return self._by_id.get(kernel_id)
