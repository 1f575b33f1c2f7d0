"""A small client of the gateway's REST API: blocking, streamed, standard library only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from kernel_gateway.client.endpoint import ApiError, Endpoint, refusal

BLOCK_BYTES = 1 << 18
TIMEOUT_S = 120
UPLOAD_TIMEOUT_S = 3600
"""The gateway answers an upload when S3 has all of it."""

Progress = Callable[[int], None]
"""Called with the number of bytes that were just moved."""


@dataclass(frozen=True, slots=True)
class RestClient:
    """Requests to one gateway.

    Attributes:
        endpoint: which gateway.
        timeout_s: for an answer that is no upload's.
    """

    endpoint: Endpoint
    timeout_s: float = TIMEOUT_S

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send JSON, return JSON (None for an empty answer).

        Raises:
            ApiError: the gateway is not there, or it refused.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._answer(method, path, data, {}) as response:
            text = response.read()
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise ApiError(f"{self.endpoint.url} answers as no gateway does") from None

    def upload(
        self, path: str, body: BinaryIO, headers: Mapping[str, str], size_bytes: int
    ) -> None:
        """PUT what ``body`` holds, block by block (raises ApiError)."""
        length = {"Content-Length": str(size_bytes)}
        with self._answer("PUT", path, body, {**headers, **length}) as response:
            response.read()

    def download(self, path: str, take: Callable[[bytes], object]) -> Mapping[str, str]:
        """Hand a file's bytes to ``take``, block by block, and return the answer's headers.

        Raises:
            ApiError: the gateway refused, or the file ended early.
        """
        with self._answer("GET", path, None, {}) as response:
            expected = response.length
            got = 0
            while block := response.read(BLOCK_BYTES):
                take(block)
                got += len(block)
            if expected not in {None, got}:
                raise ApiError(f"{path}: {got} bytes of {expected} came")
            return dict(response.headers)

    def events(self, path: str, body: Any) -> Iterator[tuple[str, Any]]:
        """POST JSON, and yield the name and JSON of each server-sent event of the answer.

        Raises:
            ApiError: the gateway is not there, it refused, or the answer ended early.
        """
        data = json.dumps(body).encode()
        with self._answer("POST", path, data, {"Accept": "text/event-stream"}) as response:
            name = ""
            for line in response:
                field, _, value = line.decode("utf-8").rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)

    @contextmanager
    def _answer(
        self, method: str, path: str, body: bytes | BinaryIO | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(self.endpoint.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        timeout_s = UPLOAD_TIMEOUT_S if method == "PUT" else self.timeout_s
        connection = kind(
            parts.hostname or "", parts.port, timeout=timeout_s, blocksize=BLOCK_BYTES
        )
        try:
            connection.request(
                method, self.endpoint.path(path), body, {**self.endpoint.headers, **headers}
            )
            response = connection.getresponse()
            if response.status >= 400:
                raise refusal(response.status, response.read(1 << 16), response.reason)
            yield response
        except (OSError, http.client.HTTPException) as problem:
            raise ApiError(
                f"the gateway at {self.endpoint.url} does not answer: {problem}"
            ) from problem
        finally:
            connection.close()
