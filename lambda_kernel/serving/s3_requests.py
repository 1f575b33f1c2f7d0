"""S3 requests with little between them and the socket: signed by botocore, sent by urllib3.

A workspace is thousands of small requests. boto3's client spends 1.6 ms of CPU on each, asks leave
for every body (``Expect: 100-continue``) and leaves Nagle's algorithm on; this spends 0.5 ms.
Where a bucket is, and how requests are signed, is still botocore's business.
"""

from __future__ import annotations

import base64
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from botocore.httpsession import get_cert_path
from urllib3.exceptions import HTTPError

from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable

ATTEMPTS = 3
BLOCK_BYTES = 1024 * 1024
TAGGING = "objects of a run are tagged, which takes the permission s3:PutObjectTagging too"
_PAUSE_S = 0.1
_AGAIN = {500, 502, 503, 504}
_SAFE = "/-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        method: HTTP's.
        bucket, key: what it is about; no key for a listing.
        query: parameters; an empty value is a bare name.
        headers: besides those that signing adds.
        body: bytes, or a file from its position on.
        size_bytes: of a body that is a file.
        sha256: of the body, where known: S3 refuses any other body.
    """

    method: str
    bucket: str
    key: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | BinaryIO = b""
    size_bytes: int | None = None
    sha256: str | None = None


class S3Requests:
    """Sends requests over kept connections; used by many threads at once.

    Args:
        client: a boto3 S3 client, asked once for the address of each bucket.
        credentials: what to sign with, asked before each request.
        count: called once for each request that goes out.
        connections: how many are kept.
        ca_bundle: path of certificates to trust; None = botocore's.
    """

    def __init__(
        self,
        client: Any,
        credentials: BotoCredentials,
        count: Callable[..., None],
        connections: int = 16,
        ca_bundle: str | None = None,
    ) -> None:
        self._client = client
        self._credentials = credentials
        self._count = count
        self._bases: dict[str, str] = {}
        self._pool = urllib3.PoolManager(
            num_pools=8,
            maxsize=connections,
            blocksize=BLOCK_BYTES,
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=60),
            ca_certs=ca_bundle or get_cert_path(True),
        )

    def send(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Return the answer, its body not read yet; the caller drains or closes it.

        Raises:
            ObjectNotFound, PreconditionFailed: S3 said so.
            StorageUnavailable: it did not answer, or refused.
        """
        start = 0 if isinstance(request.body, bytes) else request.body.tell()
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS
            if attempt > 1:
                time.sleep(random.uniform(0, _PAUSE_S * 2**attempt))  # noqa: S311
                if not isinstance(request.body, bytes):
                    request.body.seek(start)
            try:
                answer = self._send_once(request)
            except HTTPError as error:
                if last:
                    raise _silence(request, error) from error
                continue
            if answer.status < 300:
                return answer
            refusal = _refusal(request, answer)
            if last or answer.status not in _AGAIN:
                raise refusal
        raise AssertionError("unreachable")

    def body(self, request: Request) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return the answer and its body (raises as ``send``)."""
        answer = self.send(request)
        return answer, read_body(request, answer)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _send_once(self, request: Request) -> urllib3.BaseHTTPResponse:
        signed = self._signed(request)
        self._count()
        return self._pool.request(
            request.method,
            signed.url,
            body=request.body or None,
            headers=dict(signed.headers.items()),
            preload_content=False,
            decode_content=False,
            redirect=False,
        )

    def _signed(self, request: Request) -> AWSRequest:
        url = self.address(request.bucket) + quote(request.key, safe=_SAFE)
        if request.query:
            pairs = (f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in request.query.items())
            url += "?" + "&".join(sorted(pairs))
        size, sha256 = request.size_bytes or 0, request.sha256
        if isinstance(request.body, bytes):
            size, sha256 = len(request.body), sha256 or hashlib.sha256(request.body).hexdigest()
        elif sha256 is None:
            sha256 = _sha256_of(request.body)
        headers = {**request.headers, "Content-Length": str(size)}
        if request.method == "PUT":
            # A writer killed in the middle: SeaweedFS takes a body without its first byte for an
            # empty one, in spite of its length and of what was signed, unless a checksum is named.
            headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
        made = AWSRequest(method=request.method, url=url, headers=headers, data=request.body)
        made.context["sha256"] = sha256
        signer = _Signer(
            self._credentials.get_frozen_credentials(), "s3", self._client.meta.region_name
        )
        signer.add_auth(made)
        return made

    def address(self, bucket: str) -> str:
        """Return the URL that the keys of a bucket are appended to."""
        base = self._bases.get(bucket)
        if base is None:
            sample: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": "k"}
            )
            parts = urlsplit(sample)
            base = f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('k')}"
            self._bases[bucket] = base
        return base


class _Signer(S3SigV4Auth):  # type: ignore[misc]
    """Spares hashing a body again."""

    def payload(self, request: AWSRequest) -> str:
        known: str = request.context["sha256"]
        return known


def _sha256_of(body: BinaryIO) -> str:
    start = body.tell()
    digest = hashlib.sha256()
    while chunk := body.read(BLOCK_BYTES):
        digest.update(chunk)
    body.seek(start)
    return digest.hexdigest()


def body_chunks(
    request: Request, answer: urllib3.BaseHTTPResponse, size_bytes: int
) -> Iterator[bytes]:
    """Yield the body of an answer in pieces (raises StorageUnavailable where it is cut short)."""
    try:
        yield from answer.stream(size_bytes, decode_content=False)
    except HTTPError as error:
        raise _silence(request, error) from error


def read_body(request: Request, answer: urllib3.BaseHTTPResponse) -> bytes:
    """Return the whole body of an answer (raises StorageUnavailable where it is cut short)."""
    try:
        return answer.read(decode_content=False)
    except HTTPError as error:
        raise _silence(request, error) from error
    finally:
        answer.release_conn()


def parsed(body: bytes) -> ElementTree.Element:
    """Return S3's XML without its namespace, which differs from server to server."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  (S3's own words, over its connection)
    except ElementTree.ParseError as error:
        raise StorageUnavailable("S3 answered something that is no XML") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _silence(request: Request, error: HTTPError) -> StorageUnavailable:
    name = request.key or request.query.get("prefix", "")
    return StorageUnavailable(f"S3 did not answer for {name}: {type(error).__name__}")


def _refusal(request: Request, answer: urllib3.BaseHTTPResponse) -> StorageUnavailable:
    body = read_body(request, answer)
    code = ""
    if body:
        try:
            code = parsed(body).findtext("Code") or ""
        except StorageUnavailable:
            code = ""
    name = request.key or request.query.get("prefix", "")
    if code in {"NoSuchKey", "NoSuchVersion"} or (answer.status == 404 and not code):
        return ObjectNotFound(f"there is no object {name}")
    if answer.status in {409, 412}:
        return PreconditionFailed(f"another writer holds {name}")
    text = f"S3 refused {request.method} of {name}: {code or answer.status}"
    if "x-amz-tagging" in request.headers and answer.status == 403:
        text += "; " + TAGGING
    return StorageUnavailable(text)
