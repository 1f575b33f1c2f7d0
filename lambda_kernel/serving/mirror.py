"""The workspace as a working directory: mirrored in before a cell, what changed stored after it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lambda_kernel.contract import names
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.outcome import FileChange
from lambda_kernel.serving import manifest, trees
from lambda_kernel.serving.cache import CachedFile, DownloadCache, metadata_of, state_of
from lambda_kernel.serving.errors import StorageUnavailable, WorkspaceTooLarge
from lambda_kernel.serving.governed import GOVERNED, GovernedScan, is_governed
from lambda_kernel.serving.manifest import Changes, FileState, Tree
from lambda_kernel.serving.objects import ListedObject, ObjectStore, StoredObject
from lambda_kernel.serving.parallel import Pool

INLINE_BODY_BYTES = 1024 * 1024
SHOWN_NAMES = 10

ListingTask: TypeAlias = "Future[tuple[Listing, int]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """What a working directory mirrors.

    Attributes:
        bucket: the workspaces bucket.
        root: prefix with ``/``; files lie under it, and changed ones go back there.
        projects: only these folders of it; none = everything.
        governed: a prefix that is mirrored read-only at ``.governed``, or None.
        tags: tags of everything stored.
        workdir: the directory.
        max_bytes: what it may measure.
    """

    bucket: str
    root: str
    projects: tuple[str, ...] = ()
    governed: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    workdir: str
    max_bytes: int


@dataclass(slots=True)
class Listing:
    """What is stored, by path relative to the working directory."""

    files: dict[str, ListedObject] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Mirrored:
    """A working directory as it was before the cell.

    Attributes:
        tree: its files and stored folders.
        governed: what is under ``.governed``, which is never stored: path to file.
        versions: path to version id.
        notices: what could not be mirrored, for people.
    """

    tree: Tree = field(default_factory=Tree)
    governed: dict[str, FileState] = field(default_factory=dict)
    versions: dict[str, str | None] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Stored:
    """What was stored after the cell; filled as the uploads succeed.

    Attributes:
        changes: for the outcome.
        versions: path to the version id of each file that was uploaded.
    """

    changes: list[FileChange] = field(default_factory=list)
    versions: dict[str, str | None] = field(default_factory=dict)


def start_listing(store: ObjectStore, plan: MirrorPlan, pool: Pool) -> list[ListingTask]:
    """Begin to list the plan's prefixes, all at once; ``merged`` takes what they return."""
    return [
        pool.start(_list_prefix, store, plan.bucket, prefix, under)
        for prefix, under in _prefixes(plan)
    ]


def merged(parts: Iterable[Listing], plan: MirrorPlan) -> Listing:
    """Return what the plan's prefixes hold; names that no file may have are set aside."""
    whole = Listing()
    for part in parts:
        whole.files |= part.files
        whole.folders |= part.folders
        whole.refused += part.refused
    if plan.governed is not None:
        whole.folders.add(GOVERNED)
    return whole


def mirror_in(
    store: ObjectStore, plan: MirrorPlan, listing: Listing, cache: DownloadCache, pool: Pool
) -> Mirrored:
    """Fill the (new, empty) working directory from the listing.

    Raises:
        WorkspaceTooLarge: it does not fit.
    """
    sizes = {path: listed.size_bytes for path, listed in listing.files.items()}
    total = sum(sizes.values())
    if total > plan.max_bytes:
        raise _too_large(sizes, plan.max_bytes)
    mirrored = Mirrored(notices=_refusals(listing.refused, "are not mirrored"))
    blocked = {folder for path in listing.files for folder in manifest.parents(path)}
    blocked |= listing.folders
    for path in sorted(blocked & listing.files.keys()):
        del listing.files[path]
        mirrored.notices.append(f"{path!r} is stored as a file and as a folder: mirrored as folder")
    for folder in sorted(blocked):
        Path(plan.workdir, folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    found = {path: cache.find(listed) for path, listed in listing.files.items()}
    missing = [path for path, entry in found.items() if entry is None]
    cache.make_room(max(0, plan.max_bytes - sum(sizes[path] for path in missing)))

    def fetch(path: str) -> None:
        listed = listing.files[path]
        found[path] = cache.fetch(
            listed, lambda write: store.download(plan.bucket, listed.key, write)
        )

    try:
        pool.map(fetch, missing)
        for path, entry in found.items():
            if entry is not None:
                _link(cache, entry, plan, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _too_large(sizes, plan.max_bytes) from error
        raise
    entries = {path: entry for path, entry in found.items() if entry is not None}
    own = {path: entry for path, entry in entries.items() if not is_governed(path)}
    mirrored.governed = {p: e.state for p, e in entries.items() if is_governed(p)}
    mirrored.tree = Tree(
        files={path: entry.state for path, entry in own.items()},
        folders=frozenset(f for f in listing.folders if not is_governed(f)),
    )
    mirrored.versions = {path: entry.version_id for path, entry in own.items()}
    return mirrored


def scan(plan: MirrorPlan, mirrored: Mirrored, cache: DownloadCache) -> tuple[Tree, list[str]]:
    """Return the working directory as the cell left it, every file hashed, and notices.

    Contents are compared, not times: on tmpfs a write through a shared mapping changes no time.
    """
    files: dict[str, FileState] = {}
    folders: set[str] = set()
    refused: list[str] = []
    skipped: list[str] = []
    governed = GovernedScan(plan.governed or "", mirrored.governed, cache)
    for found in trees.walk(plan.workdir):
        if is_governed(found.path):
            governed.see(found)
            continue
        problem = names.file_key_problem(found.path)
        if problem is not None or not found.walked:
            refused.append(f"{found.path!r} {problem}")
        elif stat.S_ISDIR(found.status.st_mode):
            folders.add(found.path)
        elif not stat.S_ISREG(found.status.st_mode):
            skipped.append(repr(found.path))
        else:
            state = state_of(found)
            files[found.path] = state
            if mirrored.tree.files.get(found.path) == state:
                cache.vouch(plan.root + found.path, found.status.st_ino, state)
    notices = _refusals(refused, "are not stored")
    if skipped:
        notices.append(f"symlinks, FIFOs, sockets and devices are not stored: {_some(skipped)}")
    changed = governed.changed()
    if changed:
        notices.append(f"changes under {GOVERNED}/ are not stored: {_some(changed)}")
    return Tree(files=files, folders=frozenset(folders)), notices


def store_changes(
    store: ObjectStore,
    plan: MirrorPlan,
    changes: Changes,
    cache: DownloadCache,
    pool: Pool,
    stored: Stored,
) -> None:
    """Upload and delete in parallel; ``stored`` tells what was done, also after an exception."""

    def upload(change: manifest.Upload) -> None:
        key = plan.root + change.path
        state = change.state
        with trees.reading_beneath(plan.workdir, change.path) as descriptor:
            result = _put_file(store, plan, key, descriptor, state)
        cache_path = os.path.join(plan.workdir, change.path)
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
        cache.adopt(key, cache_path, state, result)

    def delete(path: str) -> None:
        key = plan.root + path
        version_id = store.delete(plan.bucket, key)
        stored.changes.append(
            FileChange(path=path, change="deleted", key=key, version_id=version_id)
        )

    def make_folder(path: str) -> None:
        key = f"{plan.root}{path}/"
        result = store.put(plan.bucket, key, b"", tags=plan.tags)
        stored.changes.append(
            FileChange(path=f"{path}/", change="created", key=key, version_id=result.version_id)
        )

    tasks = [pool.start(upload, change) for change in changes.uploads]
    tasks += [pool.start(delete, path) for path in changes.deletions]
    tasks += [pool.start(make_folder, path) for path in changes.new_folders]
    tasks += [pool.start(delete, f"{path}/") for path in changes.removed_folders]
    pool.wait_all(tasks)
    stored.changes.sort(key=lambda change: change.path)


def roll_back(
    store: ObjectStore, plan: MirrorPlan, mirrored: Mirrored, stored: Stored, pool: Pool
) -> list[str]:
    """Undo what was stored for a cell that did not commit; return the paths that stay changed.

    What the cell wrote remains as an older version of its key.
    """

    def undo(change: FileChange) -> str | None:
        old = mirrored.versions.get(change.path)
        try:
            if old is not None:
                store.restore(plan.bucket, change.key, old, tags=plan.tags)
            elif change.change == "created":
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
            key=plan.root + path,
            version_id=versions.get(path),
            digest=state.digest,
            size_bytes=state.size_bytes,
        )
        for path, state in after.files.items()
    )


def _link(cache: DownloadCache, entry: CachedFile, plan: MirrorPlan, path: str) -> None:
    target = Path(plan.workdir, path)
    cache.link(entry, str(target))
    if is_governed(path):
        # A cell may have changed these of the cached file: nobody stores what it does here.
        target.chmod(entry.state.mode & ~0o222)
        os.utime(target, ns=(entry.state.mtime_ns, entry.state.mtime_ns))


def _prefixes(plan: MirrorPlan) -> list[tuple[str, str]]:
    own = [(f"{plan.root}{project}/", f"{project}/") for project in plan.projects]
    own = own or [(plan.root, "")]
    return own if plan.governed is None else [*own, (plan.governed, f"{GOVERNED}/")]


def _list_prefix(store: ObjectStore, bucket: str, prefix: str, under: str) -> Listing:
    listing = Listing()
    for listed in store.list(bucket, prefix):
        path = under + listed.key[len(prefix) :]
        bare = path.rstrip("/") if path.endswith("/") else path
        if not bare or path == under:
            if under:
                listing.folders.add(under.rstrip("/"))
            continue
        problem = names.file_key_problem(bare)
        if problem is not None or (is_governed(bare) and under != f"{GOVERNED}/"):
            listing.refused.append(f"{path!r} {problem or 'is reserved'}")
        elif path.endswith("/"):
            listing.folders.add(bare)
        else:
            listing.files[path] = listed
    return listing


def _put_file(
    store: ObjectStore, plan: MirrorPlan, key: str, descriptor: int, state: FileState
) -> StoredObject:
    with open(descriptor, "rb", closefd=False) as file:
        small = state.size_bytes <= INLINE_BODY_BYTES
        return store.put(
            plan.bucket,
            key,
            file.read() if small else file,
            size_bytes=state.size_bytes,
            metadata=metadata_of(state),
            tags=plan.tags,
        )


def _too_large(sizes: Mapping[str, int], max_bytes: int) -> WorkspaceTooLarge:
    largest = ", ".join(
        f"{name} {size / 1e6:.1f} MB" for name, size in manifest.largest_folders(sizes)
    )
    return WorkspaceTooLarge(
        f"the workspace measures {sum(sizes.values()) / 1e6:.1f} MB, the container has room for "
        f"{max_bytes / 1e6:.1f} MB; the largest folders: {largest}"
    )


def _refusals(refused: list[str], what: str) -> list[str]:
    return [f"{len(refused)} files {what}: {_some(refused)}"] if refused else []


def _some(texts: Iterable[str]) -> str:
    shown = list(texts)
    more = f" and {len(shown) - SHOWN_NAMES} more" if len(shown) > SHOWN_NAMES else ""
    return "; ".join(shown[:SHOWN_NAMES]) + more
