"""Which packages an image has, from the names of their metadata: nothing of them is run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import site
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".dist-info"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageList:
    """The packages of an image.

    Attributes:
        stored: ``name-version`` each, JSON in ASCII.
        digest: SHA-256 (hex) of that.
    """

    stored: bytes
    digest: str

    @classmethod
    def found(cls, folders: Iterable[str] | None = None) -> PackageList:
        """Return the packages below folders; None = where Python looks for the image's own."""
        names: set[str] = set()
        for folder in site.getsitepackages() if folders is None else folders:
            with contextlib.suppress(OSError):
                names.update(p.name for p in Path(folder).iterdir() if p.name.endswith(_SUFFIX))
        listed = sorted(name.removesuffix(_SUFFIX) for name in names)
        stored = json.dumps({"packages": listed}, separators=(",", ":")).encode("ascii")
        return cls(stored=stored, digest=hashlib.sha256(stored).hexdigest())
