"""How a journal keeps what it is given, beside by whom it is signed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.options import AuditOptions
from kernel_gateway.audit.redaction import Redactor
from kernel_gateway.retention import ObjectLock


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The same for all journals of a gateway.

    Attributes:
        is_required: a cell that cannot be recorded is not run.
        redactor: what it replaces is not written.
        is_removable: what a cell prints is an object of its own, whatever its size.
        lock: of every object that is written; None = what the bucket itself says.
    """

    is_required: bool = True
    redactor: Redactor = field(default_factory=Redactor)
    is_removable: bool = False
    lock: ObjectLock | None = None


def open_keeping(state_dir: Path, options: AuditOptions) -> Keeping:
    """Return how the journals of a gateway are kept.

    Args:
        state_dir: of the gateway; a key is made there where patterns are configured.
        options: as they are configured.

    Raises:
        ConfigError: they cannot be used.
    """
    key = KeyFolder(state_dir).redaction_key() if options.redact else b""
    return Keeping(
        is_required=options.required,
        redactor=Redactor.of(options.redact, key),
        is_removable=options.removable,
        lock=options.lock,
    )
