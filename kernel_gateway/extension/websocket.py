"""A websocket to one kernel, of whichever kind it is."""

from __future__ import annotations

from typing import Any

from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.web.connection import LambdaWebsocketConnection


class MixedWebsocketConnection(BaseKernelWebsocketConnection):
    """Makes the connection that the kernel's kind asks for."""

    def __new__(cls, *, parent: Any, **traits: Any) -> BaseKernelWebsocketConnection:  # type: ignore[misc]
        """Return a connection of another class, which its own kernel takes."""
        if isinstance(parent, LambdaKernel):
            session_id = traits["websocket_handler"].get_query_argument("session_id", None)
            return LambdaWebsocketConnection(parent=parent, session_id=session_id, **traits)
        return ZMQChannelsWebsocketConnection(parent=parent, **traits)

    @classmethod
    async def close_all(cls) -> None:
        """Close every connection: the server stops."""
        LambdaWebsocketConnection.close_all()
        await ZMQChannelsWebsocketConnection.close_all()
