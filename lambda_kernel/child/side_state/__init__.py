"""What a session has beside its variables: environment, settings, what IPython was told.

Each file has carriers of one concern. A carrier is made in the fresh process, takes what it finds
there as its baseline, collects only what differs after the cell and applies it in the next process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lambda_kernel.child.side_state.carrier import Carrier, ObjectCarrier
from lambda_kernel.child.side_state.charts import AltairChoices, PlotlyRenderer
from lambda_kernel.child.side_state.comms import Comms
from lambda_kernel.child.side_state.doctest_mode import DoctestMode
from lambda_kernel.child.side_state.environment import (
    CurrentDirectory,
    Environment,
    ImportPath,
    is_secret,
)
from lambda_kernel.child.side_state.interpreter import Decimals, Limits, Locale
from lambda_kernel.child.side_state.libraries import (
    MatplotlibParameters,
    NumpySettings,
    PandasOptions,
)
from lambda_kernel.child.side_state.log_setup import LogSetup
from lambda_kernel.child.side_state.patches import Patches
from lambda_kernel.child.side_state.shell import (
    Aliases,
    Configured,
    Extensions,
    Formatters,
    Magics,
    Rehydrators,
)
from lambda_kernel.child.side_state.shortcuts import DirectoryStack, MagicAliases
from lambda_kernel.child.side_state.tracebacks import TracebackMode
from lambda_kernel.child.side_state.warning_filters import WarningFilters

__all__ = ["Baseline", "apply", "apply_objects", "collect", "collect_objects", "is_secret"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How the process was before the session's own changes.

    Attributes:
        environment: as the request gave it.
        patches: what cells assign in modules; also one of the object carriers.
        comms: likewise; its objects are read when they are asked for.
        carriers: in the order they are applied: what finds modules before what imports them.
        object_carriers: of what only the session's pickles can hold.
    """

    environment: Mapping[str, str]
    patches: Patches
    comms: Comms
    carriers: tuple[Carrier, ...]
    object_carriers: tuple[ObjectCarrier, ...]

    @classmethod
    def here(cls, workdir: str, shell: Any) -> Baseline:
        """Return the baseline of this process, as it is now.

        Args:
            workdir: the absolute working directory.
            shell: the IPython shell.
        """
        environment = dict(os.environ)
        logging_carrier, patches, comms = LogSetup(), Patches(shell), Comms(shell)
        return cls(
            environment=environment,
            patches=patches,
            comms=comms,
            carriers=(
                Environment(environment),
                ImportPath(tuple(sys.path)),
                CurrentDirectory(workdir),
                Limits(),
                Locale(),
                Decimals(),
                logging_carrier,
                WarningFilters(),
                NumpySettings(),
                MatplotlibParameters(),
                PandasOptions(),
                PlotlyRenderer(),
                AltairChoices(),
                Extensions(shell),
                Aliases(shell),
                Configured(shell),
                TracebackMode(shell),
                DoctestMode(shell),
                MagicAliases(shell),
                DirectoryStack(shell),
            ),
            object_carriers=(
                patches,
                comms,
                logging_carrier,
                Magics(shell),
                Formatters(shell),
                Rehydrators(),
            ),
        )


def collect(baseline: Baseline) -> dict[str, Any]:
    """Return what differs from ``baseline``, as plain values, by carrier."""
    found = {carrier.name: carrier.collect() for carrier in baseline.carriers}
    return {name: value for name, value in found.items() if value is not None}


def collect_objects(baseline: Baseline) -> dict[str, Any]:
    """Return live objects, by ``carrier:key``: for the session's own pickles."""
    return {
        f"{carrier.name}:{key}": value
        for carrier in baseline.object_carriers
        for key, value in carrier.collect_objects().items()
    }


def apply(baseline: Baseline, carried: Mapping[str, Any]) -> list[str]:
    """Make this process what ``collect`` saw in another one.

    Returns:
        Notices for the user, one a line.
    """
    notices = []
    for carrier in baseline.carriers:
        if carrier.name in carried:
            notices += carrier.apply(carried[carrier.name])
    return notices


def apply_objects(baseline: Baseline, objects: Mapping[str, Any]) -> None:
    """Put back what ``collect_objects`` gave, as far as it could be stored."""
    for carrier in baseline.object_carriers:
        prefix = f"{carrier.name}:"
        own = {k.removeprefix(prefix): v for k, v in objects.items() if k.startswith(prefix)}
        if own:
            carrier.apply_objects(own)
