"""Saved HOMEs in the state bucket: manifests, and the head that names the newest."""

from __future__ import annotations

import logging

from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import home_manifest
from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable
from lambda_kernel.serving.home_manifest import HomeHead, HomeManifest
from lambda_kernel.serving.objects import ObjectStore

logger = logging.getLogger(__name__)

PUBLISH_ATTEMPTS = 8
EMPTY = HomeManifest()


class HomeStore:
    """Heads and manifests of HOMEs; any method may raise StorageUnavailable."""

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def head(self, scope: Scope) -> HomeHead:
        """Return the newest head of ``scope``; of an empty HOME where there is none."""
        stored: list[bytes] = []
        try:
            found = self._store.download(self._bucket, keys.home_head_key(scope), stored.append)
        except ObjectNotFound:
            return HomeHead()
        return HomeHead.from_bytes(b"".join(stored), found.etag)

    def manifest(self, scope: Scope, digest: str | None) -> HomeManifest:
        """Return a manifest, verified (raises ObjectNotFound)."""
        if digest is None:
            return EMPTY
        stored = self._store.get(self._bucket, keys.home_manifest_key(scope, digest))
        return HomeManifest.from_bytes(stored, digest)

    def put_manifest(self, scope: Scope, digest: str, stored: bytes) -> None:
        """Store a manifest under its digest."""
        key = keys.home_manifest_key(scope, digest)
        self._store.put(self._bucket, key, stored, sha256=digest)

    def bring_in(self, scope: Scope, head: HomeHead, committed: str) -> HomeHead:
        """Return a head that includes a state that a commit names, but ``head`` does not."""
        try:
            ours = self.manifest(scope, committed)
        except ObjectNotFound:
            return head
        if ours.generation + len(head.recent) < head.generation:
            # Older than what the head remembers: it was published long ago.
            return head
        logger.warning("a committed HOME was not published; it is now")
        return self.publish(scope, head, committed, ours)[0]

    def publish(
        self, scope: Scope, head: HomeHead, digest: str, manifest: HomeManifest
    ) -> tuple[HomeHead, tuple[str, ...]]:
        """Write a head that includes a manifest, merged with what others published meanwhile.

        Args:
            scope: whose HOME it is.
            head: the head as it was last seen.
            digest: of what is to be included.
            manifest: that.

        Returns:
            The head, and the paths that others had changed too.
        """
        mine = (digest, manifest)
        both: tuple[str, ...] = ()
        for _ in range(PUBLISH_ATTEMPTS):
            if head.manifest not in (mine[1].base, mine[0]):
                merged, name, stored, both = home_manifest.merge(
                    self._base_of(scope, manifest),
                    (digest, manifest),
                    (head.manifest, self.manifest(scope, head.manifest)),
                )
                self.put_manifest(scope, name, stored)
                mine = (name, merged)
            new = HomeHead(manifest=mine[0], generation=mine[1].generation, recent=mine[1].recent)
            try:
                return self._put_head(scope, head, new), both
            except PreconditionFailed:
                head = self.head(scope)
                if head.includes(mine[0]):
                    # A PUT that was sent again after its answer was lost meets itself.
                    return head, both
        raise StorageUnavailable("the head of the HOME changed too often to be written")

    def _put_head(self, scope: Scope, old: HomeHead, new: HomeHead) -> HomeHead:
        stored = self._store.put(
            self._bucket,
            keys.home_head_key(scope),
            new.to_bytes(),
            if_absent=old.etag is None,
            if_match=old.etag,
        )
        return HomeHead(
            manifest=new.manifest, generation=new.generation, recent=new.recent, etag=stored.etag
        )

    def _base_of(self, scope: Scope, manifest: HomeManifest) -> HomeManifest:
        try:
            return self.manifest(scope, manifest.base)
        except ObjectNotFound:
            return EMPTY
