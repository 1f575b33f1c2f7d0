"""``numpy.vectorize``: carried without the ufunc that it keeps, which no process can store."""

from __future__ import annotations

import copyreg
from typing import Any


def reduce_vectorize(function: Any) -> Any:
    """Let it make its ufunc again when it is called."""
    attributes = vars(function) | {"_ufunc": {}}
    return copyreg.__newobj__, (type(function),), attributes  # type: ignore[attr-defined]
