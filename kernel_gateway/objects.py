"""The gateway's view of S3: a narrow protocol, S3 behind it, and one in memory."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3 import BaseHTTPResponse

from kernel_gateway import aws
from kernel_gateway.config import Deployment
from kernel_gateway.errors import NotFound, PreconditionFailed, StorageError
from kernel_gateway.retention import ObjectLock
from lambda_kernel.storage.refusals import refusal_of
from lambda_kernel.storage.s3_requests import ListedObject, Page, Request, S3Errors, S3Requests

CONNECTIONS = 16
READ_TIMEOUT_S = 30.0
NO_LOCK = "ObjectLockConfigurationNotFoundError"
_IN_THIS_THREAD = TransferConfig(use_threads=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes and its ETag, for compare-and-set."""

    body: bytes
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

    async def exists(self, bucket: str, key: str) -> bool:
        """Return whether there is such an object."""

    async def copy(self, bucket: str, key: str, target: str) -> None:
        """Store what an object holds under another key of its bucket, too (raises NotFound)."""

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
    """ObjectStore on S3, whose requests wait in threads of their own."""

    def __init__(self, client: Any, requests: S3Requests, executor: ThreadPoolExecutor) -> None:
        # For what is rare.
        self._client = client
        self._requests = requests
        self._executor = executor

    @classmethod
    def create(cls, deployment: Deployment) -> S3ObjectStore:
        """Return a store for the deployment's S3.

        Raises:
            ConfigError: there are no credentials.
        """
        own = deployment.s3_endpoint is not None
        config = Config(
            signature_version="s3v4",
            # "virtual", not left open: else botocore signs addresses in us-east-1's domain.
            s3={"addressing_style": "path" if own else "virtual"},
            connect_timeout=5,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        arguments = deployment.client_arguments("s3")
        client = aws.client("s3", config=config, **arguments)
        requests = S3Requests(
            client,
            aws.credentials(
                own=own,
                access_key_id=deployment.access_key_id,
                secret_access_key=deployment.secret_access_key,
            ),
            errors=S3Errors(
                not_found=NotFound,
                precondition_failed=PreconditionFailed,
                unavailable=StorageError,
            ),
            connections=CONNECTIONS,
            read_timeout_s=READ_TIMEOUT_S,
            ca_bundle=aws.ca_bundle(own=own),
            proxy_url=None if own else aws.proxy_url(client.meta.endpoint_url),
        )
        return cls(client, requests, ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3"))

    async def get(self, bucket: str, key: str) -> StoredObject:
        """Return the object (raises NotFound)."""
        answer, body = await self._send(Request(method="GET", bucket=bucket, key=key))
        return StoredObject(body, answer.headers.get("ETag", ""))

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
        headers = {"If-None-Match": "*"} if if_absent else {}
        headers |= {"If-Match": if_match} if if_match is not None else {}
        if lock is not None:
            until = datetime.now(UTC) + lock.age
            headers["x-amz-object-lock-mode"] = lock.mode
            headers["x-amz-object-lock-retain-until-date"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        request = Request(method="PUT", bucket=bucket, key=key, headers=headers, body=body)
        answer, _ = await self._send(request)
        return answer.headers.get("ETag", "")

    async def exists(self, bucket: str, key: str) -> bool:
        """Return whether there is such an object."""
        try:
            await self._send(Request(method="HEAD", bucket=bucket, key=key))
        except NotFound:
            return False
        return True

    async def copy(self, bucket: str, key: str, target: str) -> None:
        """Store what an object holds under another key of its bucket, too (raises NotFound)."""
        source = {"Bucket": bucket, "Key": key}
        await self._call(
            lambda: self._client.copy_object(Bucket=bucket, Key=target, CopySource=source), key
        )

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
        await self._send(Request(method="DELETE", bucket=bucket, key=key))

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
        async for page in self._pages(bucket, prefix, after=after):
            for listed in page.objects:
                yield listed

    async def folders(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the folders directly under ``prefix``, which ends with ``/``."""
        async for page in self._pages(bucket, prefix, delimiter="/"):
            for folder in page.folders:
                yield folder.removeprefix(prefix).rstrip("/")

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
        self._requests.close()
        self._client.close()

    async def _pages(self, bucket: str, prefix: str, **bounds: str) -> AsyncIterator[Page]:
        token: str | None = None
        while True:
            page = await self._call(
                functools.partial(self._requests.page, bucket, prefix, token=token, **bounds),
                prefix,
            )
            yield page
            token = page.next_token
            if token is None:
                return

    async def _send(self, request: Request) -> tuple[BaseHTTPResponse, bytes]:
        return await self._call(functools.partial(self._requests.body, request), request.name)

    async def _call(self, function: Callable[[], T], name: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        except ClientError as error:
            raise translated(error, name) from error
        except BotoCoreError as error:
            raise StorageError(f"S3 did not answer for {name}: {error}") from error


def translated(error: ClientError, key: str) -> NotFound | PreconditionFailed | StorageError:
    """Return the error of ours that boto3's ``error`` about ``key`` means."""
    code = error.response.get("Error", {}).get("Code", "")
    if code in {"NoSuchKey", "NoSuchVersion", "404", "NotFound"}:
        return NotFound(f"there is no object {key}")
    if code in {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}:
        return PreconditionFailed(f"another writer holds {key}")
    return StorageError(f"S3 refused {key}: {refusal_of(error.response) or error}")


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

    async def exists(self, bucket: str, key: str) -> bool:
        """Return whether there is such an object."""
        return (bucket, key) in self.objects

    async def copy(self, bucket: str, key: str, target: str) -> None:
        """Store what an object holds under another key of its bucket, too (raises NotFound)."""
        await self.put(bucket, target, (await self.get(bucket, key)).body)

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
                etag, size = self._etag(self.objects[name, key]), len(self.objects[name, key])
                changed = self.modified.get((name, key), 0.0)
                yield ListedObject(key=key, etag=etag, size_bytes=size, last_modified=changed)

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
