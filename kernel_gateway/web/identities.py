"""Which token is whose: a table of token digests, looked up in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernels.identity import Identity
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField, decode

LOCAL_USER = "local"

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_VISIBLE_ASCII = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityEntry:
    """One ``[[identity]]`` table.

    Attributes:
        user: who owns what this token creates.
        token_sha256: SHA-256 of the token, 64 hex digits.
        agent: the agent of that user which holds the token, or None for the user.
        admin: whether the token lists, reads and shuts down everybody's kernels.
    """

    user: str
    token_sha256: str
    agent: str | None = None
    admin: bool = False

    def __post_init__(self) -> None:
        names.check_user(self.user, "identity.user")
        if self.agent is not None:
            names.check_agent(self.agent, "identity.agent")
        if not _SHA256_HEX.fullmatch(self.token_sha256):
            raise InvalidField(
                "identity.token_sha256", "must be 64 lower-case hex digits, the SHA-256 of a token"
            )

    @property
    def identity(self) -> Identity:
        """Who a request with this token comes from."""
        return Identity(user=self.user, agent=self.agent, admin=self.admin)


@dataclass(frozen=True, slots=True)
class IdentityTable:
    """All tokens that are admitted.

    Attributes:
        entries: one for each token.
    """

    entries: tuple[IdentityEntry, ...]

    @classmethod
    def of_token(cls, token: str) -> IdentityTable:
        """Return the table with one user, ``local``, who holds ``token``.

        Raises:
            ConfigError: the token is empty or cannot stand in a header.
        """
        check_token(token)
        return cls((IdentityEntry(user=LOCAL_USER, token_sha256=token_digest(token), admin=True),))

    def identify(self, token: str) -> Identity | None:
        """Return whose ``token`` it is, or None.

        Every entry is compared, so that the time taken does not tell how far a guess got.
        """
        digest = token_digest(token)
        found: Identity | None = None
        for entry in self.entries:
            if hmac.compare_digest(entry.token_sha256, digest):
                found = entry.identity
        return found


def read_identities(tables: Iterable[Mapping[str, Any]]) -> tuple[IdentityEntry, ...]:
    """Return the entries of ``[[identity]]`` tables.

    Raises:
        ConfigError: a field is unknown, missing or wrong, or a token stands twice.
    """
    entries: list[IdentityEntry] = []
    seen: set[str] = set()
    for i, table in enumerate(tables):
        try:
            entry = decode(IdentityEntry, table, f"identity[{i}]")
        except InvalidField as problem:
            raise ConfigError.in_table(problem, "identity", i) from problem
        if entry.token_sha256 in seen:
            raise ConfigError(f"identity[{i}].token_sha256: this token stands twice")
        seen.add(entry.token_sha256)
        entries.append(entry)
    return tuple(entries)


def token_digest(token: str) -> str:
    """Return the SHA-256 of ``token`` as 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_token(token: str) -> str:
    """Return ``token`` if it may admit somebody.

    Raises:
        ConfigError: it is empty, which would admit everybody, or no header can carry it.
    """
    if not token:
        raise ConfigError("the token is empty: that would admit everybody; leave --token out")
    if not _VISIBLE_ASCII.fullmatch(token):
        raise ConfigError("the token must be visible ASCII characters without spaces")
    return token
