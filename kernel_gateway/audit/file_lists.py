"""Lists of many files, which stand beside a journal: what patterns match is in none of them."""

from __future__ import annotations

from kernel_gateway.audit.redaction import Redactor
from kernel_gateway.audit.references import KNOWN_COUNT, BlobShelf


class FileLists:
    """Stores them.

    Args:
        shelf: has objects stored.
        redactor: looks for patterns in names of files.
    """

    def __init__(self, shelf: BlobShelf, redactor: Redactor) -> None:
        self._shelf = shelf
        self._redactor = redactor
        self._written: dict[tuple[str, str], str] = {}

    def keep(self, kernel_id: str, digest: str, body: bytes | None) -> str | None:
        """Have a list stored and return the digest of what is stored, None where that is not known.

        Args:
            kernel_id: beside whose journal.
            digest: SHA-256 (hex) of the list as the serving process has it.
            body: the list; None = an earlier cell had it stored.
        """
        if self._redactor.is_idle:
            return digest if body is None else self._shelf.keep(kernel_id, body)
        place = kernel_id, digest
        if body is None:
            return self._written.get(place)
        written = self._shelf.keep(kernel_id, self._redactor.file_list(body))
        self._written[place] = written
        if len(self._written) > KNOWN_COUNT:
            del self._written[next(iter(self._written))]
        return written
