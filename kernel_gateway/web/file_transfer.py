"""Files and folders between this machine and a workspace, one at a time, in constant memory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kernel_gateway.errors import BadRequest
from kernel_gateway.web.rest_client import BLOCK_BYTES, Progress, RestClient, files_path
from lambda_kernel.contract import names

SHA256_HEADER = "Lambda-Kernel-Sha256"
MODE_HEADER = "Lambda-Kernel-Mode"
MTIME_HEADER = "Lambda-Kernel-Mtime-Ns"
PARTIAL_SUFFIX = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One file or empty folder to move.

    Attributes:
        local: its path here.
        remote: its path in the workspace; a folder's ends in ``/``.
        size_bytes: of the content.
    """

    local: Path
    remote: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WorkspaceClient:
    """Files of one workspace, by REST.

    Attributes:
        rest: the gateway.
        workspace: which of the caller's workspaces.
    """

    rest: RestClient
    workspace: str

    def entries(self, folder: str, *, recursive: bool = True) -> list[dict[str, Any]]:
        """Return the entries below ``folder``, their paths relative to the workspace."""
        prefix = _as_folder(folder)
        query = "?recursive=true" if recursive else ""
        answer = self.rest.call("GET", files_path(self.workspace, prefix) + query)
        return [{**entry, "path": prefix + entry["path"]} for entry in answer["entries"]]

    def plan_get(self, remote: str, local: Path) -> list[Transfer]:
        """Return what is to be downloaded: one file, or all below a folder.

        Raises:
            BadRequest: there is no such file or folder.
        """
        remote = remote.removesuffix("/")
        below = self.entries(remote)
        if below:
            prefix = _as_folder(remote)
            return [_into(local, entry, prefix) for entry in below]
        parent, _, name = remote.rpartition("/")
        for entry in self.entries(parent, recursive=False):
            if entry["path"] == remote:
                target = local / name if local.is_dir() else local
                return [Transfer(local=target, remote=remote, size_bytes=entry["size_bytes"])]
        raise BadRequest(f"{remote}: there is no such file in workspace {self.workspace}")

    def put(self, item: Transfer, progress: Progress) -> None:
        """Upload one file or make one empty folder."""
        path = files_path(self.workspace, item.remote)
        if item.remote.endswith("/"):
            self.rest.call("PUT", path)
            return
        with item.local.open("rb") as file:
            status = os.fstat(file.fileno())
            headers = {
                SHA256_HEADER: _digest(file),
                MODE_HEADER: f"{status.st_mode & 0o777:04o}",
                MTIME_HEADER: str(status.st_mtime_ns),
            }
            file.seek(0)
            self.rest.upload(path, _Counted(file, progress), headers, status.st_size)  # type: ignore[arg-type]

    def get(self, item: Transfer, progress: Progress) -> None:
        """Download one file beside its place and move it there when it is whole."""
        if item.remote.endswith("/"):
            item.local.mkdir(parents=True, exist_ok=True)
            return
        item.local.parent.mkdir(parents=True, exist_ok=True)
        partial = item.local.with_name(item.local.name + PARTIAL_SUFFIX)
        try:
            with partial.open("wb") as file:
                headers = self.rest.download(
                    files_path(self.workspace, item.remote), file, progress
                )
            partial.chmod(int(headers.get(MODE_HEADER, "644"), 8) & 0o777)
            mtime_ns = int(headers.get(MTIME_HEADER, "0"))
            if mtime_ns:
                os.utime(partial, ns=(mtime_ns, mtime_ns))
            partial.replace(item.local)
        finally:
            partial.unlink(missing_ok=True)

    def remove(self, remote: str) -> None:
        """Delete one file, or a folder with all that is in it."""
        if not remote.endswith("/") and self.entries(remote):
            remote = _as_folder(remote)
        self.rest.call("DELETE", files_path(self.workspace, remote))


def plan_put(local: Path, remote: str) -> list[Transfer]:
    """Return what is to be uploaded: one file, or all below a folder.

    A file goes to ``remote``, into it where that ends in ``/``; a folder's content goes below
    ``remote``. Links are followed to files, never to folders.

    Raises:
        BadRequest: the local path or a name is not fit; the message names it.
    """
    if local.is_file():
        target = remote + local.name if remote.endswith("/") or not remote else remote
        return [_checked(Transfer(local=local, remote=target, size_bytes=local.stat().st_size))]
    if not local.is_dir():
        raise BadRequest(f"{local}: there is no such file or folder")
    return [_checked(item) for item in _walk(local, _as_folder(remote))]


def _walk(local: Path, prefix: str) -> Iterator[Transfer]:
    for folder, folders, files in os.walk(local):
        here = Path(folder)
        relative = here.relative_to(local).as_posix()
        base = prefix if relative == "." else f"{prefix}{relative}/"
        if not folders and not files and base:
            yield Transfer(local=here, remote=base, size_bytes=0)
        for name in sorted(files):
            status = (here / name).stat()
            if stat.S_ISREG(status.st_mode):
                yield Transfer(local=here / name, remote=base + name, size_bytes=status.st_size)
        folders.sort()


def _checked(item: Transfer) -> Transfer:
    problem = names.file_key_problem(item.remote.removesuffix("/"))
    if problem:
        raise BadRequest(f"{item.local}: its name in the workspace {problem}")
    return item


def _into(local: Path, entry: dict[str, Any], prefix: str) -> Transfer:
    path: str = entry["path"]
    relative = path.removeprefix(prefix)
    # What the gateway says is checked too: it must not make us write elsewhere.
    problem = names.file_key_problem(relative.removesuffix("/"))
    if problem:
        raise BadRequest(f"{path!r}: {problem}")
    return Transfer(local=local / relative, remote=path, size_bytes=entry["size_bytes"])


def _as_folder(path: str) -> str:
    return f"{path.rstrip('/')}/" if path.strip("/") else ""


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


class _Counted:
    """A file whose reads are told."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        block = self._file.read(size)
        self._progress(len(block))
        return block
