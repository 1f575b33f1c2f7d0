"""A kernel of a gateway, for one process: made, spoken to, connected again, ended."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tornado.websocket import WebSocketClientConnection, WebSocketClosedError

from kernel_gateway.client.endpoint import ApiError, Endpoint, NoSuchThing
from kernel_gateway.errors import GatewayError
from kernel_gateway.web.codec import MalformedFrame, join_v1, split_v1
from kernel_gateway.web.kernel_client import connect_channels
from kernel_gateway.web.rest_client import RestClient
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

AGAIN_ATTEMPTS_COUNT = 5
AGAIN_PAUSE_S = 0.5

FindGateway = Callable[[], Awaitable[Endpoint]]


class GatewayLink:
    """A kernel and the websocket to it. Messages are the raw parts of the v1 protocol.

    Attributes:
        kernel_id: of the kernel.
        is_dead: the gateway has said that the kernel is no more.
    """

    def __init__(self, find: FindGateway, endpoint: Endpoint, kernel_id: str) -> None:
        self._find = find
        self._endpoint = endpoint
        self._session_id = uuid.uuid4().hex
        self._socket: WebSocketClientConnection | None = None
        self._is_open = asyncio.Event()
        self.kernel_id = kernel_id
        self.is_dead = False

    @classmethod
    async def create(cls, find: FindGateway, spec_name: str, env: dict[str, str]) -> GatewayLink:
        """Return a new kernel of the gateway that ``find`` finds; not yet open.

        Args:
            find: the gateway, also later on where that was lost.
            spec_name: which kernelspec of the gateway.
            env: LAMBDA_KERNEL_… choices.

        Raises:
            GatewayError: there is none, or it refused.
        """
        endpoint = await find()
        body = {"name": spec_name, "env": env}
        made = await asyncio.to_thread(RestClient(endpoint).call, "POST", "/api/kernels", body)
        try:
            # It becomes the name of a file.
            kernel_id = names.check_kernel_id(made["id"], "id")
        except (InvalidField, TypeError, KeyError) as problem:
            raise ApiError(f"{endpoint.url} answers as no gateway does") from problem
        return cls(find, endpoint, kernel_id)

    @property
    def path(self) -> str:
        """The kernel's path below the gateway's URL."""
        return f"/api/kernels/{self.kernel_id}"

    async def open(self) -> None:
        """Connect (raises ApiError)."""
        self._socket = await connect_channels(self._endpoint, self.kernel_id, self._session_id)
        self._is_open.set()

    async def open_again(self) -> bool:
        """Connect to the same kernel, on another gateway if need be; False where that is gone."""
        for _ in range(AGAIN_ATTEMPTS_COUNT):
            try:
                self._endpoint = await self._find()
                if self.kernel_id not in {k["id"] for k in await self.ask("GET", "/api/kernels")}:
                    return False
                await self.open()
            except GatewayError as problem:
                logger.warning("the gateway was lost", extra={"reason": str(problem)})
                await asyncio.sleep(AGAIN_PAUSE_S)
            else:
                return True
        return False

    async def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send a message; while the gateway is lost, wait until it is found again."""
        frame = join_v1(channel, parts)
        while True:
            await self._is_open.wait()
            try:
                if self._socket is not None:
                    await self._socket.write_message(frame, binary=True)
                    return
            except WebSocketClosedError:
                # `receive` will see it too.
                self._is_open.clear()

    async def receive(self) -> tuple[str, list[bytes]] | None:
        """Return the channel and the parts of the next message, None where the link is lost."""
        while self._socket is not None:
            frame = await self._socket.read_message()
            if frame is None:
                break
            try:
                return split_v1(frame if isinstance(frame, bytes) else frame.encode())
            except MalformedFrame as problem:
                logger.warning("a frame of the gateway was dropped", extra={"reason": str(problem)})
        self._is_open.clear()
        return None

    async def ask(self, method: str, path: str) -> Any:
        """Return the answer to a REST request (raises ApiError)."""
        return await asyncio.to_thread(RestClient(self._endpoint).call, method, path)

    async def interrupt(self) -> None:
        """Interrupt the running cell; what goes wrong is logged."""
        try:
            await self.ask("POST", f"{self.path}/interrupt")
        except ApiError as problem:
            logger.warning("the cell was not interrupted", extra={"reason": str(problem)})

    async def is_busy(self) -> bool:
        """Return whether a cell runs (raises ApiError)."""
        model = await self.ask("GET", self.path)
        return bool(model["execution_state"] == "busy")

    async def end(self) -> bool:
        """Disconnect, end the kernel, and return whether it is surely gone."""
        if self._socket is not None:
            self._socket.close()
        if self.is_dead:
            return True
        try:
            await self.ask("DELETE", self.path)
        except NoSuchThing:
            pass
        except ApiError:
            return False
        return True
