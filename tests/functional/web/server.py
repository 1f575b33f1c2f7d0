"""The gateway's web server in this process, over a function and an S3 in memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from traitlets.config import Config
from websockets.asyncio.client import ClientConnection, connect

from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.environments.environment import Environment, read_environments
from kernel_gateway.garbage import GarbageCollector
from kernel_gateway.kernels.clocks import Clocks
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.retention import Retention
from kernel_gateway.web.identities import IdentityEntry, IdentityTable, token_digest
from kernel_gateway.web.server import GatewayServer
from kernel_gateway.web.workspace_files import MemoryFileStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.frames import FrameKind, FrameWriter, invocation_key
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status

STACK = Stack()
HANDLER_DIGEST = "0" * 64
FRAME_KEY = b"k" * 32
TOKENS = {
    "u1": ("u1", None, False),
    "u1-a1": ("u1", "a1", False),
    "u1-a2": ("u1", "a2", False),
    "u10": ("u10", None, False),
    "root": ("root", None, True),
}


@dataclass
class EchoFunction:
    """A Lambda function whose cells print their own code, and commit.

    ``hold`` in the code makes a cell wait for ``release``; ``buffers`` makes it send binary parts.
    A question is not answered.
    """

    store: MemoryObjectStore
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, event: bytes) -> AsyncIterator[bytes]:
        invocation = Invocation.from_dict(json.loads(event))
        key = invocation_key(FRAME_KEY, invocation.request_id, invocation.nonce)
        writer = FrameWriter(key)
        code = invocation.msg.content["code"]
        yield writer.write(FrameKind.STARTED, {})
        if not invocation.commit:
            done = Outcome(status=Status.OK, started=True, committed=False, nonce=invocation.nonce)
            yield writer.write(FrameKind.OUTCOME, done.to_dict())
            return
        if "hold" in code:
            await self.release.wait()
        buffers = (b"\x00\xff", b"") if "buffers" in code else ()
        stream = {"name": "stdout", "text": code}
        message = {"msg_type": "stream", "content": stream, "metadata": {}}
        if buffers:
            message = {"msg_type": "display_data", "content": {"data": {}}, "metadata": {}}
        yield writer.write(FrameKind.MESSAGE, message, buffers)
        reply = {"status": "ok", "payload": [], "user_expressions": {}}
        outcome = Outcome(status=Status.OK, started=True, committed=False, nonce=invocation.nonce)
        commit = Commit(
            kernel_id=invocation.kernel_id,
            scope_hash=invocation.scope.hash,
            seq=invocation.seq,
            parent=invocation.parent_head,
            request_id=invocation.request_id,
            execution_count=invocation.execution_count,
            outcome=outcome,
            reply=reply,
        ).to_bytes()
        place = keys.commit_key(invocation.scope, invocation.kernel_id, invocation.seq)
        await self.store.put(STACK.state, place, commit, if_absent=True)
        yield writer.write(
            FrameKind.REPLY, {"msg_type": "execute_reply", "content": reply, "metadata": {}}
        )
        head = Head(seq=invocation.seq, digest=digest_of(commit))
        done = Outcome(
            status=Status.OK, started=True, committed=True, head=head, nonce=invocation.nonce
        )
        yield writer.write(FrameKind.OUTCOME, done.to_dict())


@dataclass
class Clock:
    """The time as kernels see it.

    Attributes:
        passed: how much longer than in truth they have been there.
        set_by: by how much somebody has set the machine's clock.
    """

    passed: timedelta = timedelta()
    set_by: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed + self.set_by

    def steady_s(self) -> float:
        return time.monotonic() + self.passed.total_seconds()


@dataclass
class WebGateway:
    """A server of this process and what it stands on."""

    server: GatewayServer
    registry: KernelRegistry
    function: EchoFunction
    files: MemoryFileStore
    clock: Clock

    @property
    def url(self) -> str:
        return self.server.url.rstrip("/")

    def endpoint(self, token: str | None = "u1") -> Endpoint:
        return Endpoint(url=self.server.url, token=token)

    async def rest(
        self,
        method: str,
        path: str,
        *,
        token: str | None = "u1",
        body: Any = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        content = json.dumps(body).encode() if body is not None else data
        sent = {"Authorization": f"token {token}"} if token is not None else {}
        return await asyncio.to_thread(
            _request, method, self.url + path, content, {**sent, **(headers or {})}
        )

    async def start_kernel(self, *, token: str = "u1", **body: Any) -> str:
        answer = await self.rest("POST", "/api/kernels", token=token, body=body)
        assert answer.status == 201, answer.body
        kernel_id: str = answer.json["id"]
        return kernel_id

    @asynccontextmanager
    async def channels(
        self,
        kernel_id: str,
        *,
        token: str = "u1",
        subprotocol: str | None = None,
        session_id: str | None = None,
        query: str = "",
        **options: Any,
    ) -> AsyncIterator[ClientConnection]:
        url = f"{self.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels"
        async with connect(
            f"{url}?session_id={session_id or uuid.uuid4().hex}{query}",
            additional_headers={"Authorization": f"token {token}"} | options.pop("headers", {}),
            subprotocols=[subprotocol] if subprotocol else None,  # type: ignore[list-item]
            compression=None,
            max_size=None,
            **options,
        ) as socket:
            yield socket


@dataclass
class Answer:
    """What a request gave."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def _request(method: str, url: str, data: bytes | None, headers: dict[str, str]) -> Answer:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        query = f"?{parts.query}" if parts.query else ""
        connection.request(method, parts.path + query, data, headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


def identities() -> IdentityTable:
    """Return a table in which each token is its own key in TOKENS."""
    return IdentityTable(
        tuple(
            IdentityEntry(user=user, agent=agent, admin=admin, token_sha256=token_digest(token))
            for token, (user, agent, admin) in TOKENS.items()
        )
    )


@asynccontextmanager
async def a_web_gateway(
    spool_dir: Path, config: Config | None = None, *, keeping: Keeping | None = None
) -> AsyncIterator[WebGateway]:
    """Serve on a free port until the block ends."""
    store = MemoryObjectStore()
    await store.put(STACK.overflow, keys.frame_key_key(HANDLER_DIGEST), FRAME_KEY)
    function = EchoFunction(store)
    environments: dict[str, Environment] = read_environments([{"id": "small", "memory_mb": 512}])
    clock = Clock()
    registry = await KernelRegistry.open(
        clocks=Clocks(now=clock.now, steady_s=clock.steady_s),
        stack=STACK,
        handler_digest=HANDLER_DIGEST,
        store=store,
        invoker=InMemoryInvoker(function),
        environments=environments,
        keeping=keeping,
    )
    files = MemoryFileStore()
    chosen = Config({"ServerApp": {"port": 0}})
    chosen.merge(config or Config())
    server = GatewayServer.create(
        config=chosen,
        registry=registry,
        identities=identities(),
        environments=environments,
        files=files,
        spool_dir=spool_dir,
        collector=GarbageCollector(store, STACK, Retention()),
    )
    try:
        yield WebGateway(server, registry, function, files, clock)
    finally:
        function.release.set()
        await server.aclose()
        await registry.close()


def request(msg_type: str, content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a complete message of a client."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "session": "s1",
        "username": "tester",
        "version": "5.4",
        "date": "2026-01-01T00:00:00.000000Z",
    }
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
    } | changes


def execute_request(code: str) -> dict[str, Any]:
    """Return an execute_request."""
    return request("execute_request", {"code": code, "silent": False, "store_history": True})


def sha256(body: bytes) -> str:
    """Return the digest in hex."""
    return hashlib.sha256(body).hexdigest()
