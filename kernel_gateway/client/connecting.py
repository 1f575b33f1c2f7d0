"""How both clients use httpx, and where they find the gateway of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from kernel_gateway.client.endpoint import Endpoint, NotRunning
from kernel_gateway.client.operations import Send
from kernel_gateway.run_file import RunFile, default_state_dir, is_in_use

CONNECT_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def http_options(endpoint: Endpoint) -> dict[str, Any]:
    """Return the arguments of an httpx client for ``endpoint``."""
    return {
        "base_url": endpoint.url.rstrip("/"),
        "headers": endpoint.headers,
        # A proxy of the environment does not reach this machine's own addresses.
        "trust_env": urlsplit(endpoint.url).hostname not in LOOPBACK,
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
    }


def request_options(send: Send) -> dict[str, Any]:
    """Return the arguments of httpx for one request."""
    content, headers = send.content, dict(send.headers)
    if send.json is not None:
        # ASCII: a lone surrogate must reach the gateway, which says what is wrong with it.
        content, headers["Content-Type"] = json.dumps(send.json).encode(), "application/json"
    return {
        "method": send.method,
        "url": send.path,
        "content": content,
        "headers": headers,
        "timeout": httpx.Timeout(send.answer_s, connect=CONNECT_S),
    }


def running_gateway(state_dir: str | Path | None) -> RunFile:
    """Return the gateway that runs on ``state_dir``, None for the default one.

    Raises:
        NotRunning: none does.
    """
    place = default_state_dir() if state_dir is None else Path(state_dir)
    found = RunFile.read(place) if is_in_use(place) else None
    if found is None:
        raise NotRunning(f"no gateway runs on {place}; start one with `kernel-gateway`")
    return found
