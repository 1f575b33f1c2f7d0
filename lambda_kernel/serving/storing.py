"""The working directory after a cell: what changed is stored, or undone."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from lambda_kernel.contract import names
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.outcome import FileChange
from lambda_kernel.serving import manifest, trees
from lambda_kernel.serving.cache import DownloadCache, hashed, metadata_of, state_of
from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable
from lambda_kernel.serving.governed import GOVERNED, GovernedScan, is_governed
from lambda_kernel.serving.manifest import Changes, FileState, Tree
from lambda_kernel.serving.mirror import (
    Mirrored,
    MirrorPlan,
    list_stored,
    refusals,
    some,
)
from lambda_kernel.serving.objects import DELETE_KEYS, ObjectStore, StoredObject
from lambda_kernel.serving.parallel import Pool

CONDITIONAL_UPLOADS = 100
"""Of more files a listing tells which were overtaken: a condition makes a PUT dearer by half."""
INLINE_BODY_BYTES = 1024 * 1024
BLOCK_BYTES = 512
"""Unit of ``st_blocks``."""


@dataclass(slots=True)
class Stored:
    """What was stored after the cell; filled as the uploads succeed.

    Attributes:
        changes: for the outcome.
        versions: path to the version id of each file that was uploaded.
        overtaken: paths that somebody else had changed since they were mirrored, with the version
            that this cell's covers.
    """

    changes: list[FileChange] = field(default_factory=list)
    versions: dict[str, str | None] = field(default_factory=dict)
    overtaken: dict[str, str | None] = field(default_factory=dict)

    @property
    def notices(self) -> list[str]:
        """What to tell of it."""
        if not self.overtaken:
            return []
        return [
            "changed by somebody else while the cell ran; the cell's version is in force, the "
            "other is kept as an older version: "
            + some(f"{path!r} ({version})" for path, version in sorted(self.overtaken.items()))
        ]


def scan(plan: MirrorPlan, mirrored: Mirrored, cache: DownloadCache) -> tuple[Tree, list[str]]:
    """Return the working directory as the cell left it, every file hashed, and notices.

    Contents are compared, not times: on tmpfs a write through a shared mapping changes no time.
    A name that is one of several of a file is a file of its own here.
    """
    files: dict[str, FileState] = {}
    folders: set[str] = set()
    refused: list[str] = []
    skipped: list[str] = []
    with_holes: list[tuple[int, str]] = []
    governed = GovernedScan(plan.governed or "", mirrored.governed, cache)
    for found in trees.walk(plan.workdir):
        if is_governed(found.path):
            governed.see(found)
            continue
        is_folder = stat.S_ISDIR(found.status.st_mode)
        problem = names.file_key_problem(found.path, is_folder=is_folder)
        if problem is not None or not found.walked:
            refused.append(f"{found.path!r} {problem}")
        elif is_folder:
            folders.add(found.path)
        elif not stat.S_ISREG(found.status.st_mode):
            skipped.append(repr(found.path))
        elif found.status.st_blocks * BLOCK_BYTES < found.status.st_size:
            with_holes.append((found.status.st_size, found.path))
        else:
            files[found.path] = state_of(found)
            _vouch(plan, mirrored, cache, found.path, found.status.st_ino, files[found.path])
    too_large = _scan_holes(plan, mirrored, files, with_holes)
    notices = refusals(refused, "are not stored")
    if skipped:
        notices.append(f"symlinks, FIFOs, sockets and devices are not stored: {some(skipped)}")
    changed = governed.changed()
    if changed:
        notices.append(f"changes under {GOVERNED}/ are not stored: {some(changed)}")
    if too_large:
        notices.append(f"files with holes that the workspace has no room for: {some(too_large)}")
    return Tree(files=files, folders=frozenset(folders)), notices


def store_changes(
    store: ObjectStore,
    plan: MirrorPlan,
    mirrored: Mirrored,
    changes: Changes,
    cache: DownloadCache,
    pool: Pool,
    stored: Stored,
) -> None:
    """Upload, then delete; ``stored`` tells what was done, also after an exception.

    Deletions come last: they carry no stamp by which those of a lost cell could be told.
    """
    gone = [*changes.deletions, *(f"{path}/" for path in changes.removed_folders)]
    conditional = len(changes.uploads) <= CONDITIONAL_UPLOADS
    checked = set(changes.deletions)
    if not conditional:
        checked |= {change.path for change in changes.uploads}
    # What a replayed cell found, nobody else changes.
    if checked and plan.source is None:
        _find_overtaken(store, plan, mirrored, checked, cache, pool, stored)

    def upload(change: manifest.Upload) -> None:
        key = plan.root + change.path
        state = change.state
        with trees.reading_beneath(plan.workdir, change.path) as descriptor:
            try:
                result = _put_file(
                    store, plan, key, descriptor, state, _condition(plan, mirrored, change)
                )
            except PreconditionFailed:
                stored.overtaken[change.path] = _version(store, plan, key)
                os.lseek(descriptor, 0, os.SEEK_SET)
                result = _put_file(store, plan, key, descriptor, state, Condition())
        stored.versions[change.path] = result.version_id
        stored.changes.append(
            FileChange(
                path=change.path,
                change=change.change,
                key=key,
                version_id=result.version_id,
                digest=state.digest,
                size_bytes=state.size_bytes,
            )
        )
        cache.adopt(key, os.path.join(plan.workdir, change.path), state, result, plan.cell)

    def make_folder(path: str) -> None:
        key = f"{plan.root}{path}/"
        result = store.put(plan.bucket, key, b"", tags=plan.tags)
        stored.changes.append(
            FileChange(path=f"{path}/", change="created", key=key, version_id=result.version_id)
        )

    tasks = [pool.start(upload, change) for change in changes.uploads]
    tasks += [pool.start(make_folder, path) for path in changes.new_folders]
    pool.wait_all(tasks)
    if gone:
        _delete(store, plan, gone, pool, stored)
    stored.changes.sort(key=lambda change: change.path)


def roll_back(
    store: ObjectStore, plan: MirrorPlan, mirrored: Mirrored, stored: Stored, pool: Pool
) -> list[str]:
    """Undo what was stored for a cell that did not commit; return the paths that stay changed.

    What the cell wrote remains as an older version of its key.
    """

    def undo(change: FileChange) -> str | None:
        old = stored.overtaken.get(change.path)
        if old is None and plan.source is None:
            old = mirrored.versions.get(change.path)
        try:
            if old is not None:
                store.restore(plan.bucket, change.key, old, tags=plan.tags)
            elif change.change == "created" or plan.source is not None:
                store.delete(plan.bucket, change.key)
            else:
                return change.path
        except StorageUnavailable:
            return change.path
        return None

    return [path for path in pool.map(undo, stored.changes) if path is not None]


def committed_files(
    plan: MirrorPlan, after: Tree, mirrored: Mirrored, stored: Stored
) -> tuple[CommittedFile, ...]:
    """Return every file of the working directory as the commit names it."""
    versions = {**mirrored.versions, **stored.versions}
    return tuple(
        CommittedFile(
            key=(plan.root if path in stored.versions else plan.origin) + path,
            version_id=versions.get(path),
            digest=state.digest,
            size_bytes=state.size_bytes,
        )
        for path, state in after.files.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must be there for a PUT to be the one that was meant."""

    if_absent: bool = False
    if_match: str | None = None


def _condition(plan: MirrorPlan, mirrored: Mirrored, change: manifest.Upload) -> Condition:
    if change.change == "created" or plan.source is not None:
        return Condition(if_absent=True)
    return Condition(if_match=mirrored.etags[change.path])


def _find_overtaken(
    store: ObjectStore,
    plan: MirrorPlan,
    mirrored: Mirrored,
    paths: set[str],
    cache: DownloadCache,
    pool: Pool,
    stored: Stored,
) -> None:
    now = list_stored(store, plan, pool, cache.bounds)
    for path in sorted(paths & now.files.keys()):
        if now.files[path].etag != mirrored.etags.get(path):
            stored.overtaken[path] = _version(store, plan, plan.root + path)


def _version(store: ObjectStore, plan: MirrorPlan, key: str) -> str | None:
    try:
        return store.head(plan.bucket, key).version_id
    except ObjectNotFound:
        return None


def _delete(
    store: ObjectStore, plan: MirrorPlan, paths: Sequence[str], pool: Pool, stored: Stored
) -> None:
    def delete(some_paths: Sequence[str]) -> list[str]:
        markers = store.delete_many(plan.bucket, [plan.root + path for path in some_paths])
        failed = []
        for path in some_paths:
            key = plan.root + path
            if key not in markers:
                failed.append(path)
                continue
            stored.changes.append(
                FileChange(path=path, change="deleted", key=key, version_id=markers[key])
            )
        return failed

    batches = [paths[i : i + DELETE_KEYS] for i in range(0, len(paths), DELETE_KEYS)]
    failed = [path for batch in pool.map(delete, batches) for path in batch]
    if failed:
        raise StorageUnavailable(f"S3 refused to delete {some(map(repr, failed))}")


def _put_file(
    store: ObjectStore,
    plan: MirrorPlan,
    key: str,
    descriptor: int,
    state: FileState,
    condition: Condition,
) -> StoredObject:
    with open(descriptor, "rb", closefd=False) as file:
        small = state.size_bytes <= INLINE_BODY_BYTES
        return store.put(
            plan.bucket,
            key,
            file.read() if small else file,
            size_bytes=state.size_bytes,
            sha256=state.digest,
            metadata=metadata_of(state, plan.cell),
            tags=plan.tags,
            if_absent=condition.if_absent,
            if_match=condition.if_match,
        )


def _scan_holes(
    plan: MirrorPlan,
    mirrored: Mirrored,
    files: dict[str, FileState],
    with_holes: list[tuple[int, str]],
) -> list[str]:
    """Hash files with holes, the smallest first, as far as the next cell could mirror them."""
    left = plan.max_bytes - sum(state.size_bytes for state in files.values())
    too_large: list[str] = []
    for size, path in sorted(with_holes):
        left -= size
        if left < 0:
            too_large.append(f"{path!r} ({size / 1e6:.1f} MB)")
            # What is stored under this name stays.
            if path in mirrored.tree.files:
                files[path] = mirrored.tree.files[path]
            continue
        with trees.reading_beneath(plan.workdir, path) as descriptor:
            files[path] = hashed(descriptor, os.fstat(descriptor))
    return too_large


def _vouch(
    plan: MirrorPlan,
    mirrored: Mirrored,
    cache: DownloadCache,
    path: str,
    inode: int,
    state: FileState,
) -> None:
    if mirrored.tree.files.get(path) == state:
        cache.vouch(plan.origin + path, inode, state)
