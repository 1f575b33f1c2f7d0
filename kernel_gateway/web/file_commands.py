"""What ``kernel-gateway files`` does, with what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_gateway.errors import BadRequest
from kernel_gateway.web.file_transfer import Transfer, WorkspaceClient, plan_put
from kernel_gateway.web.progress import TransferProgress, amount
from kernel_gateway.web.rest_client import Progress

ROOT_NAMES = (".", "./", "/")


def prepared(action: str, options: argparse.Namespace) -> Callable[[WorkspaceClient], None]:
    """Return what does ``ls``, ``put``, ``get`` or ``rm`` with the paths in ``options``.

    What is wrong already without a gateway is refused here, before one is started for it.

    Raises:
        BadRequest: a path is wrong; the message says which. What is returned raises GatewayError.
    """
    with _local_problems():
        act = {"ls": _list, "put": _put, "get": _get, "rm": _remove}[action](options)

    def run(client: WorkspaceClient) -> None:
        with _local_problems():
            act(client)

    return run


def _list(options: argparse.Namespace) -> Callable[[WorkspaceClient], None]:
    def act(client: WorkspaceClient) -> None:
        for entry in client.matching(_workspace_path(options.path)):
            modified = (entry["modified"] or "")[:19].replace("T", " ")
            print(f"{entry['size_bytes']:>14,}  {modified:19}  {entry['path']}")  # noqa: T201

    return act


def _put(options: argparse.Namespace) -> Callable[[WorkspaceClient], None]:
    local = Path(_given(options.local, "LOCAL"))
    remote = _workspace_path(options.remote)
    if not options.remote and local.is_dir():
        remote = f"{local.resolve().name}/"
    plan = plan_put(local, remote, leave_out=_tell)
    return lambda client: _move(client.put, plan, "uploaded")


def _get(options: argparse.Namespace) -> Callable[[WorkspaceClient], None]:
    remote = _workspace_path(_given(options.remote, "REMOTE"))
    local = options.local or Path(remote).name or "."
    return lambda client: _move(client.get, client.plan_get(remote, local), "downloaded")


def _remove(options: argparse.Namespace) -> Callable[[WorkspaceClient], None]:
    path = _workspace_path(_given(options.path, "PATH"))
    if not path:
        raise BadRequest("the workspace itself is not deleted; name what is in it")

    def act(client: WorkspaceClient) -> None:
        removed = client.remove(path, recursive=options.recursive)
        _sum_up((entry["size_bytes"] for entry in removed if entry["type"] == "file"), "deleted")

    return act


@contextmanager
def _local_problems() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise BadRequest(f"{problem.filename or 'a local file'}: {problem.strerror}") from problem


def _move(act: Callable[[Transfer, Progress], None], plan: list[Transfer], what: str) -> None:
    progress = TransferProgress(sum(item.size_bytes for item in plan))
    try:
        for item in plan:
            progress.begin(item.remote)
            act(item, progress.moved)
    finally:
        progress.end()
    _sum_up((item.size_bytes for item in plan if not item.remote.endswith("/")), what)


def _workspace_path(text: str) -> str:
    return "" if text in ROOT_NAMES else text


def _given(text: str, what: str) -> str:
    if not text:
        raise BadRequest(f"{what}: is empty")
    return text


def _sum_up(sizes_bytes: Iterable[int], what: str) -> None:
    sizes = list(sizes_bytes)
    files = "1 file" if len(sizes) == 1 else f"{len(sizes):,} files"
    _tell(f"{files}, {amount(sum(sizes))} {what}")


def _tell(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
