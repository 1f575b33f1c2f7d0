"""Keys that sign a journal's entries, and those that verify them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from securesystemslib import dsse
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import Key, Signer, SSlibKey

from kernel_gateway.audit.envelopes import PAYLOAD_TYPE, Envelope
from kernel_gateway.errors import ConfigError, StorageError

EXPORT_SCHEMA = 1


class UnknownKey(ValueError):
    """No key at hand has made a signature; the text names the key ids."""


class BadSignature(ValueError):
    """A key at hand is named, and did not make the signature."""


class EntrySealer:
    """Signs with one key.

    Args:
        signer: holds the key, or knows who does.
        is_remote: a signature takes a request, so it is made in a thread.
    """

    def __init__(self, signer: Signer, *, is_remote: bool = False) -> None:
        self._signer = signer
        self._is_remote = is_remote

    async def seal(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """Return the envelope around ``payload``.

        Raises:
            StorageError: the key's service does not answer; what is not signed is not stored.
        """
        if not self._is_remote:
            return sealed(payload, self._signer, payload_type)
        try:
            return await asyncio.to_thread(sealed, payload, self._signer, payload_type)
        except Exception as problem:  # of whatever client the signer has
            raise StorageError(f"the signing key cannot be used: {problem}") from problem


def sealed(payload: bytes, signer: Signer, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Return the envelope around ``payload`` as it is stored."""
    envelope = dsse.Envelope(payload, payload_type, {})
    envelope.sign(signer)
    return json.dumps(envelope.to_dict(), separators=(",", ":")).encode("ascii")


def check_signature(envelope: Envelope, keys: Mapping[str, Key]) -> str:
    """Return the id of the key that signed.

    Args:
        envelope: what is to be checked.
        keys: public ones by id.

    Raises:
        UnknownKey: none of ``keys`` is named.
        BadSignature: one is, and did not sign these bytes.
    """
    named = [keys[each.keyid] for each in envelope.signatures if each.keyid in keys]
    if not named:
        ids = ", ".join(repr(each.keyid[:16]) for each in envelope.signatures[:4])
        raise UnknownKey(f"signed by {ids}, and no such key is at hand")
    try:
        checked = dsse.Envelope.from_dict(envelope.to_json())
        return next(iter(checked.verify(named, 1)))
    except (VerificationError, UnverifiedSignatureError, ValueError) as problem:
        raise BadSignature("the signature is not that of these bytes") from problem


def exported(keys: Sequence[Key]) -> str:
    """Return public keys as an auditor gets them, JSON."""
    listed = [{"keyid": key.keyid, **key.to_dict()} for key in keys]
    return json.dumps({"schema": EXPORT_SCHEMA, "keys": listed}, indent=2)


def imported(text: str, name: str) -> dict[str, Key]:
    """Return public keys by id.

    Args:
        text: as `exported` wrote it.
        name: of the file, for errors.

    Raises:
        ConfigError: it is something else.
    """
    try:
        data: Any = json.loads(text)
        if data["schema"] != EXPORT_SCHEMA:
            raise ConfigError(f"{name}: schema {data['schema']!r} is not known here")
        return {key.keyid: key for key in map(key_of, data["keys"])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ConfigError(
            f"{name}: holds no keys as `kernel-gateway keys export` prints them"
        ) from problem


def key_of(data: Mapping[str, Any]) -> Key:
    """Return the public key in ``data`` (raises ValueError, KeyError, TypeError)."""
    fields = dict(data)
    return SSlibKey.from_dict(fields.pop("keyid"), fields)
