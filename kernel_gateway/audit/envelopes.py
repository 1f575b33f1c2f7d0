"""DSSE envelopes: what a journal stores around the bytes of an entry. Read here, made by signing.

The signature is over bytes, so no tool that writes JSON anew can break it.
Source: https://github.com/secure-systems-lab/dsse/blob/master/envelope.md
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lambda_kernel.contract.schema import InvalidField, decode

PAYLOAD_TYPE = "application/vnd.lambda-kernel.entry+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSignature:
    """One signature: whose key, and base64."""

    keyid: str
    sig: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An envelope as JSON has it.

    Attributes:
        payload: base64 of the signed bytes.
        payloadType: always PAYLOAD_TYPE here.
        signatures: none around an entry of a journal that was not signed.
    """

    payload: str
    payloadType: str  # noqa: N815  (the name on the wire)
    signatures: tuple[EnvelopeSignature, ...] = ()

    @classmethod
    def from_json(cls, data: object) -> Envelope:
        """Return the envelope that ``data`` describes (raises InvalidField)."""
        found = decode(cls, data, "envelope")
        if found.payloadType != PAYLOAD_TYPE:
            raise InvalidField("envelope.payloadType", f"must be {PAYLOAD_TYPE}")
        return found

    @classmethod
    def around(cls, stored: bytes) -> Envelope:
        """Return the envelope in an object of a journal; one that is unsigned gets one."""
        try:
            data = json.loads(stored)
        except (ValueError, RecursionError):
            raise InvalidField("entry", "is not JSON") from None
        if isinstance(data, Mapping) and "payloadType" in data:
            return cls.from_json(data)
        return cls(payload=base64.b64encode(stored).decode("ascii"), payloadType=PAYLOAD_TYPE)

    @property
    def payload_bytes(self) -> bytes:
        """The bytes that were signed (raises InvalidField)."""
        try:
            return base64.b64decode(self.payload, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidField("envelope.payload", "is not base64") from None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        signatures = [{"keyid": each.keyid, "sig": each.sig} for each in self.signatures]
        return {
            "payload": self.payload,
            "payloadType": self.payloadType,
            "signatures": signatures,
        }


def payload_of(stored: bytes) -> bytes:
    """Return the entry's own bytes in an object of a journal, signed or not.

    Raises:
        InvalidField: it is neither.
    """
    return Envelope.around(stored).payload_bytes


class Sealer(Protocol):
    """Signs entries, and what is stated of them."""

    async def seal(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """Return what is stored for an entry's bytes (raises GatewayError).

        The type is signed too: what is signed as one is never taken for another.
        """


class NoSealer:
    """Stores entries as they are."""

    async def seal(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """Return ``payload``."""
        return payload
