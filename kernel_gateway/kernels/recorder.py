"""The seam of the audit trail: told before a cell is sent and after it is settled."""

from __future__ import annotations

import logging
from typing import Protocol

from kernel_gateway.dispatch.settle import Settled
from lambda_kernel.contract.invocation import Invocation

logger = logging.getLogger(__name__)


class CellRecorder(Protocol):
    """Keeps a record of cells."""

    async def started(self, invocation: Invocation) -> None:
        """Record that a cell is about to be sent.

        Raises:
            GatewayError: it cannot be recorded; the cell is not sent (AuditUnavailable).
        """

    async def finished(self, invocation: Invocation, settled: Settled) -> None:
        """Record how the cell ended; called before its reply is sent.

        Raises:
            GatewayError: it cannot be recorded; the client is told in a ``stream`` message.
        """


class LoggingRecorder:
    """CellRecorder that only logs."""

    async def started(self, invocation: Invocation) -> None:
        """Log that a cell is sent."""
        logger.debug(
            "a cell is sent",
            extra={"request_id": invocation.request_id, "kernel_id": invocation.kernel_id},
        )

    async def finished(self, invocation: Invocation, settled: Settled) -> None:
        """Log how it ended."""
        outcome, trouble = settled.outcome, settled.trouble
        logger.debug(
            "a cell has ended",
            extra={
                "request_id": invocation.request_id,
                "kernel_id": invocation.kernel_id,
                "aws_request_id": outcome.aws_request_id if outcome else None,
                "status": outcome.status.value if outcome else None,
                "trouble": trouble.failure.ename if trouble else None,
                "committed": settled.committed,
            },
        )
