"""The workspace as a working directory, before a cell: listed, fetched, linked in."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lambda_kernel.contract import names
from lambda_kernel.serving import manifest
from lambda_kernel.serving.cache import CachedFile, DownloadCache
from lambda_kernel.serving.errors import WorkspaceTooLarge
from lambda_kernel.serving.governed import GOVERNED, is_governed
from lambda_kernel.serving.manifest import FileState, Tree
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool
from lambda_kernel.storage.s3_requests import ListedObject

PAGE_KEYS = 1000
"""Source: AWS S3, ListObjectsV2."""
SHOWN_NAMES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """What a working directory mirrors.

    Attributes:
        bucket: the workspaces bucket.
        root: prefix with ``/``; files lie under it, and changed ones go back there.
        source: the prefix that they lie under in its place, and nobody writes; None = the root.
        projects: only these folders of it; none = everything.
        governed: a prefix that is mirrored read-only at ``.governed``, or None.
        tags: tags of everything stored.
        cell: stamp of everything stored: which cell did it.
        workdir: the directory.
        max_bytes: what it may measure.
    """

    bucket: str
    root: str
    source: str | None = None
    projects: tuple[str, ...] = ()
    governed: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    cell: str = ""
    workdir: str
    max_bytes: int

    @property
    def origin(self) -> str:
        """The prefix that the files which the cell finds lie under."""
        return self.root if self.source is None else self.source


@dataclass(slots=True)
class Listing:
    """What is stored, by path relative to the working directory."""

    files: dict[str, ListedObject] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """What the files measure together."""
        return sum(listed.size_bytes for listed in self.files.values())


@dataclass(slots=True)
class Mirrored:
    """A working directory as it was before the cell.

    Attributes:
        tree: its files and stored folders.
        governed: what is under ``.governed``, which is never stored: path to file.
        versions: path to version id.
        etags: path to ETag.
        notices: what could not be mirrored, for people.
    """

    tree: Tree = field(default_factory=Tree)
    governed: dict[str, FileState] = field(default_factory=dict)
    versions: dict[str, str | None] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def list_stored(
    store: ObjectStore, plan: MirrorPlan, pool: Pool, bounds: dict[str, tuple[str, ...]]
) -> Listing:
    """Return what the plan's prefixes hold; names that no file may have are set aside.

    Args:
        store: S3.
        plan: what is mirrored.
        pool: threads for the pages of long listings.
        bounds: where earlier listings were cut, by prefix; brought up to date.
    """
    listing = Listing()
    prefixes = [(f"{plan.origin}{project}/", f"{project}/") for project in plan.projects]
    prefixes = prefixes or [(plan.origin, "")]
    if plan.governed is not None:
        prefixes.append((plan.governed, f"{GOVERNED}/"))

    def page(prefix: str, after: str, until: str) -> list[ListedObject]:
        return list(store.list(plan.bucket, prefix, after, until))

    pages = []
    for prefix, under in prefixes:
        cuts = bounds.get(prefix, ())
        for after, until in zip(("", *cuts), (*cuts, ""), strict=True):
            pages.append((prefix, under, pool.start(page, prefix, after, until)))
    found = pool.wait_all([future for _, _, future in pages])
    for (prefix, under, _), listed in zip(pages, found, strict=True):
        _sort_in(listing, prefix, under, listed)
    for prefix, _ in prefixes:
        keys = [
            entry.key
            for (name, _, _), listed in zip(pages, found, strict=True)
            if name == prefix
            for entry in listed
        ]
        bounds[prefix] = tuple(keys[PAGE_KEYS - 1 :: PAGE_KEYS])
    if plan.governed is not None:
        listing.folders.add(GOVERNED)
    return listing


def mirror_in(
    store: ObjectStore,
    plan: MirrorPlan,
    listing: Listing,
    cache: DownloadCache,
    pool: Pool,
    undo: Callable[[Mapping[str, str]], Iterable[str]] = lambda stamps: (),
) -> Mirrored:
    """Fill the (new, empty) working directory from the listing.

    Args:
        store: S3.
        plan: what is mirrored.
        listing: what there is.
        cache: of files.
        pool: threads for downloads.
        undo: given the stamp of each file, undoes in S3 what belongs to no session; returns the
            paths that it changed.

    Raises:
        WorkspaceTooLarge: it does not fit.
    """
    sizes = {path: listed.size_bytes for path, listed in listing.files.items()}
    if listing.size_bytes > plan.max_bytes:
        raise _too_large(sizes, plan.max_bytes)
    mirrored = Mirrored(notices=refusals(listing.refused, "are not mirrored"))
    _make_folders(plan, listing, mirrored)
    try:
        found = _fetched(store, plan, listing, cache, pool)
        undone = sorted(undo({p: e.cell for p, e in found.items() if not is_governed(p)}))
        if undone:
            mirrored.notices.append(
                "stored or deleted by a cell that was lost, and now as before it: "
                + some(map(repr, undone))
            )
            _list_again(store, plan, listing, undone)
            _make_folders(plan, listing, mirrored)
            found = _fetched(store, plan, listing, cache, pool)
        for path, entry in found.items():
            _link(cache, entry, plan, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _too_large(sizes, plan.max_bytes) from error
        raise
    own = {path: entry for path, entry in found.items() if not is_governed(path)}
    mirrored.governed = {path: e.state for path, e in found.items() if is_governed(path)}
    mirrored.tree = Tree(
        files={path: entry.state for path, entry in own.items()},
        folders=frozenset(f for f in listing.folders if not is_governed(f)),
    )
    mirrored.versions = {path: entry.version_id for path, entry in found.items()}
    mirrored.etags = {path: entry.etag for path, entry in own.items()}
    return mirrored


def _make_folders(plan: MirrorPlan, listing: Listing, mirrored: Mirrored) -> None:
    folders = {folder for path in listing.files for folder in manifest.parents(path)}
    folders |= listing.folders
    for path in sorted(folders & listing.files.keys()):
        del listing.files[path]
        mirrored.notices.append(f"{path!r} is stored as a file and as a folder: mirrored as folder")
    for folder in sorted(folders):
        Path(plan.workdir, folder).mkdir(mode=0o755, parents=True, exist_ok=True)


def _fetched(
    store: ObjectStore, plan: MirrorPlan, listing: Listing, cache: DownloadCache, pool: Pool
) -> dict[str, CachedFile]:
    found = {path: cache.find(listed) for path, listed in listing.files.items()}
    missing = [path for path, entry in found.items() if entry is None]
    need = sum(listing.files[path].size_bytes for path in missing)
    cache.make_room(max(0, plan.max_bytes - need))

    def fetch(path: str) -> None:
        listed = listing.files[path]
        found[path] = cache.fetch(
            listed, lambda write: store.download(plan.bucket, listed.key, write)
        )

    pool.map(fetch, missing)
    return {path: entry for path, entry in found.items() if entry is not None}


def _list_again(
    store: ObjectStore, plan: MirrorPlan, listing: Listing, paths: Iterable[str]
) -> None:
    for path in paths:
        listing.files.pop(path, None)
        key = plan.root + path
        for listed in store.list(plan.bucket, key, until=key):
            if path.endswith("/"):
                listing.folders.add(path.rstrip("/"))
            else:
                listing.files[path] = listed


def _link(cache: DownloadCache, entry: CachedFile, plan: MirrorPlan, path: str) -> None:
    target = f"{plan.workdir}/{path}"
    cache.link(entry, target)
    if is_governed(path):
        # A cell may have changed these of the cached file: nobody stores what it does here.
        Path(target).chmod(entry.state.mode & ~0o222)
        os.utime(target, ns=(entry.state.mtime_ns, entry.state.mtime_ns))


def _sort_in(listing: Listing, prefix: str, under: str, found: Iterable[ListedObject]) -> None:
    for listed in found:
        path = under + listed.key[len(prefix) :]
        bare = path.rstrip("/") if path.endswith("/") else path
        if not bare or path == under:
            if under:
                listing.folders.add(under.rstrip("/"))
            continue
        problem = names.file_key_problem(bare, is_folder=path.endswith("/"))
        if problem is not None or (is_governed(bare) and under != f"{GOVERNED}/"):
            listing.refused.append(f"{path!r} {problem or 'is reserved'}")
        elif path.endswith("/"):
            listing.folders.add(bare)
        else:
            listing.files[path] = listed


def refusals(refused: list[str], what: str) -> list[str]:
    """Return a notice about refused names, where there are any."""
    return [f"{len(refused)} files {what}: {some(refused)}"] if refused else []


def some(texts: Iterable[str]) -> str:
    """Return the first of many texts, and how many more there are."""
    shown = list(texts)
    more = f" and {len(shown) - SHOWN_NAMES} more" if len(shown) > SHOWN_NAMES else ""
    return "; ".join(shown[:SHOWN_NAMES]) + more


def _too_large(sizes: Mapping[str, int], max_bytes: int) -> WorkspaceTooLarge:
    largest = ", ".join(
        f"{name} {size / 1e6:.1f} MB" for name, size in manifest.largest_folders(sizes)
    )
    return WorkspaceTooLarge(
        f"the workspace measures {sum(sizes.values()) / 1e6:.1f} MB, the container has room for "
        f"{max_bytes / 1e6:.1f} MB; the largest folders: {largest}"
    )
