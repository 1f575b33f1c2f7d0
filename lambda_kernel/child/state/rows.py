"""What an index says of one component: a list, so that ten thousand of them are read fast."""

from __future__ import annotations

from typing import Any

Row = list[Any]

NUMBER, NAMES, ORDER, DEFINITIONS, USES, PICKLE, BUFFERS, SIZE, CELL = range(9)
"""Places in a row; see ``index.Component``."""
