"""What ``kernel-gateway connectors`` does: the secrets of agents, for the local service only.

Values come from a terminal's hidden prompt or from standard input, never from arguments, which
every process of the machine can read; and none is ever printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from getpass import getpass
from typing import TextIO

from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.local.secrets_store import SecretStore
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField

INPUT_CHARACTERS = 1_000_000

ELSEWHERE = (
    "--gateway-url: connectors set, list and delete are for the local service of this machine; on "
    "AWS, store the JSON {{connector: {{key: value}}}} as the secret {secret} in Secrets Manager"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Where values come from.

    Attributes:
        stream: standard input.
        ask: asks at a terminal without showing what is typed.
    """

    stream: TextIO
    ask: Callable[[str], str]

    @classmethod
    def of_process(cls) -> ValueSource:
        """Return this process's own."""
        return cls(stream=sys.stdin, ask=getpass)


def run_action(
    store: SecretStore, stack: Stack, action: str, options: argparse.Namespace, source: ValueSource
) -> None:
    """Do one of ``set``, ``list``, ``delete`` with the names in ``options``.

    Raises:
        GatewayError: a name or a value is refused, or there is no such connector.
    """
    try:
        {"set": _set, "list": _list, "delete": _delete}[action](store, stack, options, source)
    except InvalidField as problem:
        raise BadRequest(str(problem)) from problem


def _set(
    store: SecretStore, stack: Stack, options: argparse.Namespace, source: ValueSource
) -> None:
    agent, connector = _names(options)
    values = _values(options.keys, source)
    for key, value in values.items():
        if not value or "\0" in value:
            raise BadRequest(f"{key}: its value must be neither empty nor hold NUL characters")
    with store.changing(stack.connector_secret(agent)) as connectors:
        connectors.setdefault(connector, {}).update(values)
        _check_variables(connectors)


def _list(
    store: SecretStore, stack: Stack, options: argparse.Namespace, source: ValueSource
) -> None:
    prefix = stack.connector_secret("")
    for name in store.names():
        agent = name.removeprefix(prefix)
        secret = store.get(name) if name.startswith(prefix) else None
        if secret is None or options.agent not in {"", agent}:
            continue
        for connector, values in sorted(secret.connectors.items()):
            print(f"{agent}  {connector}  {' '.join(sorted(values))}")  # noqa: T201


def _delete(
    store: SecretStore, stack: Stack, options: argparse.Namespace, source: ValueSource
) -> None:
    agent, connector = _names(options)
    with store.changing(stack.connector_secret(agent)) as connectors:
        if connector not in connectors:
            raise NotFound(f"agent {agent} has no connector {connector}")
        for key in options.keys:
            if key not in connectors[connector]:
                raise NotFound(f"connector {connector} of agent {agent} has no key {key}")
            del connectors[connector][key]
        if not options.keys:
            del connectors[connector]


def _names(options: argparse.Namespace) -> tuple[str, str]:
    names.check_agent(options.agent)
    names.check_connector(options.connector)
    for key in options.keys:
        if "=" in key:
            raise BadRequest(
                "values are not taken from the command line, where every process can read them: "
                "give KEY=value lines on standard input"
            )
        names.check_connector(key, "key")
    return options.agent, options.connector


def _values(wanted: list[str], source: ValueSource) -> dict[str, str]:
    if source.stream.isatty():
        return _asked(wanted, source)
    text = source.stream.read(INPUT_CHARACTERS)
    if not wanted:
        return _of_lines(text.splitlines())
    if len(wanted) > 1:
        raise BadRequest("standard input is the value of one KEY; for more, give KEY=value lines")
    return {wanted[0]: text.removesuffix("\n").removesuffix("\r")}


def _asked(wanted: Iterable[str], source: ValueSource) -> dict[str, str]:
    values = {key: source.ask(f"value of {key}: ") for key in wanted}
    if not values:
        raise BadRequest("name the KEYs to be asked for, or give KEY=value lines on standard input")
    return values


def _of_lines(lines: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        key, equals, value = line.partition("=")
        # The line itself may be a secret: it is not repeated.
        if not equals:
            raise BadRequest(f"line {number} of standard input is not KEY=value")
        values[names.check_connector(key, f"the key in line {number} of standard input")] = value
    if not values:
        raise BadRequest("there is no KEY=value line on standard input")
    return values


def _check_variables(connectors: Mapping[str, Mapping[str, str]]) -> None:
    owners: dict[str, str] = {}
    for connector, values in connectors.items():
        for key in values:
            variable = keys.connector_variable(connector, key)
            other = owners.setdefault(variable, connector)
            if other != connector:
                raise BadRequest(
                    f"{variable} would be a value of connector {other} and of connector "
                    f"{connector}: rename one"
                )
