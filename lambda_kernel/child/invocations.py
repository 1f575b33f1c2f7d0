"""``%invocations``: which container and which invocation ran each cell of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class

CONTAINER_VARIABLE = "LKG_CONTAINER_ID"
REQUEST_VARIABLE = "LKG_REQUEST_ID"
KEPT = 1000
"""Cells that the table goes back."""


@dataclass(frozen=True, slots=True)
class CellInvocation:
    """One line of the table."""

    cell: int
    container_id: str
    request_id: str

    @classmethod
    def here(cls, cell: int, environment: Mapping[str, str]) -> CellInvocation:
        """Return the line of the cell that this process runs."""
        return cls(
            cell, environment.get(CONTAINER_VARIABLE, ""), environment.get(REQUEST_VARIABLE, "")
        )


class Invocations(tuple[CellInvocation, ...]):
    """The table, shown as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [("cell", "container", "invocation")]
        rows += [(f"[{line.cell}]", line.container_id, line.request_id) for line in self]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )


@magics_class
class InvocationMagics(Magics):
    """Magics that tell where cells ran."""

    @line_magic
    def invocations(self, line: str) -> Invocations:
        """Show which container and which invocation ran each cell of this session."""
        shell: Any = self.shell
        return Invocations(shell.invocations)
