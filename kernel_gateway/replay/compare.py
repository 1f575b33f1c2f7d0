"""A recorded cell held against its replay."""

from __future__ import annotations

from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import Verdict


def compared(pair: CellPair, rules: Rules) -> Verdict:
    """Return what the comparison says of a cell."""
    raise NotImplementedError
