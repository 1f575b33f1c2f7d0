"""A function that commits as the serving process does, and a client that notes what it is told."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.dispatch.run import DispatchSettings
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import InvokeBroken, InvokeTimedOut, PreconditionFailed, StorageError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.kernels.services import KernelSettings
from kernel_gateway.kernels.variables import INDEX_VERSION
from kernel_gateway.messaging.message import InMessage, OutMessage
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract import control, keys
from lambda_kernel.contract.commit import Blob, Commit, Namespace, StoredObject, digest_of
from lambda_kernel.contract.frames import FrameKind, FrameWriter, invocation_key
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status

FRAME_KEY = bytes(range(32))
DIGEST = "d" * 64
STACK = Stack()
OWNER = Identity(user="u1", agent="a1")
LOST = {
    "dies": InvokeBroken("Lambda reports Runtime.ExitError"),
    "times-out": InvokeTimedOut("Lambda reports Sandbox.Timedout"),
}
UNCOMMITTED = {
    "memory": Status.OUT_OF_MEMORY,
    "times-out-politely": Status.TIMEOUT,
    "dies-politely": Status.PROCESS_DIED,
    "refuses": Status.INVALID_REQUEST,
}


@dataclass
class FlakyStore(MemoryObjectStore):
    """A store in memory that can be told to fail.

    Attributes:
        failing_puts: buckets that refuse PUTs.
        put_keys: what was PUT, in order.
    """

    failing_puts: set[str] = field(default_factory=set)
    failing_lists: bool = False
    put_keys: list[str] = field(default_factory=list)
    get_keys: list[str] = field(default_factory=list)

    async def get(self, bucket: str, key: str) -> Any:
        self.get_keys.append(key)
        return await super().get(bucket, key)

    async def put(self, bucket: str, key: str, body: bytes, **conditions: Any) -> str:
        await asyncio.sleep(0)
        if bucket in self.failing_puts:
            raise StorageError("S3 did not answer")
        self.put_keys.append(key)
        return await super().put(bucket, key, body, **conditions)

    async def list(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        if self.failing_lists:
            raise StorageError("S3 did not answer")
        async for key in super().list(bucket, prefix):
            yield key


@dataclass
class FakeFunction:
    """What stands for container, serving process and child. The cell's code says what happens.

    ``print X`` streams X; ``raise X`` is an error of the user's; ``wait`` runs until `release` or
    an interrupt, ``stubborn`` until the second one; ``ask X Y`` asks X and Y and prints the
    answers; other words name a way in which an invocation can go wrong.

    Attributes:
        ran: the code of every cell that began, in order; of a comm message, ``data["do"]``.
        stored_names: names that every commit holds.
        invocations: every invocation that came, in order.
        release: lets waiting cells go on.
        began: set when a cell waits.
    """

    store: FlakyStore
    ran: list[str] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    inlines_commit: bool = True
    stored_names: tuple[str, ...] = ()

    async def __call__(self, payload: bytes) -> AsyncGenerator[bytes, None]:
        invocation = Invocation.from_dict(await self._event(payload))
        self.invocations.append(invocation)
        content = invocation.msg.content
        code = str(content["data"]["do"] if invocation.kind == "comm" else content["code"])
        word, _, rest = code.partition(" ")
        key = invocation_key(FRAME_KEY, invocation.request_id, invocation.nonce)
        writer = FrameWriter(key if word != "forge" else bytes(32))
        if word == "never-starts":
            raise InvokeBroken("the container died")
        yield writer.write(FrameKind.STARTED, {})
        self.ran.append(code)
        async for data in self._outputs(invocation, word, rest):
            yield writer.write(FrameKind.MESSAGE, data)
        if word in LOST:
            raise LOST[word]
        status = UNCOMMITTED.get(word)
        if word in ("wait", "stubborn"):
            self.began.set()
            orders = ("kill",) if word == "stubborn" else ("interrupt", "kill")
            if await self._interrupted(invocation, orders):
                status = Status.INTERRUPTED
        if status is not None:
            outcome = self._outcome(invocation, status, committed=False)
            yield writer.write(FrameKind.OUTCOME, outcome.to_dict())
            return
        if word != "ends":
            async for chunk in self._end(invocation, word, rest, writer):
                yield chunk

    async def _end(
        self, invocation: Invocation, word: str, rest: str, writer: FrameWriter
    ) -> AsyncGenerator[bytes, None]:
        reply: dict[str, Any] = {"status": "ok", "execution_count": invocation.execution_count}
        if word == "raise":
            reply |= {"status": "error", "ename": rest, "evalue": "", "traceback": [rest]}
        if word == "lies":
            reply["execution_count"] = 99
        status = Status(reply["status"])
        if not invocation.commit:
            async for chunk in self._answer(invocation, word, writer):
                yield chunk
            return
        outcome, stored = await self._commit(invocation, status, reply)
        if word == "commits-and-dies":
            raise InvokeBroken("the connection was lost")
        if word == "commits-and-forges":
            writer = FrameWriter(bytes(32))
        if word == "commits-unsure":
            outcome = self._outcome(invocation, Status.STORAGE_UNAVAILABLE, committed=False)
        elif word != "no-reply":
            metadata = {"started": 1, "status": "x", "lambda_kernel": {"failure": "CellTimeout"}}
            body = {
                "msg_type": "execute_reply",
                "content": reply,
                "metadata": metadata if word == "lies" else {},
            }
            yield writer.write(FrameKind.REPLY, body)
        data = outcome.to_dict()
        if word == "wrong-nonce":
            data["nonce"] = "0" * 32
        yield writer.write(
            FrameKind.OUTCOME, data, [stored] if self.inlines_commit and stored else []
        )

    async def _answer(
        self, invocation: Invocation, word: str, writer: FrameWriter
    ) -> AsyncGenerator[bytes, None]:
        reply = {"status": "ok", "matches": [f"{word}!"], "cursor_start": 0, "cursor_end": 1}
        body = {"msg_type": "complete_reply", "content": reply, "metadata": {}}
        yield writer.write(FrameKind.REPLY, body)
        outcome = self._outcome(invocation, Status.OK, committed=False)
        yield writer.write(FrameKind.OUTCOME, outcome.to_dict())

    async def _outputs(
        self, invocation: Invocation, word: str, rest: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        for data in _outputs(word, rest):
            yield data
        for number, prompt in enumerate(rest.split() if word == "ask" else (), start=1):
            yield {
                "msg_type": "input_request",
                "content": {"prompt": prompt, "password": prompt == "pw"},
                "metadata": {"lambda_kernel": {"question": number}},
            }
            name = control.input_name(number)
            while (answer := told(self.store, invocation, name)) is None:
                if self.release.is_set() or order_of(self.store, invocation):
                    return
                await asyncio.sleep(0)
            place = control.control_key(invocation.request_id, name)
            await self.store.delete(STACK.overflow, place)
            content = {"name": "stdout", "text": f"{answer['value']}\n"}
            yield {"msg_type": "stream", "content": content, "metadata": {}}

    async def _event(self, payload: bytes) -> Any:
        event = json.loads(payload)
        if "pointer" not in event:
            return event
        key = keys.request_key(event["pointer"]["request_id"])
        stored = (await self.store.get(STACK.overflow, key)).body
        assert digest_of(stored) == event["pointer"]["digest"]
        assert len(stored) == event["pointer"]["size_bytes"]
        return json.loads(stored)

    async def _interrupted(self, invocation: Invocation, orders: tuple[str, ...]) -> bool:
        while not self.release.is_set():
            if order_of(self.store, invocation) in orders:
                return True
            await asyncio.sleep(0)
        return False

    async def _commit(
        self, invocation: Invocation, status: Status, reply: dict[str, Any]
    ) -> tuple[Outcome, bytes | None]:
        plain = self._outcome(invocation, status, committed=False)
        commit = Commit(
            kernel_id=invocation.kernel_id,
            scope_hash=invocation.scope.hash,
            seq=invocation.seq,
            parent=invocation.parent_head,
            parent_kernel_id=invocation.parent_kernel_id,
            request_id=invocation.request_id,
            execution_count=invocation.execution_count,
            outcome=plain,
            reply={"msg_type": "execute_reply", "content": reply, "metadata": {}},
            namespace=holding(self.stored_names),
        )
        stored = commit.to_bytes()
        key = keys.commit_key(invocation.scope, invocation.kernel_id, invocation.seq)
        try:
            await self.store.put(STACK.state, key, stored, if_absent=True)
        except PreconditionFailed:
            return self._outcome(invocation, Status.COMMIT_CONFLICT, committed=False), None
        head = Head(seq=invocation.seq, digest=digest_of(stored))
        return self._outcome(invocation, status, committed=True, head=head), stored

    @staticmethod
    def _outcome(
        invocation: Invocation, status: Status, *, committed: bool, head: Head | None = None
    ) -> Outcome:
        return Outcome(
            status=status,
            started=True,
            committed=committed,
            head=head,
            container_id="c1",
            aws_request_id="r1",
            aws_calls=5,
            aws_sequential=3,
            timings_ms={"narrow": 1.0, "rehydrate": 2.0, "run": 3.0, "persist": 4.0},
            nonce=invocation.nonce,
        )


def told(store: MemoryObjectStore, invocation: Invocation, name: str) -> dict[str, Any] | None:
    """Return what the gateway tells a cell under a name; None where it tells nothing."""
    request_id = invocation.request_id
    key = invocation_key(FRAME_KEY, request_id, invocation.nonce)
    sealed = store.objects.get((STACK.overflow, control.control_key(request_id, name)))
    return None if sealed is None else control.unseal(key, request_id, name, sealed)


def order_of(store: MemoryObjectStore, invocation: Invocation) -> str | None:
    """Return the order to end a cell, where there is one."""
    data = told(store, invocation, control.INTERRUPT)
    return None if data is None else data["order"]


def _outputs(word: str, rest: str) -> list[dict[str, Any]]:
    messages: dict[str, dict[str, Any]] = {
        "print": {"msg_type": "stream", "content": {"name": "stdout", "text": f"{rest}\n"}},
        "raise": {
            "msg_type": "error",
            "content": {"ename": rest, "evalue": "", "traceback": [rest]},
        },
        "status-message": {"msg_type": "status", "content": {"execution_state": "idle"}},
    }
    if word == "too-many-lines":
        lines = [{"name": "stdout", "text": f"{i} {'x' * 1000}\n"} for i in range(10_000)]
        return [{"msg_type": "stream", "content": line, "metadata": {}} for line in lines]
    if word == "many-lines":
        lines = [{"name": "stdout", "text": f"{i}\n"} for i in range(5000)]
        return [{"msg_type": "stream", "content": line, "metadata": {}} for line in lines]
    if word == "floods":
        content = {"data": {"text/plain": "x" * (1 << 20)}, "metadata": {}}
        return [{"msg_type": "display_data", "content": content, "metadata": {}}] * 80
    lies = {"lambda_kernel": {"failure": "CellTimeout"}}
    messages["lies"] = {
        "msg_type": "execute_result",
        "content": {"execution_count": 99, "data": {}, "metadata": {}},
    }
    metadata = lies if word == "lies" else {}
    return [{**messages[word], "metadata": metadata}] if word in messages else []


def holding(names: tuple[str, ...]) -> Namespace:
    """Return a namespace whose description has these names."""
    components = [
        [i, {name: "T"}, None, [], [], [1, 0, 1], [], 1, 1] for i, name in enumerate(names)
    ]
    stored = json.dumps({"v": INDEX_VERSION, "components": components, "lost": {}}).encode()
    inline = base64.b64encode(stored).decode()
    blob = Blob(digest=digest_of(stored), size_bytes=len(stored), inline=inline)
    described = StoredObject(id=1, size_bytes=len(stored), chunks=(blob,))
    return Namespace(objects=(described,), index=1) if names else Namespace()


async def quiet() -> None:
    """Return when nothing runs any more."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


@dataclass
class Client:
    """Notes what a kernel says."""

    kernel: LambdaKernel
    session: str = "s"
    messages: list[OutMessage] = field(default_factory=list)
    _idle: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def take(self, message: OutMessage) -> None:
        self.messages.append(message)
        if message.content.get("execution_state") == "idle":
            self._idle[message.parent_header.get("msg_id", "")].set()

    def send(self, msg_type: str, *, channel: str = "shell", **content: Any) -> str:
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": self.session}
        self.kernel.receive(InMessage(channel=channel, header=header, content=content), self.take)
        return msg_id

    def execute(self, code: Any, **content: Any) -> str:
        return self.send("execute_request", code=code, **content)

    async def done(self, msg_id: str) -> list[OutMessage]:
        """Return everything about a request, once the kernel is idle again for it."""
        async with asyncio.timeout(10):
            await self._idle[msg_id].wait()
        return self.about(msg_id)

    async def run(self, code: Any, **content: Any) -> list[OutMessage]:
        return await self.done(self.execute(code, **content))

    async def ask(self, msg_type: str, *, channel: str = "shell", **content: Any) -> Any:
        """Return the content of the reply to a request."""
        messages = await self.done(self.send(msg_type, channel=channel, **content))
        (reply,) = [m for m in messages if m.msg_type.endswith("_reply")]
        return reply.content

    def about(self, msg_id: str) -> list[OutMessage]:
        return [m for m in self.messages if m.parent_header.get("msg_id") == msg_id]


@dataclass
class World:
    """A gateway's core on a function in memory."""

    store: FlakyStore
    function: FakeFunction
    invoker: InMemoryInvoker
    registry: KernelRegistry
    reopen: Callable[..., Awaitable[KernelRegistry]]

    async def client(
        self,
        options: KernelOptions | None = None,
        owner: Identity = OWNER,
        session: str | None = None,
    ) -> Client:
        kernel = await self.registry.start(
            owner, spec_name="lambda-python", options=options or KernelOptions()
        )
        return self.attached(kernel, session)

    quiet = staticmethod(quiet)

    async def turns(self) -> None:
        """Let what can go on go on, while a cell runs."""
        for _ in range(1000):
            await asyncio.sleep(0)

    @staticmethod
    def detached(kernel: LambdaKernel) -> Client:
        return Client(kernel)

    @staticmethod
    def attached(
        kernel: LambdaKernel, session: str | None = None, replay: Replay | None = None
    ) -> Client:
        client = Client(kernel, session or "s")
        kernel.attach(client.take, session, replay=replay)
        return client


@pytest.fixture
def dispatch_settings() -> DispatchSettings:
    """How cells are sent; a module may override it."""
    return DispatchSettings(connect_pauses_s=(0.0, 0.0), claim_pauses_s=(0.0,), max_wait_s=10.0)


@pytest.fixture
async def world(dispatch_settings: DispatchSettings) -> AsyncIterator[World]:
    """A gateway's core."""
    store = FlakyStore()
    await store.put(STACK.overflow, keys.frame_key_key(DIGEST), FRAME_KEY)
    function = FakeFunction(store)
    invoker = InMemoryInvoker(function)

    async def opened(**options: Any) -> KernelRegistry:
        registry = await KernelRegistry.open(
            stack=STACK,
            handler_digest=DIGEST,
            store=store,
            invoker=invoker,
            environments={"lambda-python": Environment(timeout_s=30)},
            settings=KernelSettings(max_queued=5, question_wait_s=0.3),
            dispatch_settings=dispatch_settings,
            **options,
        )
        await registry.complete()
        return registry

    registry = await opened()
    made = World(store, function, invoker, registry, opened)
    yield made
    function.release.set()
    await made.registry.close()
