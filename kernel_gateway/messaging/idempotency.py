"""By what a request that is sent again is known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """The key of a request and its retries.

    Attributes:
        key: as the caller chose it.
        fingerprint: SHA-256 (hex) of what is asked for: another request must not have this key;
            "" in an entry that is redacted, as a short secret could be guessed from it.
    """

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str, asked: dict[str, Any]) -> Idempotency:
        """Return the key ``key`` of the request for ``asked``."""
        text = json.dumps(asked, sort_keys=True)
        return cls(key=key, fingerprint=hashlib.sha256(text.encode()).hexdigest())
