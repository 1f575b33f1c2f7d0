"""What a lost cell had stored: no commit names it, so it is no part of the session.

A serving process that is killed between its uploads and its commit cannot undo them. Every object
carries the stamp of the cell that stored it; the next cell of the same kernel finds those that did
not commit, and puts back what the last commit names. A deletion has nothing to carry a stamp: what
a cell is about to delete stands in an object of its own until the cell has committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.serving.errors import ObjectNotFound
from lambda_kernel.serving.objects import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The session whose leftovers are looked for.

    Attributes:
        store: S3.
        workspaces, state: buckets.
        invocation: the cell that is about to run.
        parent: the commit it starts from.
        tags: of everything that is stored.
    """

    store: ObjectStore
    workspaces: str
    state: str
    invocation: Invocation
    parent: Commit | None
    tags: Mapping[str, str] = field(default_factory=dict)


def stamp(invocation: Invocation) -> str:
    """Return the stamp of what this cell stores."""
    return f"{invocation.kernel_id}/{invocation.seq}/{invocation.request_id}"


def undo(session: Session, stamps: Mapping[str, str]) -> list[str]:
    """Put back what cells of this kernel stored that never committed.

    Args:
        session: see there.
        stamps: of the files of the workspace, by path.

    Returns:
        The paths that were put back: restored, or deleted where the last commit has none.

    Raises:
        StorageUnavailable: it could not be done.
    """
    return sorted({*_undo_stored(session, stamps), *_undo_deleted(session, stamps)})


def announce(session: Session, versions: Mapping[str, str | None]) -> None:
    """Note what a cell is about to delete: version by path; folders end in ``/``."""
    session.store.put(session.state, _own_deletions(session), json.dumps(versions).encode("ascii"))


def withdraw(session: Session) -> None:
    """Forget what ``announce`` noted: the cell has committed."""
    session.store.delete(session.state, _own_deletions(session))


def _own_deletions(session: Session) -> str:
    invocation = session.invocation
    return keys.deletions_key(invocation.scope, invocation.kernel_id, invocation.seq)


def _undo_deleted(session: Session, present: Mapping[str, str]) -> list[str]:
    invocation, parent = session.invocation, session.parent
    done = 0 if parent is None or parent.kernel_id != invocation.kernel_id else parent.seq
    if invocation.seq <= done + 1:
        # Nothing was lost in between.
        return []
    prefix = keys.deletions_prefix(invocation.scope, invocation.kernel_id)
    after = keys.deletions_key(invocation.scope, invocation.kernel_id, done)
    restored = []
    for listed in list(session.store.list(session.state, prefix, after=after)):
        seq = listed.key.removeprefix(prefix)
        if parent is None and seq.isdecimal() and _is_commit(session, int(seq)):
            continue
        for path, version_id in json.loads(session.store.get(session.state, listed.key)).items():
            key = invocation.write_prefix + path
            if path in present:
                continue
            if path.endswith("/"):
                session.store.put(session.workspaces, key, b"", tags=session.tags)
            elif version_id is not None:
                session.store.restore(session.workspaces, key, version_id, tags=session.tags)
            else:
                continue
            restored.append(path)
        session.store.delete(session.state, listed.key)
    return restored


def _is_commit(session: Session, seq: int) -> bool:
    invocation = session.invocation
    key = keys.commit_key(invocation.scope, invocation.kernel_id, seq)
    try:
        return not Commit.from_bytes(session.store.get(session.state, key)).void
    except ObjectNotFound:
        return False
    except InvalidField:
        return True


def _undo_stored(session: Session, stamps: Mapping[str, str]) -> list[str]:
    lost = _lost(session, stamps)
    root = session.invocation.write_prefix
    files = session.parent.files if session.parent is not None else ()
    versions = {file.key: file.version_id for file in files}
    for path in lost:
        version_id = versions.get(root + path)
        if version_id is not None:
            session.store.restore(session.workspaces, root + path, version_id, tags=session.tags)
        else:
            session.store.delete(session.workspaces, root + path)
    return lost


def _lost(session: Session, stamps: Mapping[str, str]) -> list[str]:
    kernel_id, parent = session.invocation.kernel_id, session.parent
    cells: dict[tuple[int, str], list[str]] = {}
    for path, stamped in stamps.items():
        name, _, rest = stamped.partition("/")
        number, _, request_id = rest.partition("/")
        if name == kernel_id and number.isdecimal():
            cells.setdefault((int(number), request_id), []).append(path)
    lost: list[str] = []
    # Each cell looks here: what is older than a committed one has been looked at.
    for (seq, request_id), paths in sorted(cells.items(), reverse=True):
        if parent is not None and seq <= parent.seq:
            break
        if _committed(session, seq, request_id):
            break
        lost += paths
    return lost


def _committed(session: Session, seq: int, request_id: str) -> bool:
    invocation = session.invocation
    key = keys.commit_key(invocation.scope, invocation.kernel_id, seq)
    try:
        commit = Commit.from_bytes(session.store.get(session.state, key))
    except ObjectNotFound:
        return False
    except InvalidField:
        return True
    return not commit.void and commit.request_id == request_id
