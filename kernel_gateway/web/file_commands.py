"""What ``kernel-gateway files`` does, with what it prints."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from kernel_gateway.web.file_transfer import Transfer, WorkspaceClient, plan_put
from kernel_gateway.web.progress import TransferProgress
from kernel_gateway.web.rest_client import Progress


def run_action(client: WorkspaceClient, action: str, options: argparse.Namespace) -> None:
    """Do one of ``ls``, ``put``, ``get``, ``rm`` with the paths in ``options``.

    Raises:
        GatewayError: a path is wrong, or the gateway refused.
    """
    {"ls": _list, "put": _put, "get": _get, "rm": _remove}[action](client, options)


def _list(client: WorkspaceClient, options: argparse.Namespace) -> None:
    for entry in client.entries(options.path):
        modified = (entry["modified"] or "")[:19].replace("T", " ")
        print(f"{entry['size_bytes']:>14,}  {modified:19}  {entry['path']}")  # noqa: T201


def _put(client: WorkspaceClient, options: argparse.Namespace) -> None:
    local = Path(options.local)
    usual = f"{local.resolve().name}/" if local.is_dir() else ""
    _move(client.put, plan_put(local, options.remote or usual))


def _get(client: WorkspaceClient, options: argparse.Namespace) -> None:
    remote = options.remote.removesuffix("/")
    local = Path(options.local or Path(remote).name or ".")
    _move(client.get, client.plan_get(remote, local))


def _remove(client: WorkspaceClient, options: argparse.Namespace) -> None:
    client.remove(options.path)


def _move(act: Callable[[Transfer, Progress], None], plan: list[Transfer]) -> None:
    progress = TransferProgress(sum(item.size_bytes for item in plan))
    try:
        for item in plan:
            progress.begin(item.remote)
            act(item, progress.moved)
    finally:
        progress.end()
