"""What isolation a container really has: measured by a child that is treated as a cell's is."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from lambda_kernel.contract.cell_protocol import CellRequest
from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.outcome import Probe
from lambda_kernel.contract.schema import encode
from lambda_kernel.isolation import namespaces
from lambda_kernel.serving.cells import CellRun, ZygoteGone
from lambda_kernel.serving.control import Orders
from lambda_kernel.serving.errors import CellEnded
from lambda_kernel.serving.limits import CellLimitsInForce
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import Zygote

logger = logging.getLogger(__name__)

PROCESS_TIER = "process"
NAMESPACES_TIER = "namespaces"
CREDENTIAL_LEFT = "a credential is still in the environment of the serving process"
PROBE_S = 60.0
"""For the zygote to come up and the attacks to end; a child that hangs is no good sign."""

_MEMORY_BYTES = 1024**3
_OUTPUT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a container is asked to be.

    Attributes:
        tier: the isolation that cells must have.
        alone_on_machine: a Lambda micro-VM, where other processes are the platform's.
        platform: the function's environment, credentials included.
        degraded: why there is no execute-only interpreter; empty where there is one.
    """

    tier: str
    alone_on_machine: bool
    platform: Mapping[str, str]
    degraded: str


def measure(demand: Demand, zygote: Zygote, sweeper: Sweeper) -> Probe:
    """Return what isolation this container has, by attacking it."""
    reasons: dict[str, str] = {}
    if demand.degraded:
        reasons["interpreter"] = demand.degraded
    tier, refused = PROCESS_TIER, {"probe": False}
    try:
        told = _ask(demand, zygote, sweeper)
    except (CellEnded, ZygoteGone) as error:
        reasons["probe"] = str(error) or "the zygote ended"
    else:
        reasons |= told["reasons"]
        refused = dict(told["refused"])
        tier = _tier(told["namespaces"], reasons)
        if demand.tier == NAMESPACES_TIER != tier:
            reasons.setdefault("namespaces", "they share the container's")
    clean = not _secrets_visible(demand.platform)
    if not clean:
        reasons["clean_environment"] = CREDENTIAL_LEFT
    found = Probe(
        tier=tier,
        clean_environment=clean,
        non_dumpable=bool(refused) and all(refused.values()),
        memory_limit="sampled",
        refused=refused,
        reasons=reasons,
    )
    for name, why in reasons.items():
        logger.error("capability probe: not isolated", extra={"field": name, "why": why})
    logger.info("capability probe", extra={"probe": json.dumps(encode(found))})
    return found


def shortfall(found: Probe, tier: str) -> str | None:
    """Return in which way a container is worse than ``tier`` demands, or None.

    Args:
        found: what was measured.
        tier: what is demanded.
    """
    if not found.clean_environment:
        return CREDENTIAL_LEFT
    failed = found.reasons.get("probe")
    if tier == NAMESPACES_TIER and found.tier != tier:
        why = failed or found.reasons.get("namespaces", "they share the container's")
        return (
            f"its cells would not run in namespaces of their own ({why}). Allow nested user"
            f' namespaces on this machine, or set tier = "{PROCESS_TIER}" for this environment'
        )
    if failed is not None:
        return f"the probe failed: {failed}"
    if not found.non_dumpable:
        worst = [f"{name}: {said}" for name, said in found.reasons.items()]
        return f"a cell could read other processes ({'; '.join(worst)})"
    return None


def _tier(theirs: Mapping[str, str], reasons: dict[str, str]) -> str:
    ours = namespaces.identities()
    shared = [name for name in namespaces.NAMES if theirs[name] == ours[name]]
    if not shared:
        return NAMESPACES_TIER
    if len(shared) < len(namespaces.NAMES):
        reasons["namespaces"] = f"shared with the container: {', '.join(shared)}"
    return PROCESS_TIER


def _ask(demand: Demand, zygote: Zygote, sweeper: Sweeper) -> Mapping[str, Any]:
    limits = CellLimitsInForce(
        deadline=(ends := time.monotonic() + PROBE_S),
        kill_by=ends,
        timeout_s=PROBE_S,
        memory_bytes=_MEMORY_BYTES,
        orders=(none := Orders()),
        # It is starting, on what may be a busy machine. The deadline comes before, and says so.
        fork_wait_s=PROBE_S + 1.0,
        reap_patience_s=PROBE_S,
    )
    output = Output(lambda message: None, _OUTPUT_BYTES)
    request_run = CellRun(zygote, sweeper, output, limits, lambda: None, lambda reply: None)
    with ExitStack() as opened, tempfile.TemporaryDirectory(prefix=".lkg-probe-") as folder:
        opened.callback(none.close)
        snapshots = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("in", "out")]
        for descriptor in snapshots:
            opened.callback(os.close, descriptor)
        end = request_run.run(_request(demand, zygote, folder), *snapshots)
    return end.reply.content


def _request(demand: Demand, zygote: Zygote, folder: str) -> CellRequest:
    content = {"targets": [os.getpid(), zygote.pid], "visible": not demand.alone_on_machine}
    return CellRequest(
        kind="probe",
        msg=CellMessage(header={"msg_id": secrets.token_hex(8)}, content=content),
        execution_count=0,
        workdir=folder,
        home=folder,
    )


def _secrets_visible(platform: Mapping[str, str]) -> bool:
    # Reading one's own environ is refused to a non-dumpable process: os.environ it is, and argv.
    secret = [platform[n] for n in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN") if n in platform]
    visible = [*os.environ.values(), *sys.orig_argv]
    return any(value and value in text for value in secret for text in visible)
