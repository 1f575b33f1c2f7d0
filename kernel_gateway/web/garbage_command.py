"""What ``kernel-gateway gc`` does: have a gateway delete what no session needs any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.web.rest_client import RestClient

LONG_S = 3600.0
"""A collection goes through all commits."""


def collect(endpoint: Endpoint, *, dry_run: bool) -> str:
    """Return what was deleted, or would be, as text (raises ApiError)."""
    client = RestClient(endpoint, timeout_s=LONG_S)
    return shown(client.call("GET" if dry_run else "POST", "/api/garbage"), dry_run=dry_run)


def shown(report: Mapping[str, Any], *, dry_run: bool) -> str:
    """Return a report of the gateway for people."""
    lines = [*report["commits"], *report["chunks"], *report["outputs"]] if dry_run else []
    lines += [f"journal of kernel {kernel_id}" for kernel_id in report["journals"] if dry_run]
    for kind, why in (("locked", "Object Lock holds it"), ("unreadable", "it ends with no entry")):
        lines += [
            f"left alone, {why}: journal of kernel {kernel_id}"
            for kernel_id in report[f"journals_{kind}"]
        ]
    lines += [f"left alone, a commit cannot be read: {prefix}" for prefix in report["left"]]
    counts = (
        f"{len(report['commits'])} commits, {len(report['chunks'])} chunks, "
        f"{len(report['outputs'])} kept outputs and {len(report['journals'])} journals"
    )
    size = f"{report['size_bytes'] / 1e6:.1f} MB"
    lines.append(f"{counts} {'would be' if dry_run else 'were'} deleted: {size}")
    return "\n".join(lines)
