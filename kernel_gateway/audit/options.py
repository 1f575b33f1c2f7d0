"""The table ``[audit]`` of a gateway's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from kernel_gateway.errors import ConfigError
from kernel_gateway.retention import ObjectLock
from lambda_kernel.contract.schema import InvalidField, decode

_LOCK = re.compile(r"(GOVERNANCE|COMPLIANCE):([1-9][0-9]{0,4})d")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What is kept of what ran, and for how long.

    Attributes:
        required: a cell that cannot be recorded is not run.
        redact: patterns by name; what they match does not get into the journal.
        removable: what cells print is kept outside of the signed entries, so that it can be
            removed later.
        retention_days: a journal is deleted so long after its kernel has ended; None = never.
        object_lock: ``GOVERNANCE:<days>d`` or ``COMPLIANCE:<days>d``: nobody deletes or replaces
            what was written before; None = what the bucket itself says.
    """

    required: bool = True
    redact: dict[str, str] = field(default_factory=dict)
    removable: bool = False
    retention_days: int | None = None
    object_lock: str | None = None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> AuditOptions:
        """Return the options in a table.

        Raises:
            ConfigError: one is unknown, or cannot be used.
        """
        found = dict(table)
        patterns = found.get("redact")
        if isinstance(patterns, list | tuple):
            found["redact"] = {f"{i}": pattern for i, pattern in enumerate(patterns, 1)}
        try:
            options = decode(cls, found, "audit")
        except InvalidField as problem:
            raise ConfigError(str(problem)) from problem
        if options.retention_days is not None and options.retention_days < 1:
            raise ConfigError("audit.retention_days: must be at least 1")
        if options.redact:
            # What a command that starts no gateway need not import.
            from kernel_gateway.audit.redaction import Redactor

            Redactor.of(options.redact, b"")
        options.lock  # noqa: B018  (looks at it)
        return options

    @property
    def lock(self) -> ObjectLock | None:
        """The lock of what is written (raises ConfigError)."""
        if self.object_lock is None:
            return None
        found = _LOCK.fullmatch(self.object_lock)
        if found is None:
            raise ConfigError(
                f"audit.object_lock {self.object_lock!r}: must be like GOVERNANCE:365d or "
                "COMPLIANCE:3650d"
            )
        mode: Literal["GOVERNANCE", "COMPLIANCE"] = (
            "GOVERNANCE" if found[1] == "GOVERNANCE" else "COMPLIANCE"
        )
        return ObjectLock(mode=mode, age=timedelta(days=int(found[2])))
