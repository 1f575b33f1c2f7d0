"""How live objects (locks, connections, open files) come back in another process.

``reduce_live`` is asked for every object whose type has no pickle of its own; one small file per
kind, imported only when an object of that kind is stored. Users add their own: see
``lambda_kernel.rehydrators``.
"""

from lambda_kernel.child.rehydrators import places
from lambda_kernel.child.rehydrators.registry import (
    NotCarried,
    begin_process,
    reduce_live,
    refusal_of,
    rehydrator,
)

__all__ = ["NotCarried", "begin_cell", "reduce_live", "refusal_of", "rehydrator"]


def begin_cell(workdir: str, home: str) -> None:
    """Say which folders outlive the cell that this process runs."""
    begin_process()
    places.keep(workdir, home)
