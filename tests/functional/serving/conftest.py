"""The serving process in this process: real zygote and children, S3 and STS in memory."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lambda_kernel
from lambda_kernel.contract import control, frames, keys
from lambda_kernel.contract.frames import Frame, FrameKind, FrameReader
from lambda_kernel.contract.invocation import CellMessage, Head, Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Probe
from lambda_kernel.contract.scope import Scope
from lambda_kernel.contract.witness import ContainerFacts
from lambda_kernel.isolation import code, linux
from lambda_kernel.serving import handler
from lambda_kernel.serving.cache import DownloadCache
from lambda_kernel.serving.connectors import Connectors
from lambda_kernel.serving.container import ZYGOTE_ENVIRONMENT, Container, Settings
from lambda_kernel.serving.credentials import Credentials
from lambda_kernel.serving.homes import Homes
from lambda_kernel.serving.memory import MemoryObjectStore, MemoryRoleAssumer, MemorySecretReader
from lambda_kernel.serving.packages import PackageList
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.runtime_api import Event
from lambda_kernel.serving.segments import SegmentCache
from lambda_kernel.serving.session_objects import Shelf
from lambda_kernel.serving.snapshots import Snapshots
from lambda_kernel.serving.standing import Standing
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import ZygoteLaunch, Zygotes

FRAME_KEY = b"k" * 32
STACK = Stack()


class Stream:
    """Takes frames as the gateway does."""

    def __init__(self, key: bytes, on_text: dict[str, Callable[[], None]]) -> None:
        self._reader = FrameReader(key)
        self._on_text = on_text
        self.frames: list[Frame] = []

    def send(self, chunk: bytes) -> None:
        new = list(self._reader.feed(chunk))
        self.frames += new
        for text, act in self._on_text.items():
            if any(text in _said(frame) for frame in new):
                act()


def _said(frame: Frame) -> str:
    content = frame.data.get("content", {})
    return str(content.get("text") or content.get("prompt") or "")


def tell(store: MemoryObjectStore, invocation: Invocation, name: str, data: Any) -> None:
    """Put a control object as the gateway does."""
    key = frames.invocation_key(FRAME_KEY, invocation.request_id, invocation.nonce)
    sealed = control.seal(key, invocation.request_id, name, data)
    store.put(STACK.overflow, control.control_key(invocation.request_id, name), sealed)


def plain(text: str) -> str:
    """Return text without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@dataclass(frozen=True)
class Answer:
    """What one invocation gave."""

    outcome: Outcome
    frames: list[Frame]
    usable: bool

    def contents(self, msg_type: str) -> list[dict[str, Any]]:
        return [
            f.data["content"]
            for f in self.frames
            if f.kind is FrameKind.MESSAGE and f.data["msg_type"] == msg_type
        ]

    @property
    def reply(self) -> dict[str, Any]:
        (content,) = [f.data["content"] for f in self.frames if f.kind is FrameKind.REPLY]
        return dict(content)

    @property
    def kinds(self) -> list[str]:
        return [frame.kind.name for frame in self.frames]

    @property
    def result(self) -> str:
        (content,) = self.contents("execute_result")
        return str(content["data"]["text/plain"])

    def text(self, name: str) -> str:
        return "".join(c["text"] for c in self.contents("stream") if c["name"] == name)


@dataclass
class Kernel:
    """A kernel as the gateway keeps it: its head, and what its invocations have in common."""

    container: Container
    scope: Scope = field(default_factory=lambda: Scope(user="u1"))
    kernel_id: str = "12345678-1234-1234-1234-123456789012"
    seq: int = 0
    head: Head | None = None
    workdir_name: str = field(default_factory=lambda: secrets.token_hex(16))
    on_text: dict[str, Callable[[], None]] = field(default_factory=dict)

    def invocation(self, source: str, **fields: Any) -> Invocation:
        self.seq += 1
        run = fields.get("run")
        facts: dict[str, Any] = {
            "request_id": secrets.token_hex(16),
            "kernel_id": self.kernel_id,
            "seq": self.seq,
            "parent_head": self.head,
            "scope": self.scope,
            "workdir_name": self.workdir_name,
            "msg": CellMessage(header={"msg_id": "m"}, content={"code": source}),
            "execution_count": self.seq,
            "write_prefix": keys.workspace_prefix(self.scope.user, "default", run),
            "nonce": secrets.token_hex(16),
        }
        return Invocation(**facts | fields)

    def run(self, source: str, **fields: Any) -> Answer:
        return self.send(self.invocation(source, **fields))

    def send(self, invocation: Invocation) -> Answer:
        body = json.dumps(invocation.to_dict()).encode()
        key = frames.invocation_key(FRAME_KEY, invocation.request_id, invocation.nonce)
        stream = Stream(key, self.on_text)
        event = Event(aws_request_id="aws-1", deadline_ms=0, body=body)
        usable = handler.handle(event, stream, self.container)
        outcome = Outcome.from_dict(stream.frames[-1].data)
        if outcome.committed:
            self.head = outcome.head
        return Answer(outcome, stream.frames, usable)


def _descendants() -> list[int]:
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


@pytest.fixture(autouse=True)
def reaper() -> Iterator[None]:
    """Orphans come to this process, as they do where it is the first of its container."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    yield
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)


@pytest.fixture(scope="session")
def launch() -> ZygoteLaunch:
    return ZygoteLaunch(
        exec_only=True,
        code_fd=code.sealed_package(Path(lambda_kernel.__file__).parent),
        environment={**ZYGOTE_ENVIRONMENT, "PATH": os.environ["PATH"]},
    )


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def secrets_reader() -> MemorySecretReader:
    return MemorySecretReader()


@pytest.fixture
def container(
    launch: ZygoteLaunch, store: MemoryObjectStore, secrets_reader: MemorySecretReader
) -> Iterator[Container]:
    # Homes stand below /tmp, as in a container; the sweep sees descendants of this process only.
    with tempfile.TemporaryDirectory(prefix="lkg-test-", dir="/tmp") as root:
        count = CallCount()
        pool = Pool(count)
        sweeper = Sweeper({os.getpid()}, {}, visible=_descendants)
        zygotes = Zygotes(launch, sweeper)
        shelf = Shelf(store=store, bucket=STACK.state, pool=pool, cache=SegmentCache(1024**2 * 256))
        made = Container(
            settings=Settings(
                stack=STACK,
                handler_digest="0" * 64,
                tier="process",
                preload=(),
                ephemeral_bytes=2 * 1024**3,
                memory_bytes=2 * 1024**3,
                home_bytes=2 * 1024**3,
                kept_output_bytes=1024**2,
                container_id="container-1",
                runtime_api="",
                mask_connectors=True,
                recorded_randomness=True,
                function_version="$LATEST",
                allow_degraded=False,
                alone_on_machine=False,
            ),
            frame_key=FRAME_KEY,
            store=store,
            use=lambda credentials: None,
            execution_role=Credentials(access_key_id="role", secret_access_key="role"),
            assumer=MemoryRoleAssumer(),
            count=count,
            pool=pool,
            cache=DownloadCache.open(Path(root, "cache"), 1024**3),
            homes=Homes(store, STACK.state, pool, root),
            snapshots=Snapshots(shelf),
            connectors=Connectors(secrets_reader, STACK),
            zygotes=zygotes,
            sweeper=sweeper,
            standing=Standing.of(os.getpid()),
            probe=Probe(
                tier="process", clean_environment=True, non_dumpable=True, memory_limit="sampled"
            ),
            shadowable=frozenset(),
            packages=PackageList(stored=b'{"packages":["one-1.0"]}', digest="1" * 64),
            facts=ContainerFacts(python="3.11.0", architecture="x86_64", packages="1" * 64),
        )
        yield made
        zygotes.close()
        pool.close()


@pytest.fixture
def kernel(container: Container) -> Kernel:
    return Kernel(container)
