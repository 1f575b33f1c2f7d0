"""What became of requests with an idempotency key, where only the kernel's journal knows it."""

from __future__ import annotations

from kernel_gateway.errors import GatewayError, Started
from kernel_gateway.kernels.execution import Execution
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.missed import is_idle
from kernel_gateway.kernels.past import past_cells
from kernel_gateway.kernels.transcript import as_sent
from kernel_gateway.messaging.idempotency import Idempotency

PAST_CELLS_COUNT = 100
"""Of an earlier gateway's cells, in which keys are looked for."""

KEPT_CELLS_COUNT = 1000
"""In which a cell is looked for that is known to have run."""


class KeysUnavailable(GatewayError):
    """Whether a request ran before cannot be told now."""

    http_status = 503
    code_started = Started.UNKNOWN


class ResultForgotten(GatewayError):
    """A request ran before, and what it gave is not at hand any more."""

    http_status = 410
    code_started = Started.YES


async def past_keys(kernel: LambdaKernel) -> dict[str, tuple[Idempotency, str]]:
    """Return the keys in the kernel's last cells, oldest first, each with its request's msg_id.

    A cell that was in flight when its gateway ended has its end after that: it is adopted, or told
    to be lost.

    Raises:
        KeysUnavailable: the journal cannot be read.
    """
    try:
        await kernel.settle_past()
        cells = await past_cells(kernel.journal, last_count=PAST_CELLS_COUNT, is_open=True)
    except GatewayError as problem:
        raise _unavailable(problem) from problem
    facts = [(cell.started.gateway, cell.started.msg_id) for cell in cells]
    known = [(f.idempotency, msg_id) for f, msg_id in facts if f is not None]
    return {each.key: (each, msg_id) for each, msg_id in known if each is not None}


async def recalled(kernel: LambdaKernel, msg_id: str) -> Execution:
    """Return the execution of a request, as the journal has it.

    Raises:
        ResultForgotten: too many cells have run since.
        KeysUnavailable: the journal cannot be read.
    """
    journal = kernel.journal
    try:
        cells = await past_cells(journal, last_count=KEPT_CELLS_COUNT, is_open=True)
        found = [cell for cell in cells if cell.started.msg_id == msg_id and cell.finished]
        event = await journal.end_of_cell(found[-1].number) if found else None
    except GatewayError as problem:
        raise _unavailable(problem) from problem
    if event is None or event.reply is None:
        raise ResultForgotten(
            "the request with this idempotency key has run, and is not run again; its result is "
            "not kept any more"
        )
    parent = found[-1].started.header
    said = [as_sent(message, parent) for message in event.outputs.messages]
    return Execution.past(
        msg_id,
        [message for message in said if not is_idle(message)],
        as_sent(event.reply, parent, channel="shell"),
        is_complete=event.outputs.is_complete,
    )


def _unavailable(problem: GatewayError) -> KeysUnavailable:
    return KeysUnavailable(
        "whether the request with this idempotency key has run cannot be told now: ask again with "
        f"the same key ({problem})"
    )
