"""HOME: one scope's folder, restored where it is missing and saved where a cell changed it.

A saved state is a manifest, named by its digest, and packs with the bytes of many files. The commit
of a cell names the manifest; ``home/head`` names the newest one and is only a short cut: where a
commit names a state that the head does not include, that state is brought in. So a HOME is saved
with the commit or not at all, and of two cells that change it at once, none loses its files.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import home_manifest, home_restoring, home_saving, home_tree, trees
from lambda_kernel.serving.home_manifest import HomeEntry, HomeHead, HomeManifest
from lambda_kernel.serving.home_packs import PackWriter
from lambda_kernel.serving.home_restoring import Source
from lambda_kernel.serving.home_store import HomeStore
from lambda_kernel.serving.home_tree import Facts, Seen
from lambda_kernel.serving.manifest import largest_folders
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool
from lambda_kernel.serving.parking import ParkedHome, ParkingLot
from lambda_kernel.serving.watching import WriteWatch

logger = logging.getLogger(__name__)

MAX_ENTRIES = 200_000
SHOWN_NAMES = 5
SHOWN_DEPTH = 2


class HomeTooLarge(Exception):
    """A HOME is larger than may be saved; ``str()`` is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeLimits:
    """What HOMEs may take.

    Attributes:
        saved_bytes: what one may measure to be saved.
        dormant_bytes: what HOMEs of other scopes may take in this container.
        others_hidden: cells cannot see other HOMEs: these stay on disk instead of being parked.
    """

    saved_bytes: int = 2 * 1024**3
    dormant_bytes: int = 512 * 1024**2
    others_hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHome:
    """A HOME whose manifest is stored, but which ``home/head`` does not name yet."""

    manifest: HomeManifest
    digest: str
    facts: dict[str, Facts] = field(repr=False)


@dataclass(slots=True, kw_only=True)
class _Live:
    """A HOME on disk.

    Attributes:
        path: where.
        manifest, digest: the saved state that it was brought to.
        head: what ``home/head`` held when it was last read or written.
        facts: how it looked then.
        watch: tells what was written since.
        trusted: no cell that did not commit has changed it.
    """

    path: str
    manifest: HomeManifest
    digest: str | None
    head: HomeHead
    facts: dict[str, Facts]
    watch: WriteWatch
    trusted: bool = True


def others_are_hidden(tier: str) -> bool:
    """Whether cells of this tier cannot see HOMEs of other scopes, which then stay on disk."""
    return tier == "namespaces"


class Homes:
    """The HOMEs in this container.

    Args:
        store, bucket: where they are saved.
        pool: threads for packs.
        root: the folder they stand in; a cell knows ``/tmp``.
        limits: see there.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        pool: Pool,
        root: str = "/tmp",  # noqa: S108
        limits: HomeLimits | None = None,
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._saved = HomeStore(store, bucket)
        self._pool = pool
        self._root = root
        self._limits = limits or HomeLimits()
        self._live: OrderedDict[Scope, _Live] = OrderedDict()
        self._parked = ParkingLot(root, self._limits.dormant_bytes)

    @property
    def on_disk(self) -> frozenset[str]:
        """The paths of the HOMEs that stand on disk."""
        return frozenset(live.path for live in self._live.values())

    def saved_digest(self, scope: Scope) -> str | None:
        """Return the manifest that the HOME on disk was brought to; None = an empty HOME."""
        live = self._live.get(scope)
        return None if live is None else live.digest

    def path(self, scope: Scope) -> str:
        """Return where the HOME of ``scope`` stands."""
        return f"{self._root}/{os.path.basename(scope.home)}"  # noqa: PTH119

    def clear_others(self, scope: Scope) -> None:
        """Put the HOMEs of other scopes out of reach of a cell of ``scope``."""
        others = [other for other in self._live if other != scope]
        if self._limits.others_hidden:
            sizes = {other: self._live[other].manifest.size_bytes for other in others}
            while others and sum(sizes[other] for other in others) > self._limits.dormant_bytes:
                self.discard(others.pop(0))
            return
        for other in others:
            self._park(other)

    def make_room(self, need_bytes: int) -> None:
        """Give up parked HOMEs until that much is free, or none is left."""
        while self._free_bytes() < need_bytes and self._parked.drop_oldest():
            pass

    def fetch_head(self, scope: Scope) -> HomeHead:
        """Return the newest saved head of ``scope``; of an empty HOME where there is none."""
        if not scope.home_is_kept:
            return HomeHead()
        return self._saved.head(scope)

    def restore(self, scope: Scope, head: HomeHead, committed: str | None = None) -> str:
        """Make the HOME of ``scope`` stand as it was saved and return its path.

        Args:
            scope: whose it is.
            head: what ``fetch_head`` returned.
            committed: what the commit that the cell starts from names; it is brought in where the
                head does not include it, because the head was not written after that commit.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        live = self._live.get(scope)
        if not scope.home_is_kept:
            self._bring(scope, head, None, None)
            return self.path(scope)
        if not head.includes(committed):
            head = self._saved.bring_in(scope, head, committed or "")
        if live is None:
            self._bring(scope, head, None, self._parked.take(scope))
        elif not live.trusted or live.digest != head.manifest:
            self._bring(scope, head, live, None)
        else:
            live.head = head
            self._live.move_to_end(scope)
        return self.path(scope)

    def save(self, scope: Scope) -> SavedHome | None:
        """Store what a cell changed in its HOME; None where it changed nothing.

        Raises:
            HomeTooLarge: it is over the limit: nothing is saved, and the next cell finds it as it
                was before this one.
            StorageUnavailable: it could not be stored.
        """
        live = self._live.get(scope)
        if not scope.home_is_kept or live is None:
            return None
        if not trees.is_folder(live.path):
            trees.make_folder(live.path)
        written = live.watch.written()
        seen = home_tree.look(live.path)
        self._refuse(live, seen)
        found = home_saving.suspects(seen, live.facts, live.manifest.entries, written)
        if not found:
            return None
        live.trusted = False
        self._check_size(seen, found)
        writer = PackWriter(self._store, self._bucket, scope, self._pool)
        try:
            result = home_saving.harvest(live.path, found, seen, live.manifest.entries, writer)
            entries = result.named(writer.close())
            facts = seen.facts | result.facts
            if _are_same(entries, live.manifest.entries):
                live.facts, live.trusted = facts, True
                return None
            manifest, digest, stored = home_manifest.succeed(entries, live.digest, live.manifest)
            self._saved.put_manifest(scope, digest, stored)
        finally:
            writer.wait()
        return SavedHome(manifest=manifest, digest=digest, facts=facts)

    def publish(self, scope: Scope, saved: SavedHome) -> list[str]:
        """Make ``home/head`` include what was saved, after the commit that names it.

        Returns:
            What to tell the user: that another cell changed HOME at the same time.

        Raises:
            StorageUnavailable: the head could not be written; the next cell tries again.
        """
        live = self._live[scope]
        live.manifest, live.digest, live.facts = saved.manifest, saved.digest, saved.facts
        live.trusted = True
        live.watch.cover(live.path, Seen(facts=saved.facts).folders(live.path))
        head, both = self._saved.publish(scope, live.head, saved.digest, saved.manifest)
        live.head = head
        if head.manifest == saved.digest:
            return []
        told = "another cell of this scope changed HOME at the same time: both changes are kept"
        if both:
            told += f"; of {_some(both)}, which both changed, this cell's version is in force"
        return [told]

    def distrust(self, scope: Scope) -> None:
        """A cell that does not commit ran: what it changed is undone before the next one."""
        if scope in self._live:
            self._live[scope].trusted = False

    def discard(self, scope: Scope) -> None:
        """Remove a HOME from disk; the next cell restores what was saved."""
        live = self._live.pop(scope, None)
        if live is not None:
            live.watch.close()
            trees.remove(live.path)

    def _bring(
        self, scope: Scope, head: HomeHead, live: _Live | None, parked: ParkedHome | None
    ) -> None:
        wanted = self._known_manifest(scope, head.manifest, live, parked)
        try:
            self._bring_once(scope, head, wanted, live, parked)
        except OSError as error:
            self.discard(scope)
            trees.remove(self.path(scope))
            if error.errno != errno.ENOSPC:
                raise
            self.make_room(wanted.size_bytes)
            self._bring_once(scope, head, wanted, None, parked)
        finally:
            if parked is not None:
                parked.close()

    def _bring_once(
        self,
        scope: Scope,
        head: HomeHead,
        wanted: HomeManifest,
        live: _Live | None,
        parked: ParkedHome | None,
    ) -> None:
        path = self.path(scope)
        on_disk: dict[str, Facts] = {}
        current: dict[str, HomeEntry] = {}
        if live is None:
            self.discard(scope)
            trees.make_folder(path)
            watch = WriteWatch()
        else:
            watch = live.watch
            on_disk, current = self._clean(live)
            unchanged = len(on_disk) == len(current) and _are_same(current, wanted.entries)
            if live.digest == head.manifest and unchanged:
                live.head, live.trusted = head, True
                return
        source = Source(
            store=self._store, bucket=self._bucket, scope=scope, pool=self._pool, parked=parked
        )
        home_restoring.bring_to(path, wanted.entries, source, on_disk, current)
        seen = home_tree.look(path)
        watch.cover(path, seen.folders(path))
        self._live[scope] = _Live(
            path=path,
            manifest=wanted,
            digest=head.manifest,
            head=head,
            facts=seen.facts,
            watch=watch,
        )
        self._live.move_to_end(scope)

    def _clean(self, live: _Live) -> tuple[dict[str, Facts], dict[str, HomeEntry]]:
        """Return what is on disk, and of it what is known to be as the manifest says."""
        written = live.watch.written()
        if not trees.is_folder(live.path):
            trees.make_folder(live.path)
        seen = home_tree.look(live.path)
        self._refuse(live, seen)
        if written is None and not live.trusted:
            return seen.facts, {}
        clean = {
            path: live.manifest.entries[path]
            for path, facts in seen.facts.items()
            if live.facts.get(path) == facts
            and path not in (written or ())
            and path in live.manifest.entries
        }
        return seen.facts, clean

    def _park(self, scope: Scope) -> None:
        live = self._live[scope]
        if scope.home_is_kept:
            _, clean = self._clean(live)
            files = [path for path, entry in clean.items() if entry.kind == "file"]
            self._parked.park(scope, live.path, live.manifest, live.digest, files)
        self.discard(scope)

    def _refuse(self, live: _Live, seen: Seen) -> None:
        for path in seen.refused:
            trees.remove(f"{live.path}/{path}")
        if seen.refused:
            logger.info("special files of a HOME are removed", extra={"count": len(seen.refused)})

    def _check_size(self, seen: Seen, found: home_saving.Suspects) -> None:
        limit, count = self._limits.saved_bytes, len(seen.facts)
        if seen.size_bytes <= limit and count <= MAX_ENTRIES:
            return
        sizes = {path: f[2] for path, f in seen.facts.items() if stat.S_ISREG(f[0])}
        folders = ", ".join(
            f"{name} {size / 1e6:.1f} MB"
            for name, size in largest_folders(sizes, SHOWN_NAMES, SHOWN_DEPTH)
        )
        lost = [path for path in found.changed if path in sizes]
        raise HomeTooLarge(
            f"HOME measures {seen.size_bytes / 1e6:.1f} MB in {count} files and folders, the limit "
            f"is {limit / 1e6:.1f} MB and {MAX_ENTRIES}: what this cell changed there is not saved "
            f"({len(lost)} files: {_some(lost)}), the next cell finds HOME as it was before; "
            f"the largest folders: {folders}"
        )

    def _known_manifest(
        self, scope: Scope, digest: str | None, live: _Live | None, parked: ParkedHome | None
    ) -> HomeManifest:
        for known in (live, parked):
            if known is not None and known.digest == digest:
                return known.manifest
        return self._saved.manifest(scope, digest)

    def _free_bytes(self) -> int:
        found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize


def _are_same(one: Mapping[str, HomeEntry], other: Mapping[str, HomeEntry]) -> bool:
    return one.keys() == other.keys() and all(e.is_same(other[p]) for p, e in one.items())


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN_NAMES} more" if len(paths) > SHOWN_NAMES else ""
    return ", ".join(repr(path) for path in paths[:SHOWN_NAMES]) + more


def user_site_names(home: str) -> Iterator[str]:
    """Yield the top-level modules and packages that pip put into this HOME."""
    base = Path(home, ".local/lib")
    try:
        folders = [path / "site-packages" for path in base.iterdir()]
        for folder in folders:
            for path in folder.iterdir():
                name = path.name.partition(".")[0]
                if name.isidentifier() and name != "__pycache__":
                    yield name
    except OSError:
        return
