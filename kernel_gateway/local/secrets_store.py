"""The local connector secrets: one file per agent, 0600, written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import string
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_gateway.errors import BadRequest, StorageError
from lambda_kernel.contract.schema import InvalidField, decode, encode

SECRETS_FOLDER = "secrets"
SECRET_BYTES = 65_536
"""Source: AWS Secrets Manager quota, "Secret value"."""

SUFFIX_CHARACTERS = 6
_SUFFIX_ALPHABET = string.ascii_letters + string.digits
_NAME = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9_+=.@-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One secret.

    Attributes:
        name: such as ``lkg-connector-creds-a1``.
        suffix: the six characters that Secrets Manager ends an ARN with.
        version_id: of its value.
        created: Unix time of this version.
        connectors: its value: connector id to key to value.
    """

    name: str
    suffix: str
    version_id: str
    created: float
    connectors: dict[str, dict[str, str]] = field(repr=False)

    @property
    def text(self) -> str:
        """The value as Secrets Manager stores it."""
        return json.dumps(self.connectors, separators=(",", ":"))


class SecretStore:
    """Secrets in the folder ``secrets`` of a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / SECRETS_FOLDER

    def names(self) -> list[str]:
        """Return the names of all secrets, sorted."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def get(self, name: str) -> Secret | None:
        """Return the secret called ``name``, or None.

        Raises:
            StorageError: its file cannot be read or is damaged; the message names it.
        """
        if _NAME.fullmatch(name) is None:
            return None
        path = self._path(name)
        try:
            return decode(Secret, json.loads(path.read_bytes()), "secret")
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StorageError(f"{path}: {problem.strerror}") from problem
        except (ValueError, InvalidField) as problem:
            # Neither JSON's nor our own message is repeated: it might quote what the file holds.
            raise StorageError(f"{path}: is not a secret of this version") from problem

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[dict[str, dict[str, str]]]:
        """Yield the connectors of ``name`` to be changed, and store them; none left = deleted.

        Raises:
            BadRequest: the value would be larger than Secrets Manager allows.
            StorageError: it cannot be read or written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._folder / ".lock"):
                old = self.get(name) or _new(name)
                connectors = {key: dict(value) for key, value in old.connectors.items()}
                yield connectors
                self._store(old, connectors)
        except OSError as problem:
            raise StorageError(f"{self._folder}: {problem.strerror}") from problem

    def _store(self, old: Secret, connectors: Mapping[str, Mapping[str, str]]) -> None:
        kept = {name: dict(values) for name, values in connectors.items() if values}
        if not kept:
            self._path(old.name).unlink(missing_ok=True)
            return
        new = replace(
            old, version_id=str(uuid.uuid4()), created=round(time.time(), 3), connectors=kept
        )
        size = len(new.text.encode())
        if size > SECRET_BYTES:
            raise BadRequest(
                f"the connectors of one agent may hold {SECRET_BYTES:,} bytes together, "
                f"these are {size:,}"
            )
        draft = self._folder / f".{secrets.token_hex(8)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(encode(new), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path(old.name))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _new(name: str) -> Secret:
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(SUFFIX_CHARACTERS))
    return Secret(name=name, suffix=suffix, version_id="", created=0.0, connectors={})


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
