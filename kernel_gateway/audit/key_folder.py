"""``<state dir>/keys``: the key that signs now, and the public half of all that ever did."""

from __future__ import annotations

import json
import os
import secrets
import uuid
from pathlib import Path

from securesystemslib.signer import AWSSigner, CryptoSigner, Key, Signer

from kernel_gateway.audit.envelopes import PAYLOAD_TYPE
from kernel_gateway.audit.signing import EntrySealer, key_of, sealed
from kernel_gateway.errors import ConfigError

FOLDER = "keys"
PRIVATE_NAME = "signing.pem"
REDACTION_NAME = "redaction.key"
PUBLIC_SUFFIX = ".public.json"
KMS_SCHEME = "awskms:"


class KeyFolder:
    """The keys of one gateway.

    Args:
        state_dir: of the gateway.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._signer: Signer | None = None
        self._read_ns = -1

    async def seal(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """Return the envelope around ``payload``, signed with the key that is there now."""
        return sealed(payload, self.signer(), payload_type)

    def signer(self) -> Signer:
        """Return the key that signs, which is made where there is none.

        Raises:
            ConfigError: the folder cannot be used.
        """
        private = self._folder / PRIVATE_NAME
        try:
            if not private.exists():
                self.rotate()
            changed_ns = private.stat().st_mtime_ns
            if self._signer is None or changed_ns != self._read_ns:
                # `keys rotate` may run beside the gateway.
                self._signer, self._read_ns = _read(private), changed_ns
        except (OSError, ValueError) as problem:
            raise ConfigError(f"{private}: cannot be used: {problem}") from problem
        return self._signer

    def rotate(self) -> Key:
        """Make a new key that signs from now on, and return its public half (raises OSError)."""
        made = CryptoSigner.generate_ed25519()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Its public half first: what is signed must be verifiable whatever happens in between.
        self.keep(made.public_key)
        _write(self._folder / PRIVATE_NAME, made.private_bytes)
        return made.public_key

    def redaction_key(self) -> bytes:
        """Return the key of the digests of redacted sources, which is made where there is none.

        Raises:
            ConfigError: the folder cannot be used.
        """
        path = self._folder / REDACTION_NAME
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                _write(path, secrets.token_bytes(32))
            return path.read_bytes()
        except OSError as problem:
            raise ConfigError(f"{path}: cannot be used: {problem}") from problem

    def keep(self, key: Key) -> None:
        """Keep a public key for `keys` (raises OSError)."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = {"keyid": key.keyid, **key.to_dict()}
        _write(self._folder / f"{key.keyid}{PUBLIC_SUFFIX}", json.dumps(data, indent=2).encode())

    def keys(self) -> dict[str, Key]:
        """Return the public keys by id, the oldest first; none where there is no folder.

        Raises:
            ConfigError: one cannot be read.
        """
        found = {}
        paths = sorted(
            self._folder.glob(f"*{PUBLIC_SUFFIX}"), key=lambda path: path.stat().st_mtime
        )
        for path in paths:
            try:
                key = key_of(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError) as problem:
                raise ConfigError(f"{path}: is no public key: {problem}") from problem
            found[key.keyid] = key
        return found


def open_sealer(state_dir: Path, signing_key: str | None) -> KeyFolder | EntrySealer:
    """Return what signs the entries of a gateway.

    Args:
        state_dir: of the gateway.
        signing_key: ``awskms:<key id, alias or ARN>``; None = a key of the state directory.

    Raises:
        ConfigError: it cannot be used.
    """
    folder = KeyFolder(state_dir)
    if signing_key is None:
        folder.signer()
        return folder
    if not signing_key.startswith(KMS_SCHEME):
        raise ConfigError(f"signing_key {signing_key!r}: must be {KMS_SCHEME}<key id>")
    try:
        uri, public = AWSSigner.import_(signing_key.removeprefix(KMS_SCHEME))
        folder.keep(public)
        return EntrySealer(Signer.from_priv_key_uri(uri, public), is_remote=True)
    except Exception as problem:  # boto3's own, and those of the library
        raise ConfigError(f"signing_key {signing_key}: {problem}") from problem


def _read(private: Path) -> Signer:
    # Only the path of a key that we have written reaches the library, with its public half.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(private.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("it is no Ed25519 key")  # noqa: TRY004  (a wrong file, not a wrong call)
    return CryptoSigner(key)


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner reads, all at once."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    draft.replace(path)
