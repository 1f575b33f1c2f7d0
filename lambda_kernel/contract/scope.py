"""Whose HOME and whose state a cell sees."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from lambda_kernel.contract import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The invoking agent, else the owning user, else one execution.

    Attributes:
        user: the owner; always present.
        agent: the invoking agent of that user, or None.
        execution: set only where every cell gets an empty HOME (``LAMBDA_KERNEL_SCOPE=execution``):
            the kernel id, so that the kernel's own variables stay reachable from cell to cell.
    """

    user: str
    agent: str | None = None
    execution: str | None = None

    def __post_init__(self) -> None:
        names.check_user(self.user, "scope.user")
        if self.agent is not None:
            names.check_agent(self.agent, "scope.agent")
        if self.execution is not None:
            names.check_kernel_id(self.execution, "scope.execution")

    @property
    def hash(self) -> str:
        """64 hex digits; two scopes share it only if all three parts are equal.

        Source: storage.md, "Scope".
        """
        parts = json.dumps(["v1", self.user, self.agent or "", self.execution or ""])
        return hashlib.sha256(parts.encode()).hexdigest()

    @property
    def home(self) -> str:
        """The absolute path of this scope's HOME inside a container."""
        return f"/tmp/home-{self.hash[:32]}"  # noqa: S108  (product.md 2 names this path)

    @property
    def home_is_kept(self) -> bool:
        """Whether HOME is saved after a cell and restored before the next."""
        return self.execution is None
