"""A HOME brought to what a manifest says: what is right stays, the rest comes from packs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import home_packs, home_tree
from lambda_kernel.serving.home_manifest import HomeEntry
from lambda_kernel.serving.home_packs import AT_ONCE, Piece
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool
from lambda_kernel.serving.parking import ParkedHome

Files = Mapping[str, HomeEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the bytes of a scope's HOME come from."""

    store: ObjectStore
    bucket: str
    scope: Scope
    pool: Pool
    parked: ParkedHome | None = None


def bring_to(
    top: str,
    wanted: Files,
    source: Source,
    on_disk: Iterable[str] = (),
    current: Files | None = None,
) -> None:
    """Make ``top`` hold exactly what is wanted.

    Args:
        top: the HOME.
        wanted: what it shall hold.
        source: of what is missing.
        on_disk: every path that is there now.
        current: of these, what is known to be as described.

    Raises:
        StorageUnavailable: bytes are missing, or not those that were saved.
        OSError: there is no room.
    """
    present = set(on_disk)
    known = {p: e for p, e in (current or {}).items() if p in present}
    kept = {p for p, e in known.items() if e.holds_same(wanted.get(p))}
    home_tree.reduce(top, present - kept, wanted)
    home_tree.make_folders(top, wanted)
    for path in kept:
        if wanted[path].kind == "file" and not wanted[path].is_same(known[path]):
            home_tree.settle_again(top, path, wanted[path])
    files = {p: e for p, e in wanted.items() if p not in kept and e.kind == "file"}
    _write_files(top, files, source)
    for path, entry in wanted.items():
        if entry.kind == "symlink" and path not in kept:
            home_tree.make_symlink(top, path, entry)
    home_tree.settle_folders(top, wanted)


def _write_files(top: str, files: Files, source: Source) -> None:
    stored: dict[str, HomeEntry] = {}
    for path, entry in files.items():
        if not entry.extents:
            _write_whole(top, path, entry, b"")
        elif source.parked is None or not _from_parked(top, path, entry, source.parked):
            stored[path] = entry
    scattered = {path: entry for path, entry in stored.items() if len(entry.extents) > 1}
    for path in scattered:
        os.close(home_tree.create(top, path))
    waiting: list[Future[tuple[None, int]]] = []
    try:
        for pieces in home_packs.pieces_by_pack(stored.items()).values():
            for run in home_packs.spans(pieces):
                if len(waiting) >= AT_ONCE:
                    source.pool.wait(waiting.pop(0))
                waiting.append(source.pool.start(_write_run, top, run, files, source))
    finally:
        source.pool.wait_all(waiting)
    for path, entry in scattered.items():
        home_tree.check_file(top, path, entry)
        home_tree.settle_again(top, path, entry)


def _write_run(top: str, run: list[Piece], files: Files, source: Source) -> None:
    for piece, body in home_packs.read_span(source.store, source.bucket, source.scope, run):
        entry = files[piece.path]
        if len(entry.extents) == 1:
            _write_whole(top, piece.path, entry, body)
        else:
            home_tree.write_piece(top, piece.path, piece.position, body)


def _write_whole(top: str, path: str, entry: HomeEntry, body: bytes | memoryview) -> None:
    if hashlib.sha256(body).hexdigest() != entry.digest:
        raise home_tree.wrong_digest()
    descriptor = home_tree.create(top, path)
    try:
        home_tree.write_all(descriptor, body)
        home_tree.settle_file(descriptor, entry)
    finally:
        os.close(descriptor)


def _from_parked(top: str, path: str, entry: HomeEntry, parked: ParkedHome) -> bool:
    if not parked.holds(entry.digest):
        return False
    descriptor = home_tree.create(top, path)
    try:
        parked.copy_to(descriptor, entry.digest)
        home_tree.settle_file(descriptor, entry)
    finally:
        os.close(descriptor)
    return True
