"""What a gateway is told: command line, TOML or Jupyter configuration, as one checked value."""

from __future__ import annotations

import json
import logging
import os
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_core.application import JupyterApp
from traitlets import Dict, Float, Int, List, TraitError, Unicode, default
from traitlets.config import Config

from kernel_gateway.audit.options import AuditOptions
from kernel_gateway.config import Deployment
from kernel_gateway.environments.environment import Environment, read_environments
from kernel_gateway.errors import ConfigError
from kernel_gateway.kernels.lease import ReplicaSettings
from kernel_gateway.retention import Retention
from kernel_gateway.run_file import default_state_dir
from kernel_gateway.web.identities import IdentityTable, check_token, read_identities
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField, decode

TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A gateway's settings, checked.

    Attributes:
        state_dir: where storage, logs and ``run/gateway.json`` stand.
        identities: whose token is whose.
        token: the local user's token; None where identities are configured.
        environments: by kernelspec name.
        log_level: name of a level of ``logging``.
        max_containers: how many containers may run at once.
        warm_count: how many containers are started before anybody asks.
        idle_container_s: a container without an invocation for so long is ended.
        question_wait_s: how long completion and inspection may wait for a container.
        retention: how long the past of a kernel is kept.
        garbage_interval_s: how often what nobody needs any more is deleted; 0 = never.
        stack: names of buckets, roles, functions and secrets.
        deployment: where S3 and Lambda are that run already; None = they are started here.
        replica_url: where other gateways on the same buckets reach this one.
        lease_s: after so long without a sign of this gateway another one takes over its kernels.
        signing_key: signs the journals, ``awskms:<key id>``; None = a key of the state directory.
        audit: what is kept of what ran.
        config: what remains for jupyter_server's own classes.
    """

    state_dir: Path
    identities: IdentityTable
    token: str | None
    environments: dict[str, Environment]
    log_level: str
    max_containers: int
    warm_count: int
    idle_container_s: int
    question_wait_s: float
    retention: Retention
    garbage_interval_s: int
    stack: Stack
    deployment: Deployment | None
    replica_url: str | None
    lease_s: float
    signing_key: str | None
    audit: AuditOptions
    config: Config


class KernelGateway(JupyterApp):
    """Settings of the Jupyter gateway whose cells run as AWS Lambda invocations."""

    name = "kernel-gateway"
    description = "A Jupyter gateway whose every cell is one isolated AWS Lambda invocation"

    state_dir = Unicode(help="Where storage, logs and run/gateway.json stand.").tag(config=True)
    identities_file = Unicode(help="TOML file with [[identity]] tables.").tag(config=True)
    identity = List(Dict(), help="Tables user, agent, token_sha256, admin.").tag(config=True)
    environment = List(Dict(), help="Tables of execution environments.").tag(config=True)
    token = Unicode(None, allow_none=True, help="The local user's token.").tag(config=True)
    max_containers = Int(4, min=1, max=1000, help="Containers that may run at once.").tag(
        config=True
    )
    warm_count = Int(1, min=0, help="Containers started ahead for each environment.").tag(
        config=True
    )
    idle_container_s = Int(600, min=1, help="Seconds after which an idle container ends.").tag(
        config=True
    )
    question_wait_s = Float(
        1.0, min=0.0, help="Seconds after which completion does without a container."
    ).tag(config=True)

    retention_days = Int(30, min=1, help="Days for which the past of a kernel is kept.").tag(
        config=True
    )
    retention_cells = Int(1000, min=1, help="Cells of a kernel whose past is kept.").tag(
        config=True
    )
    garbage_interval_s = Int(
        6 * 3600, min=0, help="Seconds between two collections of garbage; 0 = never."
    ).tag(config=True)
    deployment_file = Unicode(
        None,
        allow_none=True,
        help="JSON file with the deployment to use, as run/deployment.json of another gateway.",
    ).tag(config=True)
    replica_url = Unicode(
        None,
        allow_none=True,
        help="Where other gateways on the same buckets reach this one, such as http://host:8888.",
    ).tag(config=True)
    lease_s = Float(
        ReplicaSettings().lease_s,
        min=1.0,
        max=3600.0,
        help="Seconds without a sign of a gateway after which another takes over its kernels.",
    ).tag(config=True)
    signing_key = Unicode(
        None,
        allow_none=True,
        help="Who signs the journals: awskms:<key id>; else a key of the state directory.",
    ).tag(config=True)
    audit = Dict(help="Table of the audit trail: required, redact and others.").tag(config=True)
    governed_read_prefix = Unicode(
        None,
        allow_none=True,
        help="Prefix of the workspaces bucket that every cell reads at ./.governed/.",
    ).tag(config=True)

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return str(default_state_dir())

    def migrate_config(self) -> None:
        """Do nothing: there is no IPython 3 configuration to carry over."""

    def load(self, command_line: Config, config_file: str | None) -> Settings:
        """Return the checked settings; the command line goes over files.

        Args:
            command_line: what was given there, as traitlets configuration.
            config_file: ``--config``; None searches Jupyter's configuration directories for
                ``kernel_gateway_config.py`` and ``.json``.

        Raises:
            ConfigError: a file or value is wrong; the message names it.
        """
        self.raise_config_file_errors = True
        self.log.addFilter(_is_no_last_word)
        path = None if config_file is None else Path(config_file)
        with self._files_named(path):
            self._load_files(path)
        with _named(lambda: ""):
            self.update_config(command_line)
        with self._files_named(path):
            environments = read_environments(self.environment)
            deployment = read_deployment(self.deployment_file)
            stack = self._stack() if deployment is None else deployment.stack
            read_identities(self.identity)
            AuditOptions.read(self.audit)
        return self._checked(environments, stack, deployment)

    def exit(self, exit_status: int | str | None = 0) -> None:
        """Raise what traitlets would end the process for: a wrong value in a file."""
        raise

    def _files_named(self, path: Path | None) -> AbstractContextManager[None]:
        return _named(lambda: str(path) if path else ", ".join(self.loaded_config_files))

    def _load_files(self, path: Path | None) -> None:
        if path is not None and path.suffix == ".toml":
            self.update_config(config_of_toml(read_toml(path), path))
            return
        if path is not None:
            if path.suffix not in {".py", ".json"}:
                raise ConfigError(f"--config {path}: must end in .toml, .py or .json")
            if not path.is_file():
                raise ConfigError(f"--config {path}: there is no such file")
            self.config_file = str(path.resolve())
        try:
            self.load_config_file(suppress_errors=False)
        except TraitError:
            raise
        except Exception as problem:
            raise ConfigError(f"{type(problem).__name__}: {problem}") from problem

    def _checked(
        self, environments: dict[str, Environment], stack: Stack, deployment: Deployment | None
    ) -> Settings:
        identities, token = self._identities()
        audit = AuditOptions.read(self.audit)
        return Settings(
            state_dir=Path(self.state_dir).expanduser().absolute(),
            identities=identities,
            token=token,
            environments=environments,
            log_level=_level_name(self.log_level),
            max_containers=self.max_containers,
            warm_count=min(self.warm_count, self.max_containers),
            idle_container_s=self.idle_container_s,
            question_wait_s=self.question_wait_s,
            retention=Retention(
                days=self.retention_days,
                cells=self.retention_cells,
                timeout_s=max(
                    Retention().timeout_s, *(float(e.timeout_s) for e in environments.values())
                ),
                journal_days=audit.retention_days,
            ),
            garbage_interval_s=self.garbage_interval_s,
            stack=stack,
            deployment=deployment,
            replica_url=check_replica_url(self.replica_url),
            lease_s=self.lease_s,
            signing_key=self.signing_key or None,
            audit=audit,
            config=self.config,
        )

    def _stack(self) -> Stack:
        try:
            return Stack(governed_read_prefix=self.governed_read_prefix or None)
        except InvalidField as problem:
            raise ConfigError(str(problem)) from problem

    def _identities(self) -> tuple[IdentityTable, str | None]:
        tables = list(self.identity)
        if self.identities_file:
            more = identity_tables(Path(self.identities_file))
            with _named(lambda: self.identities_file):
                read_identities(more)
            tables += more
        if tables:
            if self.token is not None:
                raise ConfigError("--token: identities are configured, each has its own token")
            return IdentityTable(read_identities(tables)), None
        token = self.token if self.token is not None else environment_token(os.environ)
        if token is None:
            token = secrets.token_hex(TOKEN_BYTES)
        return IdentityTable.of_token(check_token(token)), token


@contextmanager
def _named(files: Callable[[], str]) -> Iterator[None]:
    """Have errors name the files that they come from."""
    try:
        yield
    except (ConfigError, TraitError) as problem:
        name, text = files(), str(problem)
        if isinstance(problem, ConfigError) and (not name or name in text):
            raise
        raise ConfigError(f"{name}: {text}" if name else text) from problem


def _is_no_last_word(record: logging.LogRecord) -> bool:
    """Return whether traitlets does not say goodbye with it: the error itself is shown."""
    return record.levelno < logging.CRITICAL


def environment_token(environ: Mapping[str, str]) -> str | None:
    """Return the token that JUPYTER_TOKEN or JUPYTER_TOKEN_FILE gives, or None.

    Raises:
        ConfigError: the file cannot be read.
    """
    if environ.get("JUPYTER_TOKEN"):
        return environ["JUPYTER_TOKEN"]
    if environ.get("JUPYTER_TOKEN_FILE"):
        path = Path(environ["JUPYTER_TOKEN_FILE"])
        try:
            return path.read_text().strip()
        except OSError as problem:
            raise ConfigError(f"JUPYTER_TOKEN_FILE {path}: {problem.strerror}") from problem
    return None


def check_replica_url(url: str | None) -> str | None:
    """Return where other gateways reach this one, None where nothing is given.

    Raises:
        ConfigError: it is not an address.
    """
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ConfigError(f"--replica-url {url!r}: must be like http://host:8888")
    return url


def read_deployment(file: str | None) -> Deployment | None:
    """Return the deployment in a JSON file, None where none is named.

    Raises:
        ConfigError: it cannot be read or is not one.
    """
    if not file:
        return None
    try:
        return decode(Deployment, json.loads(Path(file).read_text()), "deployment")
    except OSError as problem:
        raise ConfigError(f"--deployment {file}: {problem.strerror}") from problem
    except (ValueError, InvalidField) as problem:
        raise ConfigError(f"--deployment {file}: {problem}") from problem


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        ConfigError: it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: is not TOML: {problem}") from problem


def identity_tables(path: Path) -> list[dict[str, Any]]:
    """Return the ``[[identity]]`` tables of ``--identities``.

    Raises:
        ConfigError: the file holds something else, or no identity.
    """
    tables = read_toml(path)
    for name in tables:
        if name != "identity":
            raise ConfigError(f"{path}: {name} is not known here, only [[identity]] is")
    found = _array_of_tables(tables, "identity", path)
    if not found:
        raise ConfigError(f"{path}: has no [[identity]] table")
    return found


def _check_traits(table: Mapping[str, Any], path: Path) -> None:
    unknown = sorted(table.keys() - set(KernelGateway.class_trait_names(config=True)))
    if unknown:
        raise ConfigError(f"{path}: [KernelGateway] has no {unknown[0]}")


def config_of_toml(tables: Mapping[str, Any], path: Path) -> Config:
    """Return a TOML configuration as traitlets configuration.

    ``[[identity]]``, ``[[environment]]`` and ``[audit]`` become traits of KernelGateway; every
    other table must be named like a class, as in ``[ServerApp]``.

    Raises:
        ConfigError: a name is something else.
    """
    config = Config()
    for name, value in tables.items():
        if name in {"identity", "environment"}:
            config.KernelGateway[name] = _array_of_tables(tables, name, path)
        elif name == "audit" and isinstance(value, dict):
            config.KernelGateway[name] = value
        elif isinstance(value, dict) and name[:1].isupper():
            if name == KernelGateway.__name__:
                _check_traits(value, path)
            config[name].merge(Config(value))
        else:
            raise ConfigError(
                f"{path}: {name} is not known; there may be [[identity]], [[environment]], "
                "[audit] and tables named like classes, such as [ServerApp]"
            )
    return config


def _array_of_tables(tables: Mapping[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    found = tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ConfigError(f"{path}: {name} must be written [[{name}]]")
    return found


def _level_name(level: object) -> str:
    # Traitlets admits numbers and names, WARN among them; everybody else takes the names.
    numbers = logging.getLevelNamesMapping()
    number = numbers.get(level, logging.INFO) if isinstance(level, str) else int(str(level))
    return logging.getLevelName(number)
