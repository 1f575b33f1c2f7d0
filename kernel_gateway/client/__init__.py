"""A typed client of the gateway for programs and agents, blocking and asyncio.

>>> from kernel_gateway.client import Gateway
>>> with Gateway.local() as gateway, gateway.kernel() as kernel:  # doctest: +SKIP
...     result = kernel.execute("print('hello'); 6 * 7")
...     print(result.text)

`Gateway` and `AsyncGateway` have the same methods. A request whose connection is lost is sent
again with its idempotency key, so a cell never runs twice; see `Kernel.execute`.
"""

from __future__ import annotations

from kernel_gateway.client.asynchronous import AsyncGateway, AsyncKernel
from kernel_gateway.client.blocking import Gateway, Kernel, execute
from kernel_gateway.client.endpoint import (
    AnswerPending,
    ApiError,
    BadInput,
    Conflict,
    NoSuchThing,
    NotRunning,
    OutcomeUnknown,
    ResultGone,
    TryLater,
    Unauthorized,
    Unreachable,
)
from kernel_gateway.client.models import (
    CellError,
    CellFailed,
    Event,
    FileInfo,
    KernelInfo,
    Result,
    VariableInfo,
)

__all__ = [
    "AnswerPending",
    "ApiError",
    "AsyncGateway",
    "AsyncKernel",
    "BadInput",
    "CellError",
    "CellFailed",
    "Conflict",
    "Event",
    "FileInfo",
    "Gateway",
    "Kernel",
    "KernelInfo",
    "NoSuchThing",
    "NotRunning",
    "OutcomeUnknown",
    "Result",
    "ResultGone",
    "TryLater",
    "Unauthorized",
    "Unreachable",
    "VariableInfo",
    "execute",
]
