"""What an execution environment is: one image, one Lambda function, one kernelspec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernel_gateway.errors import ConfigError
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField, decode

DEFAULT_ID = "default"
DEFAULT_PRELOAD = ("numpy", "pandas", "matplotlib.pyplot", "ipywidgets")
USUAL_TIMEOUT_S = 900
LONGEST_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One execution environment.

    Attributes:
        id: names the function ``<prefix>env-<id>`` and the kernelspec ``lambda-<id>``.
        python: absolute path of the interpreter, or None for the gateway's own.
        memory_mb: what a cell may hold, 128 to 10,240.
        ephemeral_mb: size of ``/tmp``, 2,048 to 10,240 (our floor; AWS allows 512).
        home_mb: what a HOME may measure to be saved, 16 to 10,240.
        kept_output_mb: what is kept of a cell's output that is too long to be sent, 0 to 1,024; in
            the container it takes room of ``/tmp`` until the cell has ended.
        timeout_s: 1 to 900; to 1,800 with ``allow_long_timeout``.
        commit_grace_s: how long before the timeout a cell is interrupted, so that what it did is
            committed; None = 45, or a tenth of the timeout where that is less.
        input_timeout_s: how long a question of a cell (``input()``) waits for its answer; at least
            1. The cell's own time goes on meanwhile.
        allow_long_timeout: the explicit setting that admits more than 900 s.
        preload: modules imported once before cells run; one that is missing is left out.
        tier: the isolation a cell must have: ``namespaces`` (of its own, for each cell) or
            ``process`` (as on AWS Lambda). Where it cannot be had, no cell runs.
        lambda_strict: the container refuses the system calls that AWS Lambda refuses (prctl,
            ptrace, unshare, mount and others), so that only the process tier can be had.
        allow_degraded: cells run although their isolation is worse than ``tier`` demands.
        mask_connectors: replace connector values in what a cell prints.
        recorded_randomness: unseeded random numbers begin with recorded seeds, time zone, locale
            and the time stamps of builds are fixed, so that a replay can be identical.
    """

    id: str = DEFAULT_ID
    python: str | None = None
    memory_mb: int = 2048
    ephemeral_mb: int = 2048
    home_mb: int = 2048
    kept_output_mb: int = 256
    timeout_s: int = USUAL_TIMEOUT_S
    commit_grace_s: float | None = None
    input_timeout_s: int = 600
    allow_long_timeout: bool = False
    preload: tuple[str, ...] = DEFAULT_PRELOAD
    tier: Literal["namespaces", "process"] = "namespaces"
    lambda_strict: bool = False
    allow_degraded: bool = False
    mask_connectors: bool = True
    recorded_randomness: bool = True

    def __post_init__(self) -> None:
        names.check_environment_id(self.id)
        _check_range("memory_mb", self.memory_mb, 128, 10_240)
        _check_range("ephemeral_mb", self.ephemeral_mb, 2_048, 10_240)
        _check_range("home_mb", self.home_mb, 16, 10_240)
        _check_range("kept_output_mb", self.kept_output_mb, 0, 1_024)
        if self.timeout_s > USUAL_TIMEOUT_S and not self.allow_long_timeout:
            raise InvalidField(
                "environment.timeout_s",
                f"must be 1 to {USUAL_TIMEOUT_S}; set allow_long_timeout = true for up to "
                f"{LONGEST_TIMEOUT_S}",
            )
        _check_range("timeout_s", self.timeout_s, 1, LONGEST_TIMEOUT_S)
        if self.input_timeout_s < 1:
            raise InvalidField("environment.input_timeout_s", "must be 1 or more")
        grace_s = self.commit_grace_s
        if grace_s is not None and not 0 < grace_s < self.timeout_s:
            raise InvalidField("environment.commit_grace_s", "must be above 0 and below timeout_s")
        for module in self.preload:
            if not all(part.isidentifier() for part in module.split(".")):
                raise InvalidField("environment.preload", f"{module!r} is not a module name")

    @property
    def kernelspec_name(self) -> str:
        """The kernelspec that starts kernels here."""
        return "lambda-python" if self.id == DEFAULT_ID else f"lambda-{self.id}"

    @property
    def display_name(self) -> str:
        """What a launcher shows."""
        suffix = "" if self.id == DEFAULT_ID else f" {self.id}"
        return f"Python 3 (Lambda{suffix})"


def read_environments(tables: Iterable[Mapping[str, Any]]) -> dict[str, Environment]:
    """Return the environments of ``[[environment]]`` tables by kernelspec name.

    The default environment is always there; a table with ``id = "default"`` changes it.

    Raises:
        ConfigError: a field is unknown or out of range, or an id stands twice.
    """
    found = {Environment().kernelspec_name: Environment()}
    seen: set[str] = set()
    for i, table in enumerate(tables):
        try:
            environment = decode(Environment, table, f"environment[{i}]")
        except InvalidField as problem:
            raise ConfigError.in_table(problem, "environment", i) from problem
        if environment.id in seen:
            raise ConfigError(f"environment[{i}].id: {environment.id!r} stands twice")
        if environment.id == "python":
            raise ConfigError(f"environment[{i}].id: 'python' is the default's own name")
        seen.add(environment.id)
        found[environment.kernelspec_name] = environment
    return found


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidField(f"environment.{name}", f"must be {low:,} to {high:,}")
