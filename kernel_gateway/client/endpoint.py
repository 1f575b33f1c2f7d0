"""Where a gateway is, who asks, and what it can answer with instead of a result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from kernel_gateway.errors import GatewayError, Started


class ApiError(GatewayError):
    """The gateway refused a request, or could not be reached; the text is its own message.

    Attributes:
        status: HTTP status of the answer, None where there was none.
        code_started: whether the cell of a refused execution ran, or one before it with the same
            key: ``no``, ``yes`` or ``unknown``; None where the answer does not say.
    """

    status: int | None = None
    code_started: str | None = None


class Unauthorized(ApiError):
    """The token is missing or wrong, or may not do this (401, 403)."""


class NoSuchThing(ApiError):
    """The kernel, file or kernelspec does not exist, or is not the caller's (404)."""


class BadInput(ApiError):
    """The request itself is wrong; the text names the field (400, 413, 422)."""


class Conflict(ApiError):
    """What is there does not admit it (409): the kernel is dead, or the queue was aborted."""


class TryLater(ApiError):
    """Nothing ran, and the same request may be sent again (429, 503)."""


class Unreachable(ApiError):
    """The gateway does not answer, or the connection was lost.

    Attributes:
        was_sent: whether the request may have arrived.
    """

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class AnswerPending(Unreachable):
    """The connection stands, but no answer came in time."""


class OutcomeUnknown(ApiError):
    """Whether the cell ran cannot be told now (5xx); ask again with the same idempotency key."""


class ResultGone(ApiError):
    """The cell of this idempotency key ran, and its result is not kept any more (410)."""


class NotRunning(ApiError):
    """No gateway runs on the state directory."""


_BY_STATUS = {
    400: BadInput,
    401: Unauthorized,
    403: Unauthorized,
    404: NoSuchThing,
    409: Conflict,
    410: ResultGone,
    413: BadInput,
    422: BadInput,
    429: TryLater,
    503: TryLater,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a gateway is, and who asks.

    Attributes:
        url: such as ``http://127.0.0.1:8888/``.
        token: the caller's, None where it has none.
    """

    url: str
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ApiError(f"{self.url!r} is not a URL of a gateway (http://host:port/)")

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {} if self.token is None else {"Authorization": f"token {self.token}"}

    def path(self, path: str) -> str:
        """Return the path of a request below the gateway's base URL."""
        return urlsplit(self.url).path.rstrip("/") + path

    def websocket_url(self, path: str) -> str:
        """Return the URL of a websocket below the gateway's base URL."""
        parts = urlsplit(self.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        return f"{scheme}://{parts.netloc}{self.path(path)}"


def refusal(status: int, body: bytes, reason: str) -> ApiError:
    """Return the error that an answer of this status (400 or more) stands for."""
    code_started = None
    try:
        told = json.loads(body)
        message = str(told["message"])
        code_started = told.get("code_started")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message = reason
    if status == 403 and message == "Forbidden":
        message = "the token is missing or wrong"
    kind = _BY_STATUS.get(status, ApiError)
    if status >= 500 and code_started == Started.UNKNOWN:
        kind = OutcomeUnknown
    problem = kind(f"{status}: {message}")
    problem.status = status
    problem.code_started = code_started
    return problem


def files_path(workspace: str, path: str) -> str:
    """Return the REST path of a file or folder of a workspace."""
    return f"/api/workspaces/{quote(workspace, safe='')}/files/{quote(path)}"
