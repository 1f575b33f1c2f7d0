"""From a Lambda event to an Invocation, or to a refusal that the gateway can believe."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from lambda_kernel.contract import frames, keys
from lambda_kernel.contract.frames import FrameKind, FrameWriter
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.serving.errors import InvalidRequest, StorageUnavailable
from lambda_kernel.serving.line import ByteStream
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.runtime_api import Event

_HEX = frozenset("0123456789abcdef")


def read(body: bytes, store: ObjectStore, stack: Stack) -> Invocation:
    """Return the invocation in an event, fetched where the event only points to it.

    Args:
        body: the event.
        store: S3 with the execution role.
        stack: names the overflow bucket.

    Raises:
        InvalidRequest: it is not one; the message names the field.
    """
    data = _object(body)
    if "pointer" in data:
        data = _object(_fetch(data["pointer"], store, stack))
    try:
        invocation = Invocation.from_dict(data)
    except InvalidField as error:
        raise InvalidRequest(str(error)) from error
    own = keys.workspace_prefix(invocation.scope.user, invocation.workspace, invocation.run)
    replays = f"{keys.user_prefix(invocation.scope.user)}.replays/"
    prefix = invocation.write_prefix
    if prefix != own and not (prefix.startswith(replays) and prefix.endswith("/")):
        raise InvalidRequest("invocation.write_prefix: is neither the workspace's nor a replay's")
    return invocation


def refuse(event: Event, response: ByteStream, frame_key: bytes, message: str) -> None:
    """Answer an event that is no valid invocation.

    Raises:
        InvalidRequest: the event does not even say which keys its answer needs.
    """
    try:
        data = _object(event.body)
    except InvalidRequest:
        data = {}
    request_id, nonce = data.get("request_id"), data.get("nonce")
    if not (_is_id(request_id) and _is_id(nonce)):
        raise InvalidRequest(message)
    writer = FrameWriter(frames.invocation_key(frame_key, str(request_id), str(nonce)))
    outcome = Outcome(
        status=Status.INVALID_REQUEST,
        started=False,
        committed=False,
        message=message,
        aws_request_id=event.aws_request_id,
        nonce=str(nonce),
    )
    response.send(writer.write(FrameKind.OUTCOME, outcome.to_dict()))


def _fetch(pointer: object, store: ObjectStore, stack: Stack) -> bytes:
    if not isinstance(pointer, dict) or not _is_id(pointer.get("request_id")):
        raise InvalidRequest("invocation.pointer: is malformed")
    key = keys.request_key(pointer["request_id"])
    try:
        body = store.get(stack.overflow, key)
    except StorageUnavailable as error:
        raise InvalidRequest(f"the request cannot be fetched: {error}") from error
    if hashlib.sha256(body).hexdigest() != pointer.get("digest"):
        raise InvalidRequest("invocation.pointer.digest: is not that of the stored request")
    return body


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("invocation: is not JSON") from None
    if not isinstance(data, dict):
        raise InvalidRequest("invocation: must be an object")
    return data


def _is_id(value: object) -> bool:
    return isinstance(value, str) and len(value) == 32 and _HEX.issuperset(value)
