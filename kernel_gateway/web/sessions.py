"""Notebook sessions: which document of a caller belongs to which of its kernels."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from kernel_gateway.errors import NotFound
from kernel_gateway.kernels.identity import Identity

MAX_SESSIONS_COUNT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookSession:
    """One document and its kernel.

    Attributes:
        session_id: ours, a UUID.
        owner: who made it; nobody else sees it, agents' sessions are seen by their user.
        path: the document's path as the client names it.
        name: likewise its name.
        type: ``notebook``, ``console``, ``file``.
        kernel_id: of a kernel of the owner.
    """

    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    owner: Identity
    path: str
    name: str
    type: str
    kernel_id: str


@dataclass(slots=True)
class NotebookSessions:
    """The sessions of this gateway process, in memory as jupyter_server has them by default."""

    _by_id: dict[str, NotebookSession] = field(default_factory=dict)

    def add(self, session: NotebookSession) -> NotebookSession:
        """Keep ``session`` and return it; the oldest goes where there are too many."""
        while len(self._by_id) >= MAX_SESSIONS_COUNT:
            del self._by_id[next(iter(self._by_id))]
        self._by_id[session.session_id] = session
        return session

    def get(self, session_id: str) -> NotebookSession:
        """Return the session (raises NotFound)."""
        try:
            return self._by_id[session_id]
        except KeyError:
            raise NotFound(f"Session not found: {session_id}") from None

    def find(self, owner: Identity, path: str) -> NotebookSession | None:
        """Return the owner's session for ``path``, or None."""
        for session in self._by_id.values():
            if session.owner == owner and session.path == path:
                return session
        return None

    def uses(self, kernel_id: str) -> bool:
        """Return whether a session has this kernel."""
        return any(session.kernel_id == kernel_id for session in self._by_id.values())

    def all(self) -> list[NotebookSession]:
        """Return every session, oldest first."""
        return list(self._by_id.values())

    def update(self, session_id: str, **changes: str) -> NotebookSession:
        """Change fields of a session and return it (raises NotFound)."""
        changed = replace(self.get(session_id), **changes)  # type: ignore[arg-type]
        self._by_id[session_id] = changed
        return changed

    def remove(self, session_id: str) -> None:
        """Forget the session; nothing happens where there is none."""
        self._by_id.pop(session_id, None)
