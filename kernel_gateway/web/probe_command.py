"""What ``kernel-gateway probe`` does: run one cell and show what its container's isolation is."""

from __future__ import annotations

import json
from typing import Any

from kernel_gateway.client import ApiError, AsyncGateway
from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.errors import StartError


async def measured_probe(endpoint: Endpoint, kernel_name: str | None) -> dict[str, Any]:
    """Return the probe of the container that runs a cell now.

    Args:
        endpoint: which gateway.
        kernel_name: whose environment; None for the default.

    Raises:
        ApiError: the gateway refused, or is gone.
        StartError: the cell did not run; the message says why.
    """
    problem = ""
    async with (
        AsyncGateway(endpoint.url, endpoint.token) as gateway,
        gateway.kernel(kernel_name) as kernel,
    ):
        try:
            result = await kernel.execute("pass")
            problem = str(result.error or "no reason was given")
        except ApiError as refused:
            # Where the isolation itself is the reason, the kernel says what was measured.
            problem = str(refused)
        model = (await gateway.attach(kernel.kernel_id)).info.lambda_kernel
    probe: dict[str, Any] | None = model["probe"]
    if probe is None:
        raise StartError(f"no cell ran: {problem}")
    return probe


def is_isolated(probe: dict[str, Any]) -> bool:
    """Return whether every measure holds and every attack was refused."""
    return bool(probe["clean_environment"] and probe["non_dumpable"] and not probe["reasons"])


def shown(probe: dict[str, Any], *, as_json: bool) -> str:
    """Return ``probe`` as a table for people, or as JSON."""
    if as_json:
        return json.dumps(probe, indent=2)
    rows = {
        "tier": probe["tier"],
        "clean environment": "yes" if probe["clean_environment"] else "NO",
        "non-dumpable": "yes" if probe["non_dumpable"] else "NO",
        "memory limit": probe["memory_limit"],
        **{
            f"attack: {name}": "refused" if refused else "GOT IN"
            for name, refused in probe["refused"].items()
        },
        **{f"reason: {name}": why for name, why in probe["reasons"].items()},
    }
    width = max(map(len, rows))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows.items())
