"""Control objects: what the gateway tells a running cell through the overflow bucket.

An object stands at ``control/<request id>/<name>`` and is encrypted and authenticated with the key
of its invocation: who reads or writes the bucket learns nothing and orders nothing. Two names are
in use: ``interrupt`` (``{"order": "interrupt" | "kill"}``, written again for the second order) and
``input-<n>`` (``{"value": …}``, the answer to question n of the cell).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any

from lambda_kernel.contract import keys
from lambda_kernel.contract.frames import MAC_BYTES, BadFrame, read_json

INTERRUPT = "interrupt"
KILL = "kill"
MAX_ANSWER_CHARACTERS = 1024 * 1024
"""Of what a user types or pastes into one prompt."""

_VERSION = b"\x01"
_NONCE_BYTES = 16
_PADDED_BYTES = 256
"""The size of an object is no hint at the length of a password."""


class BadControl(ValueError):
    """A control object is not authentic, or not meant for this place."""


def input_name(number: int) -> str:
    """Return the name of the answer to a cell's question ``number``, which counts from 1."""
    return f"input-{number}"


def control_key(request_id: str, name: str) -> str:
    """Return the key of a control object in the overflow bucket."""
    return keys.control_prefix(request_id) + name


def seal(key: bytes, request_id: str, name: str, data: dict[str, Any]) -> bytes:
    """Return ``data`` as a control object that is valid at one place only.

    Encrypt-then-MAC: SHAKE-256 of a key of its own and a random nonce is the key stream,
    HMAC-SHA256 with another key covers place, nonce and ciphertext.

    Args:
        key: of the invocation.
        request_id: of the invocation.
        name: of the object.
        data: JSON.
    """
    text = json.dumps(data, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _PADDED_BYTES)
    nonce = os.urandom(_NONCE_BYTES)
    body = _VERSION + nonce + _mixed(key, nonce, text)
    return body + _mac(key, request_id, name, body)


def unseal(key: bytes, request_id: str, name: str, sealed: bytes) -> dict[str, Any]:
    """Return what `seal` was given for the same place.

    Raises:
        BadControl: the object was made with another key or for another place, or was changed.
    """
    body, mac = sealed[:-MAC_BYTES], sealed[-MAC_BYTES:]
    if not hmac.compare_digest(_mac(key, request_id, name, body), mac):
        raise BadControl("a control object is not authentic")
    head = len(_VERSION) + _NONCE_BYTES
    if body[: len(_VERSION)] != _VERSION or len(body) < head:
        raise BadControl("a control object has an unknown form")
    text = _mixed(key, body[len(_VERSION) : head], body[head:])
    try:
        data = read_json(text)
    except BadFrame as problem:
        raise BadControl("a control object holds no JSON") from problem
    if not isinstance(data, dict):
        raise BadControl("a control object holds no JSON object")
    return data


def _mac(key: bytes, request_id: str, name: str, body: bytes) -> bytes:
    # Neither a request id nor a name holds a NUL: no two places give the same text.
    place = f"{request_id}\0{name}\0".encode()
    return hmac.new(_derived(key, b"authenticate"), place + body, hashlib.sha256).digest()


def _mixed(key: bytes, nonce: bytes, text: bytes) -> bytes:
    stream = hashlib.shake_256(_derived(key, b"encrypt") + nonce).digest(len(text))
    mixed = int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(text), "big")


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"control: " + purpose, hashlib.sha256).digest()
