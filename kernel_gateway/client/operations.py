"""What the client does, without I/O: generators that ask for requests and pauses.

`Gateway` and `AsyncGateway` drive the same ones, so there is one place that decides what is sent
again, and when.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from kernel_gateway.client.endpoint import (
    AnswerPending,
    ApiError,
    OutcomeUnknown,
    TryLater,
    Unreachable,
    files_path,
    refusal,
)
from kernel_gateway.client.models import FileInfo, KernelInfo, Result, VariableInfo
from kernel_gateway.errors import Started

ATTEMPTS_COUNT = 5
IN_FLIGHT_ATTEMPTS_COUNT = 8
"""Of a request that may have arrived: a gateway that comes back within 25 s is found again."""

FIRST_PAUSE_S = 0.2
"""Twice as long each time."""

CANNOT_TELL_STATUS = 503
ANSWER_S = 60.0
"""A cell that runs for longer is asked for again: its key attaches to it. So a connection that
died without a word is noticed."""

EVENTS_S = 45.0
"""Three heartbeats of the gateway."""

UPLOAD_S = 3600.0
EVENT_STREAM = "text/event-stream"
REPLAYED_HEADER = "Idempotent-Replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request.

    Attributes:
        method: such as ``POST``.
        path: below the gateway's URL.
        json: the body, None for none.
        content: the body as bytes, where it is not JSON.
        headers: beside the token.
        answer_s: how long to wait for the answer; None = without end.
        has_new_key: its idempotency key was made for it, so nothing ran under that before.
    """

    method: str
    path: str
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answer_s: float | None = ANSWER_S
    has_new_key: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of so many seconds."""

    seconds: float


class ExecuteOptions(TypedDict, total=False):
    """What may be said of an execution beside its code.

    Attributes:
        silent: nothing is shown and it takes no number.
        store_history: whether it takes a number (true).
        user_expressions: by name; evaluated after the cell.
        stop_on_error: whether an error aborts what waits behind it (true).
        timeout_s: the cell is interrupted when it has run for so long.
        interrupt_on_disconnect: the cell is interrupted when its caller is gone.
    """

    silent: bool
    store_history: bool
    user_expressions: Mapping[str, str]
    stop_on_error: bool
    timeout_s: float | None
    interrupt_on_disconnect: bool


T = TypeVar("T")
Steps: TypeAlias = Generator[Send | Pause, Any, T]


@dataclass(slots=True)
class Retrying:
    """Decides whether a request that has an idempotency key is sent again.

    Attributes:
        was_sent: whether it, or one before it with its key, may have arrived.
    """

    was_sent: bool = False
    _failures_count: int = 0

    def after(self, problem: Unreachable) -> Steps[None]:
        """Return when the request may be sent again (raises Unreachable: it failed too often)."""
        self.was_sent = self.was_sent or problem.was_sent
        if not isinstance(problem, AnswerPending):
            yield from self._pause(problem)

    def after_refusal(self, problem: TryLater | OutcomeUnknown) -> Steps[None]:
        """Return when a request may be sent again that the gateway could not take.

        Raises:
            TryLater: nothing of it ran.
            OutcomeUnknown: it may have arrived before, and the gateway cannot tell.
        """
        if isinstance(problem, OutcomeUnknown):
            if not self.was_sent and problem.status == CANNOT_TELL_STATUS:
                # What cannot be told is whether an earlier request ran, and there was none.
                raise TryLater(str(problem)) from problem
            self.was_sent = True
            yield from self._pause(problem)
            return
        is_told = problem.code_started == Started.NO
        if is_told or not self.was_sent or problem.status != CANNOT_TELL_STATUS:
            raise problem
        unknown = OutcomeUnknown(
            "the gateway was lost while the cell was in flight, and cannot tell now whether it "
            f"ran; ask again with the same key ({problem})"
        )
        yield from self._pause(unknown)

    def succeeded(self) -> None:
        """Note that the gateway answers again."""
        self._failures_count = 0

    def _pause(self, problem: ApiError) -> Steps[None]:
        self._failures_count += 1
        limit = IN_FLIGHT_ATTEMPTS_COUNT if self.was_sent else ATTEMPTS_COUNT
        if self._failures_count >= limit:
            raise problem
        yield Pause(FIRST_PAUSE_S * 2 ** (self._failures_count - 1))


def call(send: Send) -> Steps[Any]:
    """Return the JSON of an answer, None for an empty one (raises ApiError)."""
    response = yield send
    return json_of(response)


def repeated(send: Send) -> Steps[Any]:
    """As `call`, for what may be sent again without a key; a lost connection is tried anew."""
    retrying = Retrying()
    while True:
        try:
            return (yield from call(send))
        except Unreachable as problem:
            yield from retrying.after(Unreachable(str(problem), was_sent=False))


def kernels() -> Steps[list[KernelInfo]]:
    """Return the caller's kernels."""
    models = yield from repeated(Send(method="GET", path="/api/kernels"))
    return [KernelInfo.from_dict(model) for model in models]


def start_kernel(
    name: str | None, workspace: str | None, env: Mapping[str, str] | None
) -> Steps[KernelInfo]:
    """Start a kernel; not sent again where it may have arrived."""
    chosen = dict(env or {})
    if workspace is not None:
        chosen["LAMBDA_KERNEL_WORKSPACE"] = workspace
    body = {"name": name, "env": chosen}
    model = yield from call(Send(method="POST", path="/api/kernels", json=body))
    return KernelInfo.from_dict(model)


def kernel(kernel_id: str) -> Steps[KernelInfo]:
    """Return one kernel."""
    model = yield from repeated(Send(method="GET", path=kernel_path(kernel_id)))
    return KernelInfo.from_dict(model)


def act(kernel_id: str, action: str) -> Steps[None]:
    """Interrupt or restart a kernel."""
    yield from call(Send(method="POST", path=kernel_path(kernel_id, action)))


def shutdown(kernel_id: str) -> Steps[None]:
    """End a kernel."""
    yield from call(Send(method="DELETE", path=kernel_path(kernel_id)))


def variables(kernel_id: str) -> Steps[list[VariableInfo]]:
    """Return all variables of a kernel, page by page."""
    found: list[VariableInfo] = []
    while True:
        path = f"{kernel_path(kernel_id, 'variables')}?offset={len(found)}"
        page = yield from repeated(Send(method="GET", path=path))
        if not page:
            return found
        found += map(VariableInfo.from_dict, page)


def execute_body(code: str, options: ExecuteOptions) -> dict[str, Any]:
    """Return the body of an execute request."""
    return {"code": code, **options}


def execute_request(kernel_id: str, body: Mapping[str, Any], key: str | None) -> Send:
    """Return the request of one execution and its retries: it has a key."""
    # Where the end of the connection ends the cell, waiting must not end it.
    answer_s = None if body.get("interrupt_on_disconnect") else ANSWER_S
    return Send(
        method="POST",
        path=kernel_path(kernel_id, "execute"),
        json={**body, "idempotency_key": key or uuid.uuid4().hex},
        answer_s=answer_s,
        has_new_key=key is None,
    )


def execute(send: Send) -> Steps[Result]:
    """Execute and return how it ended; a lost connection is made anew."""
    retrying = Retrying(was_sent=not send.has_new_key)
    while True:
        try:
            response = yield send
            data = json_of(response)
        except Unreachable as problem:
            yield from retrying.after(problem)
        except (TryLater, OutcomeUnknown) as problem:
            yield from retrying.after_refusal(problem)
        else:
            return Result.from_dict(data, replayed=REPLAYED_HEADER in response.headers)


def events_request(send: Send, last_number: int | None) -> Send:
    """Return the request for the events of an execution after this one."""
    headers = {**send.headers, "Accept": EVENT_STREAM}
    if last_number is not None:
        headers["Last-Event-ID"] = str(last_number)
    return replace(send, headers=headers, answer_s=EVENTS_S)


def files(workspace: str, folder: str, *, recursive: bool) -> Steps[list[FileInfo]]:
    """Return what is in a folder of a workspace; paths are relative to the workspace."""
    prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
    query = "?recursive=true" if recursive else ""
    path = files_path(workspace, prefix) + query
    answer = yield from repeated(Send(method="GET", path=path))
    return [FileInfo(**{**entry, "path": prefix + entry["path"]}) for entry in answer["entries"]]


def upload(workspace: str, path: str, content: bytes) -> Steps[None]:
    """Store a file; sent again it is the same file."""
    yield from repeated(
        Send(method="PUT", path=files_path(workspace, path), content=content, answer_s=UPLOAD_S)
    )


def download(workspace: str, path: str) -> Steps[bytes]:
    """Return the content of a file."""
    response = yield Send(method="GET", path=files_path(workspace, path), answer_s=UPLOAD_S)
    check(response)
    content: bytes = response.content
    return content


def kernel_path(kernel_id: str, action: str = "") -> str:
    """Return the path of a kernel, or of what is done to it."""
    return f"/api/kernels/{quote(kernel_id, safe='')}" + (f"/{action}" if action else "")


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Raise ApiError where what answers at ``url`` says something else than a gateway would."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise ApiError(f"{url} answers as no gateway does: {problem!r:.200}") from problem


def check(response: httpx.Response) -> None:
    """Raise the ApiError that a refusal stands for."""
    if response.status_code >= 400:
        raise refusal(response.status_code, response.content, response.reason_phrase)


def check_stream(response: httpx.Response) -> None:
    """Raise ApiError where an answer is no stream of events: no gateway gave it."""
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith(EVENT_STREAM):
        raise ApiError(
            f"{response.url} answers as no gateway does: {kind or 'no content type'!r:.80}"
        )


def json_of(response: httpx.Response) -> Any:
    """Return the JSON of an answer, None for an empty one (raises ApiError)."""
    check(response)
    with understood(str(response.url)):
        return response.json() if response.content else None


def trouble_of(problem: httpx.RequestError, url: str) -> Unreachable:
    """Return what a failed request means: whether it may have arrived, and is still waited for."""
    text = f"the gateway at {url} does not answer: {str(problem) or type(problem).__name__}"
    if isinstance(problem, httpx.ReadTimeout):
        return AnswerPending(text, was_sent=True)
    not_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    return Unreachable(text, was_sent=not isinstance(problem, not_sent))
