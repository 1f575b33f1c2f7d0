"""No contents: the gateway shows no file of its machine, and documents stay with the client."""

from __future__ import annotations

from typing import Any, NoReturn

from jupyter_server.services.contents.manager import AsyncContentsManager
from tornado import web


class NoContentsManager(AsyncContentsManager):
    """What jupyter_server insists on having, with nothing in it."""

    def get_extra_handlers(self) -> list[Any]:
        """Return no handler: jupyter_server's would serve ``/files/…``."""
        return []

    async def dir_exists(self, path: str) -> bool:
        """Return whether ``path`` is the root, which is empty."""
        return path.strip("/") == ""

    async def is_hidden(self, path: str) -> bool:
        """Return False."""
        return False

    async def file_exists(self, path: str = "") -> bool:
        """Return False."""
        return False

    async def get(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse (404)."""
        raise web.HTTPError(404)

    async def save(self, model: Any, path: str) -> NoReturn:
        """Refuse (405)."""
        raise web.HTTPError(405)

    async def delete_file(self, path: str) -> NoReturn:
        """Refuse (405)."""
        raise web.HTTPError(405)

    async def rename_file(self, old_path: str, new_path: str) -> NoReturn:
        """Refuse (405)."""
        raise web.HTTPError(405)
