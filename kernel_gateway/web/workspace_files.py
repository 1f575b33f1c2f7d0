"""Files of a workspace as streams: a narrow protocol, boto3 behind it, and one in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, TypeVar

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kernel_gateway import aws
from kernel_gateway.config import Deployment
from kernel_gateway.errors import NotFound, StorageError
from kernel_gateway.objects import translated

CHUNK_BYTES = 1 << 20
PART_BYTES = 8 << 20
THREADS = 8
PART_THREADS = 2
DELETE_BATCH = 1000
"""Source: S3 DeleteObjects, at most 1,000 keys a request."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAttributes:
    """What is kept beside a file's bytes.

    Attributes:
        sha256: digest of the bytes, hex; None where another tool stored the file.
        mode: permission bits.
        mtime_ns: modification time, nanoseconds since 1970.
    """

    sha256: str | None
    mode: int = 0o644
    mtime_ns: int

    def to_metadata(self) -> dict[str, str]:
        """Return the object's user metadata."""
        found = {"mode": f"{self.mode:04o}", "mtime-ns": str(self.mtime_ns)}
        return found if self.sha256 is None else {**found, "sha256": self.sha256}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str], modified_ns: int) -> FileAttributes:
        """Return what an object's user metadata says; what is missing or odd gets a default."""
        try:
            mode = int(metadata.get("mode", "644"), 8) & 0o777
            mtime_ns = int(metadata.get("mtime-ns", modified_ns))
        except ValueError:
            mode, mtime_ns = 0o644, modified_ns
        return cls(sha256=metadata.get("sha256"), mode=mode, mtime_ns=mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One line of a listing.

    Attributes:
        path: relative to the listed prefix; a folder's ends in ``/``.
        size_bytes: 0 for a folder.
        modified_s: seconds since 1970, None for a folder.
    """

    path: str
    size_bytes: int = 0
    modified_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """A file being read.

    Attributes:
        size_bytes: how many bytes will come.
        attributes: what is kept beside them.
        chunks: the bytes, at most CHUNK_BYTES at a time.
    """

    size_bytes: int
    attributes: FileAttributes
    chunks: AsyncIterator[bytes]


class FileStore(Protocol):
    """Files by key in the workspaces bucket. Every method may raise StorageError."""

    def in_bucket(self, bucket: str) -> FileStore:
        """Return the same for another bucket."""

    async def entries(self, prefix: str, *, recursive: bool) -> list[FileEntry]:
        """Return what stands under ``prefix``, in order; one level, or all of it."""

    async def open(self, key: str) -> OpenFile:
        """Return the file's attributes and its bytes as a stream (raises NotFound)."""

    async def put(self, key: str, body: BinaryIO, attributes: FileAttributes) -> None:
        """Store what the file ``body``, read from its beginning, holds."""

    async def copy_version(self, key: str, version_id: str, target: str) -> None:
        """Store a version of a file under another key (raises NotFound)."""

    async def version_before(self, key: str, version_id: str) -> str | None:
        """Return the version of a file before this one, None where there is none."""

    async def is_file(self, key: str) -> bool:
        """Return whether there is a file of this key."""

    async def is_folder(self, prefix: str) -> bool:
        """Return whether anything stands at or under ``prefix``, which ends in ``/``."""

    async def delete(self, key: str) -> None:
        """Delete the file (raises NotFound)."""

    async def delete_all(self, prefix: str) -> int:
        """Delete everything under ``prefix`` and return how many objects that was."""


class S3FileStore:
    """FileStore on the versioned workspaces bucket: what is deleted stays recoverable."""

    def __init__(self, client: Any, bucket: str, executor: ThreadPoolExecutor) -> None:
        self._client = client
        self._bucket = bucket
        self._executor = executor

    @classmethod
    def create(cls, deployment: Deployment) -> S3FileStore:
        """Return a store for the deployment's workspaces bucket."""
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"} if deployment.s3_endpoint else {},
            max_pool_connections=THREADS * PART_THREADS,
            connect_timeout=5,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        client = aws.client("s3", config=config, **deployment.client_arguments("s3"))
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        return cls(client, deployment.stack.workspaces, executor)

    def in_bucket(self, bucket: str) -> S3FileStore:
        """Return the same for another bucket, with the connections of this one."""
        return S3FileStore(self._client, bucket, self._executor)

    async def entries(self, prefix: str, *, recursive: bool) -> list[FileEntry]:
        """Return what stands under ``prefix``, in order; one level, or all of it."""
        return await self._call(lambda: self._entries(prefix, recursive=recursive), prefix)

    async def open(self, key: str) -> OpenFile:
        """Return the file's attributes and its bytes as a stream (raises NotFound)."""
        answer = await self._call(
            lambda: self._client.get_object(Bucket=self._bucket, Key=key), key
        )
        modified_ns = int(answer["LastModified"].timestamp() * 1e9)
        return OpenFile(
            size_bytes=answer["ContentLength"],
            attributes=FileAttributes.from_metadata(answer["Metadata"], modified_ns),
            chunks=self._chunks(answer["Body"], key),
        )

    async def put(self, key: str, body: BinaryIO, attributes: FileAttributes) -> None:
        """Store what the file ``body`` holds; a large one goes in parts."""
        transfer = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=PART_THREADS,
        )

        # By a path, so that parts are read as they are sent: of an open file boto3 keeps ten in
        # memory. The file itself has no name.
        path = f"/proc/self/fd/{body.fileno()}"

        def upload() -> None:
            body.flush()
            self._client.upload_file(
                path,
                self._bucket,
                key,
                ExtraArgs={"Metadata": attributes.to_metadata()},
                Config=transfer,
            )

        await self._call(upload, key)

    async def copy_version(self, key: str, version_id: str, target: str) -> None:
        """Store a version of a file, and what is kept beside it, under another key.

        Raises:
            NotFound: there is no such version.
        """
        source = {"Bucket": self._bucket, "Key": key, "VersionId": version_id}
        await self._call(
            lambda: self._client.copy_object(Bucket=self._bucket, Key=target, CopySource=source),
            key,
        )

    async def version_before(self, key: str, version_id: str) -> str | None:
        """Return the version of a file before this one, None where there is none."""
        return await self._call(lambda: self._version_before(key, version_id), key)

    def _version_before(self, key: str, version_id: str) -> str | None:
        paginator = self._client.get_paginator("list_object_versions")
        versions, marks = [], []
        for page in paginator.paginate(Bucket=self._bucket, Prefix=key):
            versions += [each for each in page.get("Versions", ()) if each["Key"] == key]
            marks += [each for each in page.get("DeleteMarkers", ()) if each["Key"] == key]
        for number, each in enumerate(versions[:-1]):
            if each["VersionId"] == version_id:
                # The newest comes first.
                return str(versions[number + 1]["VersionId"])
        for mark in marks:
            if mark["VersionId"] == version_id:
                older = [v for v in versions if v["LastModified"] <= mark["LastModified"]]
                # Of the same second it is not known which of the two was first.
                is_known = older and older[0]["LastModified"] < mark["LastModified"]
                return str(older[0]["VersionId"]) if is_known else None
        return None

    async def is_file(self, key: str) -> bool:
        """Return whether there is a file of this key."""
        try:
            await self._call(lambda: self._client.head_object(Bucket=self._bucket, Key=key), key)
        except NotFound:
            return False
        return True

    async def is_folder(self, prefix: str) -> bool:
        """Return whether anything stands at or under ``prefix``, which ends in ``/``."""
        arguments = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": 1}
        answer = await self._call(lambda: self._client.list_objects_v2(**arguments), prefix)
        return bool(answer.get("Contents"))

    async def delete(self, key: str) -> None:
        """Delete the file (raises NotFound)."""

        def remove() -> None:
            self._client.head_object(Bucket=self._bucket, Key=key)
            self._client.delete_object(Bucket=self._bucket, Key=key)

        await self._call(remove, key)

    async def delete_all(self, prefix: str) -> int:
        """Delete everything under ``prefix`` and return how many objects that was."""

        def remove() -> int:
            keys = [prefix + entry.path for entry in self._listed(prefix, recursive=True)]
            for start in range(0, len(keys), DELETE_BATCH):
                batch = [{"Key": key} for key in keys[start : start + DELETE_BATCH]]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
                )
                if answer.get("Errors"):
                    raise StorageError(f"S3 did not delete {answer['Errors'][0].get('Key')}")
            return len(keys)

        return await self._call(remove, prefix)

    def close(self) -> None:
        """Close connections and threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _entries(self, prefix: str, *, recursive: bool) -> list[FileEntry]:
        # The folder's own marker, where it has one, is not one of its entries.
        found = (entry for entry in self._listed(prefix, recursive=recursive) if entry.path)
        return sorted(found, key=lambda entry: entry.path)

    def _listed(self, prefix: str, *, recursive: bool) -> list[FileEntry]:
        arguments = {"Bucket": self._bucket, "Prefix": prefix}
        if not recursive:
            arguments["Delimiter"] = "/"
        found: list[FileEntry] = []
        for page in self._client.get_paginator("list_objects_v2").paginate(**arguments):
            found += [
                FileEntry(
                    path=entry["Key"].removeprefix(prefix),
                    size_bytes=entry["Size"],
                    modified_s=entry["LastModified"].timestamp(),
                )
                for entry in page.get("Contents", ())
            ]
            found += [
                FileEntry(path=common["Prefix"].removeprefix(prefix))
                for common in page.get("CommonPrefixes", ())
            ]
        return found

    async def _chunks(self, body: Any, key: str) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._call(lambda: body.read(CHUNK_BYTES), key):
                yield chunk
        finally:
            body.close()

    async def _call(self, function: Callable[[], T], key: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        except ClientError as error:
            raise translated(error, key) from error
        except (BotoCoreError, Boto3Error) as error:
            raise StorageError(f"S3 did not answer for {key}: {error}") from error


@dataclass
class MemoryFileStore:
    """FileStore in memory, for tests of what stands on it."""

    files: dict[str, tuple[bytes, FileAttributes]] = field(default_factory=dict)
    versions: dict[tuple[str, str], tuple[bytes, FileAttributes]] = field(default_factory=dict)

    def in_bucket(self, bucket: str) -> MemoryFileStore:
        """Return itself: keys of two buckets are never the same."""
        return self

    async def entries(self, prefix: str, *, recursive: bool) -> list[FileEntry]:
        """Return what stands under ``prefix``, in order; one level, or all of it."""
        found: dict[str, FileEntry] = {}
        for key, (body, _) in self.files.items():
            path = key.removeprefix(prefix)
            if not key.startswith(prefix) or not path:
                continue
            if not recursive and "/" in path:
                path = path.partition("/")[0] + "/"
                found[path] = FileEntry(path=path)
            else:
                found[path] = FileEntry(path=path, size_bytes=len(body), modified_s=time.time())
        return [found[path] for path in sorted(found)]

    async def open(self, key: str) -> OpenFile:
        """Return the file's attributes and its bytes as a stream (raises NotFound)."""
        if key not in self.files:
            raise NotFound(f"there is no object {key}")
        body, attributes = self.files[key]

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(body), CHUNK_BYTES):
                yield body[start : start + CHUNK_BYTES]

        return OpenFile(size_bytes=len(body), attributes=attributes, chunks=chunks())

    async def put(self, key: str, body: BinaryIO, attributes: FileAttributes) -> None:
        """Store what the file ``body``, read from its beginning, holds."""
        body.seek(0)
        self.files[key] = (body.read(), attributes)

    async def copy_version(self, key: str, version_id: str, target: str) -> None:
        """Store a version of a file under another key (raises NotFound)."""
        if (key, version_id) not in self.versions:
            raise NotFound(f"there is no version {version_id} of {key}")
        self.files[target] = self.versions[key, version_id]

    async def version_before(self, key: str, version_id: str) -> str | None:
        """Return the version of a file before this one, None where there is none."""
        known = [version for name, version in self.versions if name == key]
        place = known.index(version_id) if version_id in known else 0
        return known[place - 1] if place else None

    async def is_file(self, key: str) -> bool:
        """Return whether there is a file of this key."""
        return key in self.files

    async def is_folder(self, prefix: str) -> bool:
        """Return whether anything stands at or under ``prefix``, which ends in ``/``."""
        return any(key.startswith(prefix) for key in self.files)

    async def delete(self, key: str) -> None:
        """Delete the file (raises NotFound)."""
        if self.files.pop(key, None) is None:
            raise NotFound(f"there is no object {key}")

    async def delete_all(self, prefix: str) -> int:
        """Delete everything under ``prefix`` and return how many objects that was."""
        keys = [key for key in self.files if key.startswith(prefix)]
        for key in keys:
            del self.files[key]
        return len(keys)
