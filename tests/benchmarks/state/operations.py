"""The same operations for everybody: what a session holds, and the cell that is measured.

Only the standard library is used: peers read this file with an interpreter of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

ARRAY = "import numpy as np\na = np.arange(12_500_000.)"
FRAME = """
import numpy as np, pandas as pd
n = 3_600_000
df = pd.DataFrame({
    "key": pd.Series(["customer %010d" % i for i in range(n)]),
    "city": pd.Series(["somewhere %06d" % (i % 500_000) for i in range(n)]),
    "amount": np.arange(n, dtype=float), "tax": np.arange(n, dtype=float),
    "count": np.arange(n),
})
del n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One line of the table.

    Attributes:
        name: as printed.
        goal: as printed.
        setup: cells that make the session.
        cell: what is measured.
        bare_pagemap: also measured without the page table.
    """

    name: str
    goal: str
    setup: tuple[str, ...]
    cell: str
    bare_pagemap: bool = False


def small_variables(count: int, first: int = 0) -> tuple[str, ...]:
    """Return cells that make ``count`` lists of one number."""
    return tuple(
        "\n".join(f"v{i} = [{i}]" for i in range(start, min(start + 1000, first + count)))
        for start in range(first, first + count, 1000)
    )


OPERATIONS = (
    Operation(name="1+1 in an empty session", goal="", setup=(), cell="1+1"),
    Operation(
        name="1+1 beside an unread array of 100 MB",
        goal="state <= 5 ms, 0 bytes",
        setup=(ARRAY,),
        cell="1+1",
    ),
    Operation(
        name="1+1 beside 1,000 small variables",
        goal="state <= 5 ms, 0 bytes",
        setup=small_variables(1000),
        cell="1+1",
    ),
    Operation(
        name="one column of a frame of 350 MB (2 of strings) summed",
        goal="<= 15 ms, 0 bytes written",
        setup=(FRAME,),
        cell="float(df['amount'].sum())",
    ),
    Operation(
        name="the frame's shape read",
        goal="<= 15 ms, 0 bytes written",
        setup=(FRAME,),
        cell="df.shape",
    ),
    Operation(
        name="one element of an array of 100 MB changed",
        goal="<= 20 ms (35 without pagemap), <= 1 chunk",
        setup=(ARRAY,),
        cell="a[5] += 1",
        bare_pagemap=True,
    ),
    Operation(
        name="a dict of 1e6 elements read",
        goal="<= 350 ms",
        setup=("d = {str(i): i for i in range(1_000_000)}",),
        cell="len(d)",
    ),
    Operation(
        name="a list of 1e6 elements read",
        goal="<= 200 ms",
        setup=("l = list(range(1_000_000))",),
        cell="len(l)",
    ),
    Operation(
        name="1,000 small variables, one changed",
        goal="<= 25 ms, <= 2 PUTs",
        setup=small_variables(1000),
        cell="v7[0] += 1",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCost:
    """What one cell cost.

    Attributes:
        restore_ms, run_ms, save_ms: CPU time.
        wall_ms: of the three together.
        ahead_ms: CPU time of what the process did while it waited for its cell.
        asked_bytes: of objects that were mapped.
        written_bytes: of objects, the description of the session included.
    """

    restore_ms: float
    run_ms: float
    save_ms: float
    wall_ms: float
    ahead_ms: float
    asked_bytes: int
    written_bytes: int

    @property
    def cpu_ms(self) -> float:
        """CPU time of restore, run and save."""
        return self.restore_ms + self.run_ms + self.save_ms
