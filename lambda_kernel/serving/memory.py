"""S3 and STS in memory, for tests and for trying the serving process without a cloud."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from lambda_kernel.contract.witness import SecretVersion
from lambda_kernel.serving.connectors import Secret, SecretRefused
from lambda_kernel.serving.credentials import Credentials
from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable
from lambda_kernel.serving.objects import StoredObject
from lambda_kernel.storage.s3_requests import ListedObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of an object; ``body`` is None for a delete marker."""

    version_id: str
    body: bytes | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    stamp: float = 0.0

    @property
    def etag(self) -> str:
        """The ETag of a single PUT."""
        return f'"{hashlib.md5(self.body or b"", usedforsecurity=False).hexdigest()}"'


class MemoryObjectStore:
    """ObjectStore in memory; keeps every version.

    Attributes:
        versions: bucket and key to versions, oldest first.
        calls: names of the calls made, with the key.
        refuse: set by a test: called with operation and key, may raise StorageUnavailable.
    """

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], list[Version]] = {}
        self.calls: list[tuple[str, str]] = []
        self.refuse: Callable[[str, str], None] = lambda operation, key: None
        self._lock = threading.Lock()
        self._count = 0

    def body(self, bucket: str, key: str) -> bytes | None:
        """Return the current bytes, or None."""
        found = self.versions.get((bucket, key))
        return found[-1].body if found else None

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys that are there now."""
        return sorted(
            key
            for (name, key), found in self.versions.items()
            if name == bucket and key.startswith(prefix) and found[-1].body is not None
        )

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object (raises ObjectNotFound)."""
        chunks: list[bytes] = []
        self.download(bucket, key, chunks.append)
        return b"".join(chunks)

    def download(
        self,
        bucket: str,
        key: str,
        write: Callable[[bytes], object],
        span: tuple[int, int] | None = None,
    ) -> StoredObject:
        """Hand the bytes of an object to ``write`` (raises ObjectNotFound)."""
        self._call("get", key)
        found = self.versions.get((bucket, key))
        if not found or found[-1].body is None:
            raise ObjectNotFound(f"there is no object {key}")
        newest = found[-1]
        start, length = span or (0, len(found[-1].body))
        write(found[-1].body[start : start + length])
        return StoredObject(
            etag=newest.etag, version_id=newest.version_id, metadata=newest.metadata
        )

    def head(self, bucket: str, key: str) -> StoredObject:
        """Return what comes with an object, without its bytes (raises ObjectNotFound)."""
        return self.download(bucket, key, len)

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes | BinaryIO,
        *,
        size_bytes: int | None = None,
        sha256: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> StoredObject:
        """Store ``body`` (raises PreconditionFailed)."""
        self._call("put", key)
        content = body if isinstance(body, bytes) else body.read()
        if size_bytes is not None and len(content) != size_bytes:
            raise StorageUnavailable(f"{key}: {len(content)} bytes came, not {size_bytes}")
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise StorageUnavailable(f"{key}: not the bytes that were announced")
        with self._lock:
            found = self.versions.setdefault((bucket, key), [])
            newest = found[-1] if found and found[-1].body is not None else None
            wrong = if_match is not None and (newest is None or newest.etag != if_match)
            if wrong or (if_absent and newest is not None):
                raise PreconditionFailed(f"another writer holds {key}")
            self._count += 1
            version = Version(
                version_id=f"v{self._count}",
                body=content,
                metadata=dict(metadata or {}),
                tags=dict(tags or {}),
                stamp=float(self._count),
            )
            found.append(version)
        return StoredObject(etag=version.etag, version_id=version.version_id, date=version.stamp)

    def delete(self, bucket: str, key: str) -> str | None:
        """Add a delete marker and return its version id."""
        self._call("delete", key)
        with self._lock:
            self._count += 1
            marker = Version(version_id=f"v{self._count}", body=None)
            self.versions.setdefault((bucket, key), []).append(marker)
        return marker.version_id

    def delete_many(self, bucket: str, object_keys: Sequence[str]) -> dict[str, str | None]:
        """Add delete markers; keys whose deletion ``refuse`` refuses are left out."""
        markers: dict[str, str | None] = {}
        for key in object_keys:
            with contextlib.suppress(StorageUnavailable):
                markers[key] = self.delete(bucket, key)
        return markers

    def restore(
        self, bucket: str, key: str, version_id: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make an older version the newest again, with ``tags``."""
        self._call("restore", key)
        found = self.versions[bucket, key]
        old = next(version for version in found if version.version_id == version_id)
        if old.body is None:
            raise ObjectNotFound(f"there is no version {version_id} of {key}")
        self.put(bucket, key, old.body, metadata=old.metadata, tags=tags)

    def list(
        self, bucket: str, prefix: str, after: str = "", until: str = ""
    ) -> Iterator[ListedObject]:
        """Yield what is under ``prefix``, in key order, after one key and until another."""
        self._call("list", prefix)
        for key in self.keys(bucket, prefix):
            if key <= after or (until and key > until):
                continue
            newest = self.versions[bucket, key][-1]
            yield ListedObject(
                key=key,
                etag=newest.etag,
                size_bytes=len(newest.body or b""),
                last_modified=newest.stamp,
            )

    def _call(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        self.refuse(operation, key)


@dataclass
class MemoryRoleAssumer:
    """RoleAssumer that hands out made-up credentials and remembers what it was asked."""

    assumed: list[tuple[str, str, int]] = field(default_factory=list)
    refuse: bool = False

    def assume(self, session_name: str, policy: str, duration_s: int) -> Credentials:
        """Return made-up credentials (raises StorageUnavailable where ``refuse`` is set)."""
        if self.refuse:
            raise StorageUnavailable("STS did not answer")
        self.assumed.append((session_name, policy, duration_s))
        return Credentials(access_key_id=session_name, secret_access_key=session_name)


@dataclass
class MemorySecretReader:
    """SecretReader on a dictionary; remembers what it was asked."""

    secrets: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def read(self, name: str) -> Secret | None:
        """Return a secret, or None (raises SecretRefused)."""
        self.asked.append(name)
        if name in self.refused:
            raise SecretRefused(name)
        if name not in self.secrets:
            return None
        version = SecretVersion(arn=f"arn:aws:secretsmanager:::secret:{name}", version_id="v1")
        return Secret(text=self.secrets[name], version=version)
