"""The serving process's view of S3: a narrow protocol and boto3 behind it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable

CHUNK_BYTES = 1024 * 1024
PART_BYTES = 64 * 1024 * 1024
MULTIPART_BYTES = 1024**3
"""Larger files go up in parts. Source: AWS S3, one PUT takes at most 5 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One entry of a listing."""

    key: str
    etag: str
    size_bytes: int
    last_modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """What came with an object, without its bytes."""

    etag: str = ""
    version_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    date: float = 0.0


class ObjectStore(Protocol):
    """S3 with the credentials of the current invocation; any method may raise StorageUnavailable.

    Raises:
        ObjectNotFound: by ``get`` and ``download``, where there is no such object.
    """

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of a small object."""

    def download(self, bucket: str, key: str, write: Callable[[bytes], object]) -> StoredObject:
        """Hand the bytes of an object to ``write``, chunk by chunk."""

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes | BinaryIO,
        *,
        size_bytes: int | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        if_absent: bool = False,
    ) -> StoredObject:
        """Store ``body`` (a file: from its position, ``size_bytes`` long).

        Raises:
            PreconditionFailed: ``if_absent`` and the object exists.
        """

    def delete(self, bucket: str, key: str) -> str | None:
        """Delete the object and return the version id of the delete marker."""

    def restore(
        self, bucket: str, key: str, version_id: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make an older version the newest again, with ``tags``."""

    def list(self, bucket: str, prefix: str) -> Iterator[ListedObject]:
        """Yield what is under ``prefix``, in key order."""


class S3ObjectStore:
    """ObjectStore on S3 by one boto3 client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of a small object (raises ObjectNotFound)."""
        buffer = io.BytesIO()
        self.download(bucket, key, buffer.write)
        return buffer.getvalue()

    def download(self, bucket: str, key: str, write: Callable[[bytes], object]) -> StoredObject:
        """Hand the bytes of an object to ``write`` (raises ObjectNotFound)."""
        with _Translated(key):
            answer = self._client.get_object(Bucket=bucket, Key=key)
            with answer["Body"] as body:
                for chunk in iter(lambda: body.read(CHUNK_BYTES), b""):
                    write(chunk)
        return _stored(answer)

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes | BinaryIO,
        *,
        size_bytes: int | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        if_absent: bool = False,
    ) -> StoredObject:
        """Store ``body`` (raises PreconditionFailed)."""
        arguments: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if metadata:
            arguments["Metadata"] = dict(metadata)
        if tags:
            arguments["Tagging"] = urlencode(tags)
        with _Translated(key, tagged=bool(tags)):
            if not isinstance(body, bytes) and (size_bytes or 0) > MULTIPART_BYTES:
                return self._put_parts(arguments, body)
            if if_absent:
                arguments["IfNoneMatch"] = "*"
            if size_bytes is not None:
                arguments["ContentLength"] = size_bytes
            return _stored(self._client.put_object(Body=body, **arguments))

    def _put_parts(self, arguments: dict[str, Any], body: BinaryIO) -> StoredObject:
        upload_id = self._client.create_multipart_upload(**arguments)["UploadId"]
        place = {"Bucket": arguments["Bucket"], "Key": arguments["Key"], "UploadId": upload_id}
        parts = []
        try:
            for number, chunk in enumerate(iter(lambda: body.read(PART_BYTES), b""), start=1):
                answer = self._client.upload_part(Body=chunk, PartNumber=number, **place)
                parts.append({"ETag": answer["ETag"], "PartNumber": number})
            done = self._client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **place)
        except BaseException:
            self._client.abort_multipart_upload(**place)
            raise
        return _stored(done)

    def delete(self, bucket: str, key: str) -> str | None:
        """Delete the object and return the version id of the delete marker."""
        with _Translated(key):
            answer = self._client.delete_object(Bucket=bucket, Key=key)
        version_id: str | None = answer.get("VersionId")
        return version_id

    def restore(
        self, bucket: str, key: str, version_id: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make an older version the newest again, with ``tags``."""
        arguments: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if tags:
            # Copying the old tags would need the right to read them.
            arguments |= {"TaggingDirective": "REPLACE", "Tagging": urlencode(tags)}
        source = {"Bucket": bucket, "Key": key, "VersionId": version_id}
        with _Translated(key, tagged=bool(tags)):
            self._client.copy_object(CopySource=source, **arguments)

    def list(self, bucket: str, prefix: str) -> Iterator[ListedObject]:
        """Yield what is under ``prefix``, in key order."""
        arguments = {"Bucket": bucket, "Prefix": prefix}
        while True:
            with _Translated(prefix):
                answer = self._client.list_objects_v2(**arguments)
            for entry in answer.get("Contents", ()):
                yield ListedObject(
                    key=entry["Key"],
                    etag=entry["ETag"],
                    size_bytes=entry["Size"],
                    last_modified=entry["LastModified"].timestamp(),
                )
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]


class _Translated:
    """Turns boto3's errors about ``key`` into ours."""

    __slots__ = ("_key", "_tagged")

    def __init__(self, key: str, *, tagged: bool = False) -> None:
        self._key = key
        self._tagged = tagged

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ClientError):
            raise _refusal(error, self._key, tagged=self._tagged) from error
        # An OSError is not S3's: it comes from whoever takes the bytes, such as a full disk.
        if isinstance(error, BotoCoreError):
            raise StorageUnavailable(f"S3 did not answer for {self._key}: {error}") from error


def _refusal(error: ClientError, key: str, *, tagged: bool) -> StorageUnavailable:
    code = error.response.get("Error", {}).get("Code", "")
    if code in {"NoSuchKey", "NoSuchVersion", "404", "NotFound"}:
        return ObjectNotFound(f"there is no object {key}")
    if code in {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}:
        return PreconditionFailed(f"another writer holds {key}")
    text = f"S3 refused {error.operation_name} of {key}: {code or error}"
    if tagged and code in {"AccessDenied", "403"}:
        text += "; objects of a run are tagged, which takes the permission s3:PutObjectTagging too"
    return StorageUnavailable(text)


def _stored(answer: Mapping[str, Any]) -> StoredObject:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = headers.get("date")
    return StoredObject(
        etag=answer.get("ETag", ""),
        version_id=answer.get("VersionId"),
        metadata=answer.get("Metadata", {}),
        date=parsedate_to_datetime(date).timestamp() if date else 0.0,
    )
