"""``/api/kernels/{id}/outputs/{seq}``: all that a cell said, where it was too much to be sent."""

from __future__ import annotations

from kernel_gateway.errors import NotFound
from kernel_gateway.web.base import GatewayHandler, endpoint
from kernel_gateway.web.workspace_files import FileStore

PLAIN_TEXT = "text/plain; charset=utf-8"


class OutputHandler(GatewayHandler):
    """The whole output of one cell, as text."""

    auth_resource = "kernels"

    @endpoint
    async def get(self, kernel_id: str, seq: str) -> None:
        """Send it; where a cell said little, nothing is kept."""
        files: FileStore = self.settings["workspace_files"]
        bucket, key = self.own_kernel(kernel_id).kept_output(int(seq))
        try:
            file = await files.in_bucket(bucket).open(key)
        except NotFound:
            raise NotFound(
                f"no output of cell {seq} of this kernel is kept: only what was cut at the limit "
                "is, as long as the kernel's past"
            ) from None
        self.set_header("Content-Type", PLAIN_TEXT)
        self.set_header("Content-Length", str(file.size_bytes))
        async for chunk in file.chunks:
            self.write(chunk)
            await self.flush()
        self.finish(set_content_type=PLAIN_TEXT)
