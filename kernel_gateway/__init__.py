"""The Jupyter gateway: speaks the messaging protocol, sends each cell to one Lambda invocation."""

from __future__ import annotations


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module that makes a Jupyter server offer these kernels beside its own."""
    return [{"module": "kernel_gateway.extension"}]
