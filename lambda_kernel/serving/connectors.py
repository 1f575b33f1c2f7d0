"""Connector values: an agent's one secret, as variables of one cell's process and nowhere else."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from lambda_kernel.contract import keys, names
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.witness import SecretVersion
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.storage.refusals import refusal_of

logger = logging.getLogger(__name__)

_NOT_FOUND = "ResourceNotFoundException"
_DENIED = "AccessDeniedException"
_BY_SESSION_POLICY = "no session policy allows"
"""AWS judges a secret that does not exist by its bare name, which no session policy of ours
matches: so an agent without connectors is refused. A secret that does exist is always allowed by
them; where it is refused, the role lacks the permission."""


class SecretRefused(Exception):
    """The role may not read the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret: what it holds, and which one it is."""

    text: str = field(repr=False)
    version: SecretVersion


class SecretReader(Protocol):
    """Secrets Manager with the credentials of the current invocation."""

    def read(self, name: str) -> Secret | None:
        """Return a secret, or None where the invocation has none.

        Raises:
            SecretRefused: the role lacks the permission.
            StorageUnavailable: Secrets Manager did not answer.
        """


class SecretsManagerReader:
    """SecretReader by a boto3 client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self, name: str) -> Secret | None:
        """Return a secret, or None (raises SecretRefused, StorageUnavailable)."""
        try:
            answer = self._client.get_secret_value(SecretId=name)
        except ClientError as error:
            told = error.response.get("Error", {})
            code = told.get("Code", "")
            is_denied = code == _DENIED and _BY_SESSION_POLICY not in told.get("Message", "")
            if is_denied:
                logger.warning("the secret of an agent may not be read")
                raise SecretRefused(name) from error
            if code in {_NOT_FOUND, _DENIED}:
                logger.info("an agent has no connectors", extra={"reason": code})
                return None
            why = refusal_of(error.response)
            raise StorageUnavailable(f"Secrets Manager refused {name}: {why}") from error
        except BotoCoreError as error:
            # Its text may name the endpoint, never what an answer held.
            raise StorageUnavailable(f"Secrets Manager did not answer: {error}") from error
        version = SecretVersion(arn=answer.get("ARN", ""), version_id=answer.get("VersionId", ""))
        return Secret(text=answer.get("SecretString", ""), version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorValues:
    """What one cell gets.

    Attributes:
        variables: names and values for the child's environment.
        notices: what is missing or wrong, for people; names only.
        ids: of the connectors that have variables.
        secret: where they came from.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    notices: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    secret: SecretVersion | None = None


class Connectors:
    """Reads the connectors of an invocation."""

    def __init__(self, reader: SecretReader, stack: Stack) -> None:
        self._reader = reader
        self._stack = stack

    def values(self, invocation: Invocation) -> ConnectorValues:
        """Return the values for the cell of ``invocation``; nothing is asked without an agent.

        Raises:
            StorageUnavailable: Secrets Manager did not answer, or the secret makes no sense.
        """
        agent = invocation.scope.agent
        if agent is None:
            return ConnectorValues()
        name = self._stack.connector_secret(agent)
        try:
            found = self._reader.read(name)
        except SecretRefused:
            refused = (
                f"secret {name} may not be read, so that no connector is set: "
                f"role {self._stack.scoped_role} needs secretsmanager:GetSecretValue on it"
                " (and kms:Decrypt, where a key of your own encrypts it)"
            )
            return ConnectorValues(notices=(refused,))
        if found is None:
            return choose(name, None, invocation.connectors)
        chosen = choose(name, found.text, invocation.connectors)
        return replace(chosen, secret=found.version)


def choose(secret: str, text: str | None, wanted: tuple[str, ...]) -> ConnectorValues:
    """Return the variables in a secret's text.

    Args:
        secret: its name, for messages.
        text: JSON, connector id to key to value; None where there is no secret.
        wanted: ids of the connectors to take; none named = all.

    Raises:
        StorageUnavailable: the text is not that.
    """
    stored = _parsed(secret, text)
    notices = [
        f"connector {name} is not set for this agent" for name in wanted if name not in stored
    ]
    variables: dict[str, str] = {}
    sources: dict[str, str] = {}
    doubled: set[str] = set()
    for connector, values in stored.items():
        if wanted and connector not in wanted:
            continue
        for key, value in values.items():
            if not _is_usable(connector, key, value):
                # The name itself may be anything, also a value in the wrong place.
                notices.append(f"an entry of secret {secret} cannot be a variable and is left out")
                continue
            variable = keys.connector_variable(connector, key)
            if variable in variables:
                doubled.add(variable)
            variables[variable], sources[variable] = value, connector
    for variable in sorted(doubled):
        del variables[variable]
        notices.append(f"{variable} would be a value of two connectors and is left out")
    ids = tuple(sorted({sources[name] for name in variables}))
    return ConnectorValues(variables=variables, notices=tuple(dict.fromkeys(notices)), ids=ids)


def _parsed(secret: str, text: str | None) -> dict[str, dict[str, Any]]:
    if text is None:
        return {}
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not all(isinstance(v, dict) for v in stored.values()):
        raise StorageUnavailable(f"secret {secret} is not JSON of connector, key and value")
    return stored


def _is_usable(connector: str, key: str, value: object) -> bool:
    try:
        names.check_connector(connector)
        names.check_connector(key)
    except InvalidField:
        return False
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
