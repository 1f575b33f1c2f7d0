"""The serving process's view of S3: a narrow protocol, and S3 behind it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlencode
from xml.etree import ElementTree

from botocore.exceptions import BotoCoreError, ClientError

from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable
from lambda_kernel.storage.refusals import refusal_of
from lambda_kernel.storage.s3_requests import TAGGING, ListedObject, Request, S3Errors, S3Requests

_META = "x-amz-meta-"
CHUNK_BYTES = 1024 * 1024
PART_BYTES = 64 * 1024 * 1024
MULTIPART_BYTES = 1024**3
"""Larger files go up in parts. Source: AWS S3, one PUT takes at most 5 GiB."""
DELETE_KEYS = 1000
"""Source: AWS S3, DeleteObjects."""
ERRORS = S3Errors(
    not_found=ObjectNotFound,
    precondition_failed=PreconditionFailed,
    unavailable=StorageUnavailable,
)


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
        ObjectNotFound: by ``get``, ``head`` and ``download``, where there is no such object.
    """

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of a small object."""

    def download(
        self,
        bucket: str,
        key: str,
        write: Callable[[bytes], object],
        span: tuple[int, int] | None = None,
    ) -> StoredObject:
        """Hand the bytes of an object to ``write``, chunk by chunk.

        ``span`` is offset and length of the part that is wanted; None = all of it.
        """

    def head(self, bucket: str, key: str) -> StoredObject:
        """Return what comes with an object, without its bytes (raises ObjectNotFound)."""

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
        """Store ``body`` (a file: from its position, ``size_bytes`` long).

        Where ``sha256`` is known, AWS refuses other bytes. ``if_match`` is the ETag that the object
        must have now.

        Raises:
            PreconditionFailed: ``if_absent`` and the object exists, or not ``if_match``.
        """

    def delete(self, bucket: str, key: str) -> str | None:
        """Delete the object and return the version id of the delete marker."""

    def delete_many(self, bucket: str, object_keys: Sequence[str]) -> dict[str, str | None]:
        """Delete at most DELETE_KEYS objects by one request.

        Returns:
            The version id of the delete marker by key, without the keys that were refused.
        """

    def restore(
        self, bucket: str, key: str, version_id: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make an older version the newest again, with ``tags``."""

    def list(
        self, bucket: str, prefix: str, after: str = "", until: str = ""
    ) -> Iterator[ListedObject]:
        """Yield what is under ``prefix``, in key order.

        Keys up to ``after`` are left out, and those after ``until``; empty = no bound.
        """


class S3ObjectStore:
    """ObjectStore on S3.

    Args:
        client: boto3's, for what is rare.
        requests: the same S3, for what is frequent.
    """

    def __init__(self, client: Any, requests: S3Requests) -> None:
        self._client = client
        self._requests = requests

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of a small object (raises ObjectNotFound)."""
        return self._requests.body(Request(method="GET", bucket=bucket, key=key))[1]

    def download(
        self,
        bucket: str,
        key: str,
        write: Callable[[bytes], object],
        span: tuple[int, int] | None = None,
    ) -> StoredObject:
        """Hand the bytes of an object to ``write`` (raises ObjectNotFound)."""
        headers = {}
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[0] + span[1] - 1}"
        request = Request(method="GET", bucket=bucket, key=key, headers=headers)
        answer = self._requests.send(request)
        try:
            for chunk in self._requests.chunks(request, answer, CHUNK_BYTES):
                write(chunk)
        finally:
            answer.release_conn()
        return _stored(answer.headers)

    def head(self, bucket: str, key: str) -> StoredObject:
        """Return what comes with an object, without its bytes (raises ObjectNotFound)."""
        answer, _ = self._requests.body(Request(method="HEAD", bucket=bucket, key=key))
        return _stored(answer.headers)

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
        if not isinstance(body, bytes) and (size_bytes or 0) > MULTIPART_BYTES:
            arguments: dict[str, Any] = {"Bucket": bucket, "Key": key}
            arguments |= {"Metadata": dict(metadata)} if metadata else {}
            arguments |= {"Tagging": urlencode(tags)} if tags else {}
            condition = {"IfNoneMatch": "*"} if if_absent else {}
            condition |= {"IfMatch": if_match} if if_match is not None else {}
            with _Translated(key, tagged=bool(tags)):
                return self._put_parts(arguments, body, condition)
        headers = {f"x-amz-meta-{name}": value for name, value in (metadata or {}).items()}
        headers |= {"x-amz-tagging": urlencode(tags)} if tags else {}
        headers |= {"If-None-Match": "*"} if if_absent else {}
        headers |= {"If-Match": if_match} if if_match is not None else {}
        answer, _ = self._requests.body(
            Request(
                method="PUT",
                bucket=bucket,
                key=key,
                headers=headers,
                body=body,
                size_bytes=size_bytes,
                sha256=sha256,
            )
        )
        return _stored(answer.headers)

    def _put_parts(
        self, arguments: dict[str, Any], body: BinaryIO, condition: dict[str, str]
    ) -> StoredObject:
        upload_id = self._client.create_multipart_upload(**arguments)["UploadId"]
        place = {"Bucket": arguments["Bucket"], "Key": arguments["Key"], "UploadId": upload_id}
        parts = []
        try:
            for number, chunk in enumerate(iter(lambda: body.read(PART_BYTES), b""), start=1):
                answer = self._client.upload_part(
                    Body=chunk, ContentMD5=_md5(chunk), PartNumber=number, **place
                )
                parts.append({"ETag": answer["ETag"], "PartNumber": number})
            done = self._client.complete_multipart_upload(
                MultipartUpload={"Parts": parts}, **place, **condition
            )
        except BaseException:
            self._client.abort_multipart_upload(**place)
            raise
        headers = done["ResponseMetadata"]["HTTPHeaders"]
        return StoredObject(
            etag=done["ETag"], version_id=done.get("VersionId"), date=_seconds(headers.get("date"))
        )

    def delete(self, bucket: str, key: str) -> str | None:
        """Delete the object and return the version id of the delete marker."""
        answer, _ = self._requests.body(Request(method="DELETE", bucket=bucket, key=key))
        return answer.headers.get("x-amz-version-id")

    def delete_many(self, bucket: str, object_keys: Sequence[str]) -> dict[str, str | None]:
        """Delete objects by one request; return the delete markers of those that were deleted."""
        root = ElementTree.Element("Delete")
        for key in object_keys:
            ElementTree.SubElement(ElementTree.SubElement(root, "Object"), "Key").text = key
        body = ElementTree.tostring(root, "utf-8")
        answer = self._requests.body(
            Request(
                method="POST",
                bucket=bucket,
                query={"delete": ""},
                headers={"Content-MD5": _md5(body)},
                body=body,
            )
        )[1]
        return {
            entry.findtext("Key", ""): entry.findtext("DeleteMarkerVersionId")
            for entry in self._requests.xml(answer).iter("Deleted")
        }

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

    def list(
        self, bucket: str, prefix: str, after: str = "", until: str = ""
    ) -> Iterator[ListedObject]:
        """Yield what is under ``prefix``, in key order, after one key and until another."""
        token = None
        while True:
            page = self._requests.page(bucket, prefix, after=after, token=token)
            for listed in page.objects:
                if until and listed.key > until:
                    return
                yield listed
                # What follows the last key that is wanted is not asked for.
                if listed.key == until:
                    return
            token = page.next_token
            if token is None:
                return


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
    why = refusal_of(error.response) or error
    text = f"S3 refused {error.operation_name} of {key}: {why}"
    if tagged and code in {"AccessDenied", "403"}:
        text += "; " + TAGGING
    return StorageUnavailable(text)


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def _stored(headers: Mapping[str, str]) -> StoredObject:
    names = [name for name in headers if name.lower().startswith(_META)]
    return StoredObject(
        etag=headers.get("etag", ""),
        version_id=headers.get("x-amz-version-id"),
        metadata={name.lower().removeprefix(_META): headers[name] for name in names},
        date=_seconds(headers.get("date")),
    )


def _seconds(date: str | None) -> float:
    return parsedate_to_datetime(date).timestamp() if date else 0.0
