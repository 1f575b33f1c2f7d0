"""httpx clients: settings and cookies; connections are opened anew."""

from __future__ import annotations

import importlib
import ssl
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried

_PLAIN = ("auth", "follow_redirects", "max_redirects", "trust_env")


def reduce_client(client: Any) -> Any:
    """Carry its settings."""
    transport = client._transport
    if type(transport).__name__ not in ("HTTPTransport", "AsyncHTTPTransport") or client._mounts:
        raise NotCarried(
            "its transport belongs to the process of its cell", "make it in the cell that uses it"
        )
    pool = transport._pool
    settings = {name: getattr(client, name) for name in _PLAIN}
    settings |= {
        "base_url": str(client.base_url),
        "headers": client.headers.multi_items(),
        "cookies": list(client.cookies.jar),
        "params": client.params.multi_items(),
        "timeout": client.timeout.as_dict(),
        "event_hooks": client.event_hooks,
        "http2": pool._http2,
        "verify": _verifies(pool._ssl_context),
    }
    return make_client, (type(client), settings, client.is_closed)


def make_client(cls: Any, settings: dict[str, Any], is_closed: bool) -> Any:
    """Return a client without connections."""
    httpx = importlib.import_module("httpx")
    cookies = httpx.Cookies()
    for cookie in settings.pop("cookies"):
        cookies.jar.set_cookie(cookie)
    timeout = httpx.Timeout(**settings.pop("timeout"))
    client = cls(timeout=timeout, cookies=cookies, **settings)
    if is_closed:
        client._state = type(client._state)["CLOSED"]
    return client


def _verifies(context: ssl.SSLContext) -> bool:
    return context.verify_mode is not ssl.CERT_NONE
