"""The capability probe's deciding part: attacks by a process that is treated as a cell's is."""

from __future__ import annotations

import os
from typing import Any

from lambda_kernel.contract.cell_protocol import CellRequest
from lambda_kernel.isolation import namespaces, probe


def probe_reply(request: CellRequest) -> dict[str, Any]:
    """Return the content of the reply: what the attacks achieved, and where this process is.

    Args:
        request: its content names the pids to attack (``targets``) and whether every process
            that can be seen is one of ours (``visible``).
    """
    content = request.msg.content
    targets = {int(pid) for pid in content["targets"]}
    if content["visible"]:
        targets.update(probe.visible_processes())
    result = probe.attack_all(sorted(targets - {os.getpid()}))
    return {
        "status": "ok",
        "refused": result.refused,
        "reasons": result.reasons,
        "namespaces": namespaces.identities(),
    }
