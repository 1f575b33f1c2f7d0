"""A typed client of the gateway for programs and agents, blocking and asyncio.

>>> from kernel_gateway.client import Gateway
>>> with Gateway.local() as gateway, gateway.kernel() as kernel:  # doctest: +SKIP
...     result = kernel.execute("print('hello'); 6 * 7")
...     print(result.text)

`Gateway` and `AsyncGateway` have the same methods. A request whose connection is lost is sent
again with its idempotency key, so a cell never runs twice; see `Kernel.execute`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from kernel_gateway.client.asynchronous import AsyncGateway, AsyncKernel
    from kernel_gateway.client.blocking import Gateway, Kernel, execute
else:
    # What asks a gateway without httpx, as most commands do, need not wait for its import.
    _PLACES = dict.fromkeys(("AsyncGateway", "AsyncKernel"), "asynchronous")
    _PLACES |= dict.fromkeys(("Gateway", "Kernel", "execute"), "blocking")

    def __getattr__(name):
        """Return one of the two clients."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
        return getattr(module, name)


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
