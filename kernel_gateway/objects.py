"""The gateway's view of S3: a narrow protocol, boto3 behind it, and one in memory."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kernel_gateway import aws
from kernel_gateway.config import Deployment
from kernel_gateway.errors import NotFound, PreconditionFailed, StorageError
from kernel_gateway.retention import ObjectLock

CONNECTIONS = 16
NO_LOCK = "ObjectLockConfigurationNotFoundError"
_IN_THIS_THREAD = TransferConfig(use_threads=False)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes and its ETag, for compare-and-set."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One entry of a listing; ``last_modified`` is Unix time."""

    key: str
    size_bytes: int
    last_modified: float
    etag: str


class ObjectStore(Protocol):
    """Small objects: records, commits, control objects. Every method may raise StorageError."""

    async def get(self, bucket: str, key: str) -> StoredObject:
        """Return the object (raises NotFound)."""

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        lock: ObjectLock | None = None,
    ) -> str:
        """Store ``body`` and return its ETag.

        Args:
            bucket: which bucket.
            key: which object.
            body: its bytes.
            if_absent: only where no such object exists.
            if_match: only where the object still has this ETag.
            lock: of this version; the bucket must have been made for it.

        Raises:
            PreconditionFailed: the condition does not hold.
        """

    async def put_file(self, bucket: str, key: str, path: Path) -> None:
        """Store what is in a file, however large; whole or not at all."""

    async def delete(self, bucket: str, key: str) -> None:
        """Delete the object; nothing happens where there is none."""

    async def erase(self, bucket: str, key: str) -> None:
        """Delete the object with all its versions; nothing happens where there is none."""

    async def locked_until(self, bucket: str, key: str) -> float | None:
        """Return until when (Unix time) Object Lock holds the object, None where it does not."""

    def list(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the keys under ``prefix`` in order."""

    def entries(self, bucket: str, prefix: str, *, after: str = "") -> AsyncIterator[ListedObject]:
        """Yield what is under ``prefix`` and behind the key ``after``, in the order of the keys."""

    def folders(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the folders directly under ``prefix``, which ends with ``/``."""


class S3ObjectStore:
    """ObjectStore on S3 by boto3, whose calls run in threads of their own."""

    def __init__(self, client: Any, executor: ThreadPoolExecutor) -> None:
        self._client = client
        self._executor = executor

    @classmethod
    def create(cls, deployment: Deployment) -> S3ObjectStore:
        """Return a store for the deployment's S3."""
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"} if deployment.s3_endpoint else {},
            max_pool_connections=CONNECTIONS,
            connect_timeout=5,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        client = aws.client("s3", config=config, **deployment.client_arguments("s3"))
        client.meta.events.register_last("before-call.s3", _send_at_once)
        return cls(client, ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3"))

    async def get(self, bucket: str, key: str) -> StoredObject:
        """Return the object (raises NotFound)."""

        def read() -> StoredObject:
            answer = self._client.get_object(Bucket=bucket, Key=key)
            return StoredObject(answer["Body"].read(), answer["ETag"])

        result: StoredObject = await self._call(read, key)
        return result

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        lock: ObjectLock | None = None,
    ) -> str:
        """Store ``body`` and return its ETag (raises PreconditionFailed)."""
        checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
        arguments: dict[str, Any] = {
            "Bucket": bucket,
            "Key": key,
            "Body": body,
            "ChecksumSHA256": checksum,
        }
        if if_absent:
            arguments["IfNoneMatch"] = "*"
        if if_match is not None:
            arguments["IfMatch"] = if_match
        if lock is not None:
            arguments["ObjectLockMode"] = lock.mode
            arguments["ObjectLockRetainUntilDate"] = datetime.now(UTC) + lock.age
        answer = await self._call(lambda: self._client.put_object(**arguments), key)
        etag: str = answer["ETag"]
        return etag

    async def put_file(self, bucket: str, key: str, path: Path) -> None:
        """Store what is in a file, however large; whole or not at all."""
        try:
            await self._call(
                lambda: self._client.upload_file(str(path), bucket, key, Config=_IN_THIS_THREAD),
                key,
            )
        except Boto3Error as error:
            raise StorageError(f"S3 did not take {key}: {error}") from error

    async def delete(self, bucket: str, key: str) -> None:
        """Delete the object; nothing happens where there is none."""
        await self._call(lambda: self._client.delete_object(Bucket=bucket, Key=key), key)

    async def erase(self, bucket: str, key: str) -> None:
        """Delete the object with all its versions; nothing happens where there is none."""

        def erase() -> None:
            answer = self._client.list_object_versions(Bucket=bucket, Prefix=key)
            found = [*answer.get("Versions", ()), *answer.get("DeleteMarkers", ())]
            for each in found:
                if each["Key"] == key:
                    self._client.delete_object(Bucket=bucket, Key=key, VersionId=each["VersionId"])

        await self._call(erase, key)

    async def locked_until(self, bucket: str, key: str) -> float | None:
        """Return until when (Unix time) Object Lock holds the object, None where it does not."""
        try:
            answer = await self._call(lambda: self._client.head_object(Bucket=bucket, Key=key), key)
        except NotFound:
            return None
        if answer.get("ObjectLockLegalHoldStatus") == "ON":
            return math.inf
        until = answer.get("ObjectLockRetainUntilDate")
        return until.timestamp() if until is not None and until > datetime.now(UTC) else None

    async def list(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the keys under ``prefix`` in order."""
        async for entry in self.entries(bucket, prefix):
            yield entry.key

    async def entries(
        self, bucket: str, prefix: str, *, after: str = ""
    ) -> AsyncIterator[ListedObject]:
        """Yield what is under ``prefix`` and behind the key ``after``, in the order of the keys."""
        behind = {"StartAfter": after} if after else {}
        async for page in self._pages(prefix, Bucket=bucket, Prefix=prefix, **behind):
            for entry in page.get("Contents", ()):
                modified = entry["LastModified"].timestamp()
                yield ListedObject(entry["Key"], entry["Size"], modified, entry["ETag"])

    async def folders(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the folders directly under ``prefix``, which ends with ``/``."""
        async for page in self._pages(prefix, Bucket=bucket, Prefix=prefix, Delimiter="/"):
            for folder in page.get("CommonPrefixes", ()):
                yield folder["Prefix"].removeprefix(prefix).rstrip("/")

    async def can_lock(self, bucket: str) -> bool:
        """Return whether a bucket can hold Object Lock (raises StorageError)."""

        def asked() -> bool:
            try:
                answer = self._client.get_object_lock_configuration(Bucket=bucket)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == NO_LOCK:
                    return False
                raise
            found: dict[str, str] = answer.get("ObjectLockConfiguration", {})
            return found.get("ObjectLockEnabled") == "Enabled"

        can: bool = await self._call(asked, bucket)
        return can

    def close(self) -> None:
        """Close connections and threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _pages(self, key: str, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        while True:
            answer = await self._call(lambda: self._client.list_objects_v2(**arguments), key)
            yield answer
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    async def _call(self, function: Any, key: str) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        except ClientError as error:
            raise translated(error, key) from error
        except BotoCoreError as error:
            raise StorageError(f"S3 did not answer for {key}: {error}") from error


def _send_at_once(params: dict[str, Any], **_: Any) -> None:
    """Send a body with its request: to ask leave for it first is a round trip, which boto3 adds."""
    params["headers"].pop("Expect", None)


def translated(error: ClientError, key: str) -> NotFound | PreconditionFailed | StorageError:
    """Return the error of ours that boto3's ``error`` about ``key`` means."""
    code = error.response.get("Error", {}).get("Code", "")
    if code in {"NoSuchKey", "404", "NotFound"}:
        return NotFound(f"there is no object {key}")
    if code in {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}:
        return PreconditionFailed(f"another writer holds {key}")
    return StorageError(f"S3 refused {key}: {code or error}")


@dataclass
class MemoryObjectStore:
    """ObjectStore in memory, for tests of what stands on it."""

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    modified: dict[tuple[str, str], float] = field(default_factory=dict)
    locked: dict[tuple[str, str], float] = field(default_factory=dict)
    now: Callable[[], float] = time.time

    async def get(self, bucket: str, key: str) -> StoredObject:
        """Return the object (raises NotFound)."""
        try:
            body = self.objects[bucket, key]
        except KeyError:
            raise NotFound(f"there is no object {key}") from None
        return StoredObject(body, self._etag(body))

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        lock: ObjectLock | None = None,
    ) -> str:
        """Store ``body`` and return its ETag (raises PreconditionFailed)."""
        old = self.objects.get((bucket, key))
        if (if_absent and old is not None) or (
            if_match is not None and (old is None or self._etag(old) != if_match)
        ):
            raise PreconditionFailed(f"another writer holds {key}")
        self.objects[bucket, key] = body
        self.modified[bucket, key] = self.now()
        if lock is not None:
            self.locked[bucket, key] = self.now() + lock.age.total_seconds()
        return self._etag(body)

    async def put_file(self, bucket: str, key: str, path: Path) -> None:
        """Store what is in a file."""
        await self.put(bucket, key, await asyncio.to_thread(path.read_bytes))

    async def delete(self, bucket: str, key: str) -> None:
        """Delete the object; nothing happens where there is none."""
        self.objects.pop((bucket, key), None)
        self.modified.pop((bucket, key), None)

    async def erase(self, bucket: str, key: str) -> None:
        """Delete the object with all its versions; nothing happens where there is none."""
        if await self.locked_until(bucket, key) is not None:
            raise StorageError(f"S3 refused {key}: AccessDenied")
        await self.delete(bucket, key)

    async def locked_until(self, bucket: str, key: str) -> float | None:
        """Return until when (Unix time) Object Lock holds the object, None where it does not."""
        until = self.locked.get((bucket, key), 0.0)
        return until if until > self.now() else None

    async def list(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the keys under ``prefix`` in order."""
        for name, key in sorted(self.objects):
            if name == bucket and key.startswith(prefix):
                yield key

    async def entries(
        self, bucket: str, prefix: str, *, after: str = ""
    ) -> AsyncIterator[ListedObject]:
        """Yield what is under ``prefix`` and behind the key ``after``, in the order of the keys."""
        for name, key in sorted(self.objects):
            if name != bucket or not key.startswith(prefix) or key <= after:
                continue
            if (name, key) in self.objects:
                modified = self.modified.get((name, key), 0.0)
                body = self.objects[name, key]
                yield ListedObject(key, len(body), modified, self._etag(body))

    async def folders(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the folders directly under ``prefix``, which ends with ``/``."""
        names = {
            key.removeprefix(prefix).partition("/")[0]
            for name, key in self.objects
            if name == bucket and key.startswith(prefix) and "/" in key.removeprefix(prefix)
        }
        for name in sorted(names):
            yield name

    @staticmethod
    def _etag(body: bytes) -> str:
        return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
