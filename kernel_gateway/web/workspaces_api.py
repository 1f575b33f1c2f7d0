"""``/api/workspaces/{workspace}/files/{path}``: the caller's own files, as streams."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from tornado import web

from kernel_gateway.errors import BadRequest, Conflict, NotFound
from kernel_gateway.messaging.message import utc_text
from kernel_gateway.web.base import GatewayHandler, endpoint
from kernel_gateway.web.workspace_files import CHUNK_BYTES, FileAttributes, FileEntry, FileStore
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.schema import InvalidField

SHA256_HEADER = "Lambda-Kernel-Sha256"
MODE_HEADER = "Lambda-Kernel-Mode"
MTIME_HEADER = "Lambda-Kernel-Mtime-Ns"
MAX_FILE_BYTES = 50 << 30


@web.stream_request_body
class WorkspaceFilesHandler(GatewayHandler):
    """One file or folder of a workspace of the caller's user.

    A path that is empty or ends in ``/`` is a folder. The user comes from the token, so there is
    no way to name another's file.
    """

    auth_resource = "workspaces"

    def initialize(self) -> None:
        """Begin without a body."""
        self._spool: Spool | None = None

    async def prepare(self) -> None:  # type: ignore[override]
        """Check the caller and the name before a byte of the body is read."""
        await super().prepare()
        self.request.connection.set_max_body_size(MAX_FILE_BYTES)  # type: ignore[union-attr]
        if self.request.method == "PUT" and self.current_user is not None:
            self._key(**self.path_kwargs)
            self._spool = Spool(self.settings["spool_dir"])

    async def data_received(self, chunk: bytes) -> None:
        """Take a part of the body; the next one is read when this one is on disk."""
        if self._spool is not None:
            await self._spool.write(chunk)

    def on_finish(self) -> None:
        """Drop the spooled body."""
        if self._spool is not None:
            self._spool.close()

    def on_connection_close(self) -> None:
        """Drop what came of a body whose client is gone."""
        super().on_connection_close()
        if self._spool is not None:
            self._spool.close()

    @property
    def store(self) -> FileStore:
        """Where the files are."""
        found: FileStore = self.settings["workspace_files"]
        return found

    @endpoint
    async def get(self, workspace: str, path: str) -> None:
        """List a folder (``?recursive=true``: all below it), or download a file."""
        key = self._key(workspace, path)
        if key.endswith("/"):
            recursive = self.get_query_argument("recursive", "") == "true"
            entries = await self.store.entries(key, recursive=recursive)
            self.finish(json.dumps({"path": path, "entries": [_line(e) for e in entries]}))
            return
        await self._send(key, path)

    @endpoint
    async def put(self, workspace: str, path: str) -> None:
        """Store the body as a file; a folder's body is empty."""
        key = self._key(workspace, path)
        spool = self._spool
        if spool is None:
            raise BadRequest("the request has no body")
        if key.endswith("/") and spool.size_bytes:
            raise BadRequest("path: a folder has no content; leave the trailing / out")
        body, digest = await spool.finish()
        self._check_digest(digest)
        await self._check_place(workspace, path)
        attributes = FileAttributes(
            sha256=digest,
            mode=self._number(MODE_HEADER, 8, 0o644) & 0o777,
            mtime_ns=self._number(MTIME_HEADER, 10, time.time_ns()),
        )
        await self.store.put(key, body, attributes)
        self.set_status(201)
        self.finish(json.dumps({"path": path, "size_bytes": spool.size_bytes, "sha256": digest}))

    @endpoint
    async def delete(self, workspace: str, path: str) -> None:
        """Delete a file, or a folder with all that is in it; older versions are kept."""
        if not path:
            raise BadRequest("path: the workspace itself is not deleted; name what is in it")
        key = self._key(workspace, path)
        if not key.endswith("/"):
            await self.store.delete(key)
        elif not await self.store.delete_all(key):
            raise NotFound(f"there is no folder {path}")
        self.set_status(204)
        self.finish()

    async def _send(self, key: str, path: str) -> None:
        file = await self.store.open(key)
        name = quote(path.rsplit("/", 1)[-1])
        self.set_header("Content-Length", str(file.size_bytes))
        self.set_header("Content-Disposition", f"attachment; filename*=utf-8''{name}")
        self.set_header(MODE_HEADER, f"{file.attributes.mode:04o}")
        self.set_header(MTIME_HEADER, str(file.attributes.mtime_ns))
        if file.attributes.sha256:
            self.set_header(SHA256_HEADER, file.attributes.sha256)
        self.set_header("Content-Type", "application/octet-stream")
        async for chunk in file.chunks:
            self.write(chunk)
            await self.flush()
        self.finish(set_content_type="application/octet-stream")

    def _key(self, workspace: str, path: str) -> str:
        user = self.identity.user
        try:
            prefix = keys.workspace_prefix(user, names.check_workspace(workspace))
            if path:
                names.check_file_key(path.removesuffix("/"), "path", is_folder=path.endswith("/"))
        except InvalidField as problem:
            raise BadRequest(str(problem)) from problem
        return prefix + path

    async def _check_place(self, workspace: str, path: str) -> None:
        """Refuse what no working directory can hold: one name for a file and for a folder."""
        if not path:
            return
        bare = path.removesuffix("/")
        parts = bare.split("/")
        folders = ["/".join(parts[:n]) for n in range(1, len(parts) + path.endswith("/"))]
        # At once, as each is a request of S3.
        is_folder, *are_files = await asyncio.gather(
            self.store.is_folder(self._key(workspace, f"{bare}/")),
            *(self.store.is_file(self._key(workspace, folder)) for folder in folders),
        )
        if is_folder and bare == path:
            raise Conflict(f"{path}: there is a folder of this name")
        for folder, is_file in zip(folders, are_files, strict=True):
            if is_file:
                raise Conflict(f"{folder}: is a file, so nothing can stand below it")

    def _check_digest(self, digest: str) -> None:
        expected = self.request.headers.get(SHA256_HEADER)
        if expected is not None and expected.lower() != digest:
            raise BadRequest(f"{SHA256_HEADER}: the body that arrived has another digest")

    def _number(self, header: str, base: int, usual: int) -> int:
        text = self.request.headers.get(header)
        if text is None:
            return usual
        try:
            value = int(text, base)
        except ValueError:
            raise BadRequest(f"{header}: must be a number of base {base}") from None
        if not 0 <= value < 1 << 63:
            raise BadRequest(f"{header}: is out of range")
        return value


class Spool:
    """A request's body on disk, without a name, until its digest is known."""

    def __init__(self, folder: Path) -> None:
        self._file: Any = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self.size_bytes = 0

    async def write(self, chunk: bytes) -> None:
        """Take ``chunk``; a full buffer goes to disk in a thread."""
        self.size_bytes += len(chunk)
        self._waiting += chunk
        if len(self._waiting) >= CHUNK_BYTES:
            await self._drain()

    async def finish(self) -> tuple[BinaryIO, str]:
        """Return the body from its beginning, and its SHA-256."""
        await self._drain()
        self._file.seek(0)
        return self._file, self._hash.hexdigest()

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()

    async def _drain(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()

        def write() -> None:
            self._hash.update(waiting)
            self._file.write(waiting)

        await asyncio.to_thread(write)


def _line(entry: FileEntry) -> dict[str, Any]:
    modified = entry.modified_s
    return {
        "path": entry.path,
        "type": "folder" if entry.path.endswith("/") else "file",
        "size_bytes": entry.size_bytes,
        "modified": None if modified is None else utc_text(datetime.fromtimestamp(modified, UTC)),
    }
