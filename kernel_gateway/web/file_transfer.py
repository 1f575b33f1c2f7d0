"""Files and folders between this machine and a workspace, one at a time, in constant memory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kernel_gateway.client.endpoint import files_path
from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.web.rest_client import BLOCK_BYTES, Progress, RestClient
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

    def matching(self, remote: str) -> list[dict[str, Any]]:
        """Return the entry of one file, or all below a folder; of an empty one its own.

        Raises:
            NotFound: there is no such file or folder.
        """
        below = self.entries(remote)
        bare = remote.rstrip("/")
        if below or not bare:
            return below
        for entry in self.entries(bare.rpartition("/")[0], recursive=False):
            if entry["path"] in {remote, f"{bare}/"}:
                return [entry]
        raise NotFound(f"{remote}: there is no such file or folder in workspace {self.workspace}")

    def plan_get(self, remote: str, local: str) -> list[Transfer]:
        """Return what is to be downloaded: one file, or all below a folder.

        A file goes to ``local``, into it where that is a folder or ends in ``/``; a folder's
        content goes below ``local``.

        Raises:
            NotFound: there is no such file or folder.
        """
        found, target = self.matching(remote), Path(local)
        if not _is_file(found, remote):
            return [_into(target, entry, _as_folder(remote)) for entry in found]
        if local.endswith("/") or target.is_dir():
            target /= remote.rpartition("/")[2]
        return [Transfer(local=target, remote=remote, size_bytes=found[0]["size_bytes"])]

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
                path = files_path(self.workspace, item.remote)
                headers = self.rest.download(path, _Written(file, progress))
            partial.chmod(int(headers.get(MODE_HEADER, "644"), 8) & 0o777)
            mtime_ns = int(headers.get(MTIME_HEADER, "0"))
            if mtime_ns:
                os.utime(partial, ns=(mtime_ns, mtime_ns))
            partial.replace(item.local)
        finally:
            partial.unlink(missing_ok=True)

    def remove(self, remote: str, *, recursive: bool = False) -> list[dict[str, Any]]:
        """Delete one file, or a folder with all that is in it, and return what it was.

        Raises:
            NotFound: there is no such file or folder.
            BadRequest: it is a folder and not ``recursive``.
        """
        found = self.matching(remote)
        if not _is_file(found, remote):
            if not recursive:
                raise BadRequest(f"{remote}: is a folder; -r deletes it with all that is in it")
            remote = _as_folder(remote)
        self.rest.call("DELETE", files_path(self.workspace, remote))
        return found


def plan_put(
    local: Path, remote: str, leave_out: Callable[[str], object] = lambda text: None
) -> list[Transfer]:
    """Return what is to be uploaded: one file, or all below a folder.

    A file goes to ``remote``, into it where that ends in ``/``; a folder's content goes below
    ``remote``. Links are followed to files, never to folders.

    Args:
        local: the file or folder.
        remote: its path in the workspace, "" for the root.
        leave_out: told of each thing in the folder that is no file and no folder.

    Raises:
        BadRequest: the local path or names are not fit; the message has all of them.
        OSError: it cannot be read.
    """
    status = local.stat()
    if stat.S_ISDIR(status.st_mode):
        return _checked(_walk(local, _as_folder(remote), leave_out))
    if not stat.S_ISREG(status.st_mode):
        raise BadRequest(f"{local}: is {_kind(status.st_mode)}, neither file nor folder")
    target = remote + local.name if remote.endswith("/") or not remote else remote
    return _checked([Transfer(local=local, remote=target, size_bytes=status.st_size)])


def _walk(local: Path, prefix: str, leave_out: Callable[[str], object]) -> Iterator[Transfer]:
    for folder, folders, files in os.walk(local, onerror=_raise):
        here = Path(folder)
        relative = here.relative_to(local).as_posix()
        base = prefix if relative == "." else f"{prefix}{relative}/"
        is_empty = True
        for name in sorted([*files, *folders]):
            status = _status(here / name)
            if stat.S_ISREG(status.st_mode):
                yield Transfer(local=here / name, remote=base + name, size_bytes=status.st_size)
            elif not stat.S_ISDIR(status.st_mode):
                leave_out(f"left out: {str(here / name)!r} is {_kind(status.st_mode)}")
                continue
            is_empty = False
        if is_empty and base:
            yield Transfer(local=here, remote=base, size_bytes=0)
        folders.sort()


def _status(path: Path) -> os.stat_result:
    """Return what a link to a file leads to, else what the path itself is."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and path.is_file():
        return path.stat()
    return status


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link that leads to no file", stat.S_IFIFO: "a FIFO"}
    return {**kinds, stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")


def _problem(path: str) -> str | None:
    return names.file_key_problem(path.removesuffix("/"), is_folder=path.endswith("/"))


def _raise(problem: OSError) -> None:
    raise problem


def _checked(items: Iterable[Transfer]) -> list[Transfer]:
    plan = list(items)
    found = [(item, _problem(item.remote)) for item in plan]
    problems = [f"{str(item.local)!r}: its name {problem}" for item, problem in found if problem]
    if problems:
        raise BadRequest("\n".join(["nothing was uploaded", *problems]))
    return plan


def _is_file(found: list[dict[str, Any]], remote: str) -> bool:
    return len(found) == 1 and found[0]["path"] == remote and not remote.endswith("/")


def _into(local: Path, entry: dict[str, Any], prefix: str) -> Transfer:
    path: str = entry["path"]
    relative = path.removeprefix(prefix)
    # What the gateway says is checked too: it must not make us write elsewhere.
    problem = _problem(relative)
    if problem and path != prefix:
        raise BadRequest(f"{path!r}: {problem}")
    return Transfer(local=local / relative, remote=path, size_bytes=entry["size_bytes"])


def _as_folder(path: str) -> str:
    return f"{path.rstrip('/')}/" if path.strip("/") else ""


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


class _Written:
    """Takes blocks into a file and tells how large they were."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress

    def __call__(self, block: bytes) -> None:
        try:
            self._file.write(block)
        except OSError as problem:
            # Not to be taken for a problem of the connection.
            raise BadRequest(f"{self._file.name}: {problem.strerror}") from problem
        self._progress(len(block))


class _Counted:
    """A file whose reads are told."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        try:
            block = self._file.read(size)
        except OSError as problem:
            raise BadRequest(f"{self._file.name}: {problem.strerror}") from problem
        self._progress(len(block))
        return block
