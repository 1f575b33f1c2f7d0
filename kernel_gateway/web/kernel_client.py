"""A kernel of a gateway as nbclient wants one: over the websocket, with the token.

jupyter_server's own GatewayKernelClient sends no credentials on the websocket and always asks for
``python3`` (gateway.md, pitfall 8).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from queue import Empty
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from kernel_gateway.client.endpoint import ApiError, Endpoint
from kernel_gateway.messaging.message import OutMessage, new_header
from kernel_gateway.web.codec import V1_PROTOCOL, MalformedFrame, decode_frame, encode_frame

CONNECT_TIMEOUT_S = 20
MAX_FRAME_BYTES = 1 << 30


async def connect_channels(
    endpoint: Endpoint, kernel_id: str, session_id: str
) -> WebSocketClientConnection:
    """Return an open websocket to a kernel, which speaks the v1 protocol (raises ApiError)."""
    path = f"/api/kernels/{kernel_id}/channels?session_id={session_id}"
    request = HTTPRequest(
        endpoint.websocket_url(path), headers=endpoint.headers, connect_timeout=CONNECT_TIMEOUT_S
    )
    try:
        return await websocket_connect(
            request, subprotocols=[V1_PROTOCOL], max_message_size=MAX_FRAME_BYTES
        )
    except (OSError, HTTPClientError) as problem:
        raise ApiError(f"cannot connect to kernel {kernel_id}: {problem}") from problem


class ChannelQueue:
    """Messages of one channel, in the order they came."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def put(self, message: dict[str, Any]) -> None:
        """Add a message."""
        self._queue.put_nowait(message)

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """Return the next message.

        Raises:
            Empty: none came within ``timeout`` seconds.
        """
        try:
            return await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            raise Empty from None


class ShellChannel(ChannelQueue):
    """The shell channel, on which nbclient's Output widgets also send."""

    def __init__(self, send: Callable[[OutMessage], None]) -> None:
        super().__init__()
        self._send = send

    def send(self, message: dict[str, Any]) -> None:
        """Send what ``MessageMaker.msg`` made (raises ApiError)."""
        self._send(OutMessage(channel="shell", **message))


class MessageMaker:
    """Makes messages; the name of its method is that of jupyter_client's Session."""

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex

    def msg(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return a message whose parent has the header ``parent``."""
        return {
            "header": new_header(msg_type, session=self.session, username="client"),
            "parent_header": parent or {},
            "metadata": metadata or {},
            "content": content or {},
        }


class GatewayKernelClient:
    """The channels of one kernel; the names are jupyter_client's.

    Attributes:
        session: makes messages.
        shell_channel: replies to requests.
        iopub_channel: what every client of the kernel gets.
        stdin_channel: questions of the kernel.
        control_channel: replies to control requests.
        cell_metadata: goes with every execute_request; nbclient itself sends none.
    """

    def __init__(self, endpoint: Endpoint, kernel_id: str) -> None:
        self._endpoint = endpoint
        self._kernel_id = kernel_id
        self.session = MessageMaker()
        self._socket: WebSocketClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self.allow_stdin = False
        self.cell_metadata: dict[str, Any] = {}
        self.shell_channel = ShellChannel(self._send)
        self.iopub_channel = ChannelQueue()
        self.stdin_channel = ChannelQueue()
        self.control_channel = ChannelQueue()

    async def open(self) -> None:
        """Connect (raises ApiError)."""
        session_id = self.session.session
        self._socket = await connect_channels(self._endpoint, self._kernel_id, session_id)
        self._reader = asyncio.create_task(self._read(self._socket))

    async def close(self) -> None:
        """Disconnect; the kernel goes on."""
        if self._socket is not None:
            self._socket.close()
        if self._reader is not None:
            await self._reader

    def is_alive(self) -> bool:
        """Return whether the connection stands."""
        return self._reader is not None and not self._reader.done()

    def execute(
        self,
        code: str,
        silent: bool = False,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool | None = None,
        stop_on_error: bool = True,
    ) -> str:
        """Send an execute_request and return its msg_id (raises ApiError)."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": store_history,
            "user_expressions": user_expressions or {},
            "allow_stdin": self.allow_stdin if allow_stdin is None else allow_stdin,
            "stop_on_error": stop_on_error,
        }
        return self.send("execute_request", content, metadata=self.cell_metadata)

    def kernel_info(self) -> str:
        """Send a kernel_info_request and return its msg_id (raises ApiError)."""
        return self.send("kernel_info_request", {})

    def send(
        self,
        msg_type: str,
        content: dict[str, Any],
        channel: str = "shell",
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send a message and return its msg_id (raises ApiError)."""
        message = self.session.msg(msg_type, content, metadata=metadata)
        self._send(OutMessage(channel=channel, **message))
        msg_id: str = message["header"]["msg_id"]
        return msg_id

    def _send(self, message: OutMessage) -> None:
        if self._socket is None or not self.is_alive():
            raise ApiError("the connection to the gateway is lost")
        frame = encode_frame(message, self._socket.selected_subprotocol)
        # A failure shows as the end of the connection, which the reader sees.
        self._socket.write_message(frame, binary=isinstance(frame, bytes))

    async def _read(self, socket: WebSocketClientConnection) -> None:
        channels = {
            "shell": self.shell_channel,
            "iopub": self.iopub_channel,
            "stdin": self.stdin_channel,
            "control": self.control_channel,
        }
        while (frame := await socket.read_message()) is not None:
            try:
                decoded = decode_frame(frame, socket.selected_subprotocol)
            except MalformedFrame:
                continue
            message = {**decoded.data, "buffers": list(decoded.buffers)}
            message.setdefault("msg_type", message["header"].get("msg_type"))
            channel = channels.get(decoded.channel or message.get("channel", ""))
            if channel is not None:
                channel.put(message)
