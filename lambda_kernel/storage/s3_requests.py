"""S3 requests with little between them and the socket: signed by botocore, sent by urllib3.

A workspace is thousands of small requests, a cell is two of the gateway's. boto3's client spends
1.6 ms of CPU on each, asks leave for every body (``Expect: 100-continue``) and leaves Nagle's
algorithm on; this spends 0.5 ms. Where a bucket is, and how requests are signed, is still
botocore's business.
"""

from __future__ import annotations

import base64
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from botocore.httpsession import get_cert_path
from urllib3.exceptions import HTTPError

from lambda_kernel.storage.refusals import refusal_text

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

    @property
    def name(self) -> str:
        """What it is about, for people."""
        return self.key or self.query.get("prefix", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One entry of a listing; ``last_modified`` is Unix time."""

    key: str
    etag: str
    size_bytes: int
    last_modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a listing, and what the next part is asked for with; None = it was the last.

    ``folders`` are the prefixes that end with the delimiter, where one was asked for.
    """

    objects: Sequence[ListedObject]
    folders: Sequence[str]
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Errors:
    """What is raised, made of a text for people.

    Attributes:
        not_found: there is no such object.
        precondition_failed: another writer was there.
        unavailable: S3 did not answer, or refused.
    """

    not_found: Callable[[str], Exception]
    precondition_failed: Callable[[str], Exception]
    unavailable: Callable[[str], Exception]


class S3Requests:
    """Sends requests over kept connections; used by many threads at once.

    Args:
        client: a boto3 S3 client, asked once for the address of each bucket.
        credentials: what to sign with, asked before each request.
        errors: what every method raises.
        count: called once for each request that goes out.
        connections: how many are kept.
        read_timeout_s: so long S3 may say nothing.
        ca_bundle: path of certificates to trust; None = botocore's.
        proxy_url: through which all goes; None = straight.
    """

    def __init__(
        self,
        client: Any,
        credentials: BotoCredentials,
        *,
        errors: S3Errors,
        count: Callable[..., None] = lambda **_: None,
        connections: int = 16,
        read_timeout_s: float = 60,
        ca_bundle: str | None = None,
        proxy_url: str | None = None,
    ) -> None:
        self._client = client
        self._credentials = credentials
        self._errors = errors
        self._count = count
        self._bases: dict[str, str] = {}
        options: dict[str, Any] = {
            "num_pools": 8,
            "maxsize": connections,
            "blocksize": BLOCK_BYTES,
            "retries": False,
            "timeout": urllib3.Timeout(connect=5, read=read_timeout_s),
            "ca_certs": ca_bundle or get_cert_path(True),
        }
        self._pool = (
            urllib3.PoolManager(**options)
            if proxy_url is None
            else urllib3.ProxyManager(proxy_url, **options)
        )

    def send(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Return the answer, its body not read yet; the caller drains or closes it.

        Raises:
            Exception: one of ``errors``.
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
                    raise self._silence(request, error) from error
                continue
            if answer.status < 300:
                return answer
            refusal = self._refusal(request, answer)
            if last or answer.status not in _AGAIN:
                raise refusal
        raise AssertionError("unreachable")

    def body(self, request: Request) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return the answer and its body (raises as ``send``)."""
        answer = self.send(request)
        return answer, self._read(request, answer)

    def chunks(
        self, request: Request, answer: urllib3.BaseHTTPResponse, size_bytes: int
    ) -> Iterator[bytes]:
        """Yield the body of an answer in pieces (raises as ``send`` where it is cut short)."""
        try:
            yield from answer.stream(size_bytes, decode_content=False)
        except HTTPError as error:
            raise self._silence(request, error) from error

    def page(
        self,
        bucket: str,
        prefix: str,
        *,
        after: str = "",
        delimiter: str = "",
        token: str | None = None,
    ) -> Page:
        """Return a part of what is under ``prefix``, in key order (raises as ``send``).

        Args:
            bucket: which bucket.
            prefix: how the keys begin.
            after: keys up to this one are left out.
            delimiter: keys that have it behind the prefix are told as one folder each.
            token: that of the part before; None = the first.
        """
        query = {"list-type": "2", "prefix": prefix}
        query |= {"start-after": after} if after else {}
        query |= {"delimiter": delimiter} if delimiter else {}
        query |= {} if token is None else {"continuation-token": token}
        found = self.xml(self.body(Request(method="GET", bucket=bucket, query=query))[1])
        is_cut = found.findtext("IsTruncated") == "true"
        return Page(
            objects=tuple(map(_listed, found.iter("Contents"))),
            folders=tuple(each.findtext("Prefix", "") for each in found.iter("CommonPrefixes")),
            next_token=found.findtext("NextContinuationToken", "") if is_cut else None,
        )

    def xml(self, body: bytes) -> ElementTree.Element:
        """Return S3's XML without its namespace, which differs from server to server."""
        try:
            return _parsed(body)
        except ElementTree.ParseError as error:
            raise self._errors.unavailable("S3 answered something that is no XML") from error

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

    def _read(self, request: Request, answer: urllib3.BaseHTTPResponse) -> bytes:
        try:
            return answer.read(decode_content=False)
        except HTTPError as error:
            raise self._silence(request, error) from error
        finally:
            answer.release_conn()

    def _silence(self, request: Request, error: HTTPError) -> Exception:
        text = f"S3 did not answer for {request.name}: {type(error).__name__}"
        return self._errors.unavailable(text)

    def _refusal(self, request: Request, answer: urllib3.BaseHTTPResponse) -> Exception:
        body = self._read(request, answer)
        code = message = ""
        if body:
            with suppress(ElementTree.ParseError):
                told = _parsed(body)
                code, message = told.findtext("Code") or "", told.findtext("Message") or ""
        if code in {"NoSuchKey", "NoSuchVersion"} or (answer.status == 404 and not code):
            return self._errors.not_found(f"there is no object {request.name}")
        if answer.status in {409, 412}:
            return self._errors.precondition_failed(f"another writer holds {request.name}")
        why = refusal_text(code, message, answer.headers.get("Date"))
        text = f"S3 refused {request.method} of {request.name}: {why or answer.status}"
        if "x-amz-tagging" in request.headers and answer.status == 403:
            text += "; " + TAGGING
        return self._errors.unavailable(text)


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


def _parsed(body: bytes) -> ElementTree.Element:
    root = ElementTree.fromstring(body)  # noqa: S314  (S3's own words, over its connection)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _listed(entry: ElementTree.Element) -> ListedObject:
    modified = entry.findtext("LastModified", "").replace("Z", "+00:00")
    return ListedObject(
        key=entry.findtext("Key", ""),
        etag=entry.findtext("ETag", ""),
        size_bytes=int(entry.findtext("Size", "0")),
        last_modified=datetime.fromisoformat(modified).timestamp(),
    )
