"""A notebook executed cell by cell on a gateway, with nbclient's handling of outputs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from kernel_gateway.client.endpoint import ApiError, Endpoint
from kernel_gateway.web.kernel_client import GatewayKernelClient
from kernel_gateway.web.rest_client import RestClient

logger = logging.getLogger(__name__)

DEFAULT_KERNEL = "lambda-python"

Report = Callable[[int, int, str], None]
"""Called with the number of the code cell that begins, how many there are, and its first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookFailure:
    """Why a notebook did not run to its end.

    Attributes:
        cell_number: which code cell, from 1.
        text: the traceback or the reason, readable.
    """

    cell_number: int
    text: str


class RemoteManager:
    """The kernel's manager as nbclient asks for it: it is there, and can be interrupted."""

    has_kernel = True

    def __init__(self, rest: RestClient, kernel_id: str) -> None:
        self._rest = rest
        self.kernel_id = kernel_id

    async def interrupt_kernel(self) -> None:
        """Stop the running cell (raises ApiError)."""
        path = f"/api/kernels/{self.kernel_id}/interrupt"
        await asyncio.to_thread(self._rest.call, "POST", path)


async def run_notebook(
    endpoint: Endpoint,
    notebook: Any,
    *,
    kernel_name: str | None,
    timeout_s: int | None,
    env: dict[str, str],
    report: Report,
) -> NotebookFailure | None:
    """Execute ``notebook`` in a new kernel, in place, and return why it stopped early or None.

    Args:
        endpoint: which gateway.
        notebook: as nbformat reads it; outputs are put into it while it runs.
        kernel_name: None for the notebook's own, where that is a Lambda kernel, or the default.
        timeout_s: of one cell, None for the environment's own limit.
        env: LAMBDA_KERNEL_… choices of the kernel.
        report: called before each code cell.

    Raises:
        ApiError: the gateway refused, or is gone.
    """
    async with new_kernel(endpoint, kernel_name or _own_kernel(notebook), env) as (manager, client):
        # nbclient asks of both only what ours have; the types it names are jupyter_client's.
        runner = NotebookClient(notebook, km=cast("Any", manager), timeout=timeout_s)
        runner.kc = cast("Any", client)
        runner.reset_execution_trackers()
        for cell in filter(_is_code, notebook.cells):
            cell.outputs = []
            cell.execution_count = None
        try:
            return await _run_cells(runner, client, notebook, report)
        finally:
            # What widgets show, for front ends that have no kernel.
            runner.set_widgets_metadata()


async def _run_cells(
    runner: NotebookClient, client: GatewayKernelClient, notebook: Any, report: Report
) -> NotebookFailure | None:
    count = sum(1 for cell in notebook.cells if _is_code(cell))
    number = 0
    for index, cell in enumerate(notebook.cells):
        if not _is_code(cell):
            continue
        number += 1
        report(number, count, cell.source.lstrip().partition("\n")[0])
        client.cell_metadata = _sent_metadata(cell)
        try:
            await runner.async_execute_cell(cell, index)
        except CellExecutionError as failure:
            return NotebookFailure(cell_number=number, text=str(failure))
        except CellTimeoutError:
            return NotebookFailure(
                cell_number=number, text=f"CellTimeout: not done within {runner.timeout} s"
            )
        except DeadKernelError:
            return NotebookFailure(
                cell_number=number, text="the connection to the gateway was lost"
            )
    return None


@asynccontextmanager
async def new_kernel(
    endpoint: Endpoint, name: str, env: dict[str, str]
) -> AsyncIterator[tuple[RemoteManager, GatewayKernelClient]]:
    """Yield a kernel of one's own, which is deleted afterwards (raises ApiError)."""
    rest = RestClient(endpoint)
    made = await asyncio.to_thread(rest.call, "POST", "/api/kernels", {"name": name, "env": env})
    path = f"/api/kernels/{made['id']}"
    client = GatewayKernelClient(endpoint, made["id"])
    try:
        await client.open()
        yield RemoteManager(rest, made["id"]), client
    finally:
        await client.close()
        try:
            await asyncio.to_thread(rest.call, "DELETE", path)
        except ApiError as problem:
            # What came of the cells counts for more.
            logger.warning("the kernel could not be deleted", extra={"problem": str(problem)})


def _own_kernel(notebook: Any) -> str:
    name: str = notebook.metadata.get("kernelspec", {}).get("name", "")
    return name if name.startswith("lambda-") else DEFAULT_KERNEL


def _sent_metadata(cell: Any) -> dict[str, Any]:
    """Return what is recorded of a cell beside its code, by the names that JupyterLab sends.

    Not all of its metadata, as JupyterLab does: there may be times of an earlier run, or a trail.
    """
    sent: dict[str, Any] = {"cellId": cell.id}
    tags = cell.metadata.get("tags")
    if isinstance(tags, list):
        sent["tags"] = [tag for tag in tags if isinstance(tag, str)]
    return sent


def _is_code(cell: Any) -> bool:
    return bool(cell.cell_type == "code" and cell.source.strip())
