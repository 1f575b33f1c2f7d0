"""Events of a journal that are about no single cell: what begins, or is different from now on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_gateway.audit.facts import RunsIn, Session, StartFacts
from kernel_gateway.messaging.caller import Actor
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import encode
from lambda_kernel.contract.witness import SecretVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """A kernel was started. Written when a client connects to it, at the latest before a cell.

    Attributes:
        session: what the kernel is; when it was started too, which is before this is written.
        environment: what its cells will run in, as far as known without one.
        actor: who started it.
        gateway_version: of the program that writes this.
    """

    session: Session
    environment: RunsIn
    actor: Actor
    gateway_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionForked:
    """Another kernel began with the variables of this one.

    Attributes:
        kernel_id: of the other one.
        at, at_kernel_id: the commit it began with, and whose that is: this kernel's, or where it is
            a fork itself, its source's.
        execution_count: of the cell that committed.
        actor: who started the other one.
    """

    kernel_id: str
    at: Head
    at_kernel_id: str
    execution_count: int
    actor: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The next cell runs under other conditions than the one before it; its facts say which.

    Attributes:
        changed: names of what is different, such as ``environment.memory_mb``.
    """

    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorsGranted:
    """From this cell on its code could read other connectors' values than before.

    Attributes:
        request_id: of the cell.
        connectors: ids of all that it could read; none = none any more.
        secret: where the values came from; as the serving process says.
    """

    request_id: str
    connectors: tuple[str, ...] = ()
    secret: SecretVersion | None = None


def changes_between(before: StartFacts, after: StartFacts) -> tuple[str, ...]:
    """Return the names of the conditions of two cells that are not the same."""
    old, new = dict(_conditions(before)), dict(_conditions(after))
    return tuple(name for name in sorted(old | new) if old.get(name) != new.get(name))


def _conditions(facts: StartFacts) -> Iterator[tuple[str, Any]]:
    environment: Mapping[str, Any] = encode(facts.environment)
    yield from ((f"environment.{name}", value) for name, value in environment.items())
    credentials = facts.credentials
    yield "credentials.role_arn", credentials.role_arn
    yield "credentials.duration_s", credentials.duration_s
    if credentials.policy_template is not None:
        yield "credentials.policy_template", credentials.policy_template
    yield "credentials.connector_secret", credentials.connector_secret
    yield "network", facts.network
