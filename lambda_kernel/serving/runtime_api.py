"""The Lambda Runtime API: take one invocation after the other, stream the answer.

One connection, kept alive. Source: "Using the Lambda runtime API" and "Response streaming for
custom runtimes" in the AWS Lambda developer guide.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

_BASE = "/2018-06-01/runtime"
_ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
_ERROR_BODY = "Lambda-Runtime-Function-Error-Body"


class RuntimeApiError(RuntimeError):
    """The Runtime API answered something unexpected or went away; the container must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One invocation as Lambda hands it over.

    Attributes:
        aws_request_id: Lambda's own id.
        deadline_ms: Unix time at which Lambda ends the container.
        body: the payload.
        function_arn: as it was invoked; "" where that is not told.
    """

    aws_request_id: str
    deadline_ms: int
    body: bytes
    function_arn: str = ""


class Response:
    """A streamed answer: chunked, each chunk sent at once, errors in the trailers.

    A client that is gone does not end the invocation: what the cell did must still be committed.
    """

    def __init__(self, connection: http.client.HTTPConnection, aws_request_id: str) -> None:
        self._connection = connection
        self._path = f"{_BASE}/invocation/{aws_request_id}/response"
        self._begun = False
        self.broken = False

    def send(self, chunk: bytes) -> None:
        """Send ``chunk`` to whoever invoked the function."""
        if self.broken or not chunk:
            return
        framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        try:
            if not self._begun:
                self._begun = True
                self._connection.putrequest("POST", self._path)
                self._connection.putheader("Content-Type", "application/octet-stream")
                self._connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
                self._connection.putheader("Transfer-Encoding", "chunked")
                self._connection.putheader("Trailer", f"{_ERROR_TYPE}, {_ERROR_BODY}")
                self._connection.endheaders(framed)
            else:
                self._connection.send(framed)
        except OSError:
            logger.warning("the response stream broke")
            self.broken = True

    def finish(self, error: BaseException | None = None) -> None:
        """End the answer; with an error in the trailers where there is one."""
        if self.broken:
            raise RuntimeApiError("the response stream broke")
        trailers = b""
        if error is not None:
            if not self._begun:
                self.send(b"\n")
            body = base64.b64encode(json.dumps(_error_body(error)).encode())
            kind = f"Runtime.{type(error).__name__}".encode()
            trailers = b"%b: %b\r\n%b: %b\r\n" % (
                _ERROR_TYPE.encode(),
                kind,
                _ERROR_BODY.encode(),
                body,
            )
        self._connection.send(b"0\r\n%b\r\n" % trailers)
        _read_answer(self._connection)

    @property
    def begun(self) -> bool:
        """Whether anything was sent."""
        return self._begun


class RuntimeApi:
    """The Runtime API at ``address``, such as ``127.0.0.1:9001``."""

    def __init__(self, address: str) -> None:
        self._address = address
        # No timeout: `next` waits for as long as the container is frozen or idle. http.client
        # sets TCP_NODELAY itself.
        self._connection = http.client.HTTPConnection(address, timeout=None)

    def next(self) -> Event:
        """Wait for the next invocation and return it."""
        try:
            self._connection.request("GET", f"{_BASE}/invocation/next")
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise RuntimeApiError("the Runtime API is gone") from error
        aws_request_id = answer.getheader("Lambda-Runtime-Aws-Request-Id")
        if answer.status != http.client.OK or not aws_request_id:
            raise RuntimeApiError(f"the Runtime API answered {answer.status}")
        return Event(
            aws_request_id=aws_request_id,
            deadline_ms=int(answer.getheader("Lambda-Runtime-Deadline-Ms") or 0),
            body=body,
            function_arn=answer.getheader("Lambda-Runtime-Invoked-Function-Arn") or "",
        )

    def end_with_platform(self) -> None:
        """End this process as soon as the Runtime API has gone, also in the middle of a cell.

        Locally the platform is a process that can be killed; its containers must not outlive it.
        """
        self._connection.connect()
        watch = threading.Thread(
            target=_end_at_hang_up, args=(self._connection.sock,), name="platform", daemon=True
        )
        watch.start()

    def response(self, event: Event) -> Response:
        """Return the answer to ``event``, to be streamed."""
        return Response(self._connection, event.aws_request_id)

    def fail(self, event: Event, error: BaseException) -> None:
        """Report that ``event`` could not be handled at all."""
        self._post(f"/invocation/{event.aws_request_id}/error", error)

    def fail_init(self, error: BaseException) -> None:
        """Report that this container cannot serve."""
        self._post("/init/error", error)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _post(self, path: str, error: BaseException) -> None:
        headers = {"Content-Type": "application/json", _ERROR_TYPE: _error_body(error)["errorType"]}
        try:
            self._connection.request("POST", _BASE + path, json.dumps(_error_body(error)), headers)
            _read_answer(self._connection)
        except OSError as raised:
            raise RuntimeApiError("the Runtime API is gone") from raised


def serve(
    api: RuntimeApi, handle: Callable[[Event, Response], bool], *, between: Callable[[], object]
) -> None:
    """Handle invocations until the container is spent: ``handle`` returns False, or fails.

    Where it fails, nobody knows what of the cell is left: no other may follow in this container.

    Args:
        api: where invocations come from.
        handle: answers one.
        between: called when an answer has been taken, with nothing of it held here any more.

    Raises:
        RuntimeApiError: the Runtime API is gone.
    """
    while True:
        event = api.next()
        response = api.response(event)
        try:
            usable = handle(event, response)
        except Exception as error:
            logger.exception(
                "the invocation failed", extra={"aws_request_id": event.aws_request_id}
            )
            if response.begun:
                response.finish(error)
            else:
                api.fail(event, error)
            return
        response.finish()
        if not usable:
            return
        del event, response
        between()


def _end_at_hang_up(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    poll.poll()
    logger.error("the Runtime API has gone")
    # As pid 1 of the container: nothing of it runs on.
    os._exit(1)


def _read_answer(connection: http.client.HTTPConnection) -> None:
    # http.client counts only requests made with `request` as complete; this one was chunked.
    try:
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeApiError("the Runtime API did not take an answer") from error
    if answer.status >= http.client.BAD_REQUEST:
        raise RuntimeApiError(f"the Runtime API refused an answer: {answer.status}")


def _error_body(error: BaseException) -> dict[str, str]:
    return {"errorMessage": str(error), "errorType": f"Runtime.{type(error).__name__}"}
