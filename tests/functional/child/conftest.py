"""Plays the serving process: execs a real zygote, sends requests, gathers what comes back."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lambda_kernel.contract import paging
from lambda_kernel.contract.cell_protocol import (
    CellDescriptors,
    CellLimits,
    CellRequest,
    send_prepare,
    send_request,
)
from lambda_kernel.contract.commit import CHUNK_BYTES
from lambda_kernel.contract.frames import PartsReader
from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.snapshot_report import SnapshotReport
from lambda_kernel.contract.zygote_answers import (
    Exited,
    Forked,
    Prepared,
    Ready,
    Refused,
    ZygoteAnswer,
    decode_answer,
)

DEADLINE_S = 120.0
AT_HAND_BYTES = 64 * 1024


@dataclass
class Result:
    """What one child sent, and how it ended."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    report: SnapshotReport | None = None
    failed: dict[str, Any] | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    status: int = 0
    pid: int = 0
    snapshot: bytes = b""

    def stream(self, name: str) -> str:
        return "".join(
            m["content"]["text"]
            for m in self.messages
            if m["msg_type"] == "stream" and m["content"]["name"] == name
        )

    def of_type(self, msg_type: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["msg_type"] == msg_type]

    @property
    def text(self) -> str:
        """The text of the one result."""
        (message,) = self.of_type("execute_result")
        return str(message["content"]["data"]["text/plain"])

    @property
    def names(self) -> dict[str, str]:
        """The variables that the cell left: name to type name."""
        assert self.report is not None
        (index,) = [new for new in self.report.new if new.id == self.report.index]
        text = self.snapshot[index.offset : index.offset + index.size_bytes]
        components = json.loads(text)["components"]
        names = {name: kind for component in components for name, kind in component[1].items()}
        return {name: names[name] for name in sorted(names) if name.strip("_").isidentifier()}

    @property
    def content(self) -> dict[str, Any]:
        result: dict[str, Any] = self.reply["content"]
        return result


@dataclass
class Running:
    """A child that was asked for."""

    frames: socket.socket
    stdout: int
    stderr: int
    snapshot_out: int
    pid: int


class Zygote:
    """A zygote process and the serving process's end of its socket."""

    def __init__(self, folder: Path, *preload: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(DEADLINE_S)
        self.sock = ours
        self.log = folder / "zygote.log"
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "SOURCE_DATE_EPOCH": "946684800",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "lambda_kernel.child.zygote"),
                    *("--fd", str(theirs.fileno()), "--preload", ",".join(preload)),
                ],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        self.exited: dict[int, int] = {}
        ready = self.answer()
        assert isinstance(ready, Ready)

    def answer(self) -> ZygoteAnswer:
        datagram = self.sock.recv(65536)
        assert datagram, self.log.read_text()
        answer = decode_answer(datagram)
        if isinstance(answer, Exited):
            self.exited[answer.exited] = answer.status
        return answer

    def start(self, request: CellRequest, objects: Objects | None = None) -> Running:
        ours, theirs = socket.socketpair()
        stdout, stdout_w = os.pipe()
        stderr, stderr_w = os.pipe()
        snapshot_in, snapshot_out = os.memfd_create("in"), os.memfd_create("out")
        objects = objects or Objects()
        pager, pager_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(snapshot_in, "wb", closefd=False) as stream:
            stream.write(objects.snapshot_in())
        descriptors = CellDescriptors(
            frames=theirs.fileno(),
            stdout=stdout_w,
            stderr=stderr_w,
            snapshot_in=snapshot_in,
            snapshot_out=snapshot_out,
            pager=pager_end.fileno(),
        )
        send_request(self.sock, request, descriptors)
        theirs.close()
        pager_end.close()
        threading.Thread(target=objects.answer, args=(pager,), daemon=True).start()
        for descriptor in (stdout_w, stderr_w, snapshot_in):
            os.close(descriptor)
        answer = self.answer()
        while isinstance(answer, Exited):
            answer = self.answer()
        assert isinstance(answer, Forked), answer
        return Running(ours, stdout, stderr, snapshot_out, answer.forked)

    def finish(self, running: Running) -> Result:
        result = Result(pid=running.pid)
        reader = PartsReader()
        chunks: dict[str, list[bytes]] = {"frames": [], "stdout": [], "stderr": []}
        selector = selectors.DefaultSelector()
        selector.register(running.frames, selectors.EVENT_READ, "frames")
        selector.register(running.stdout, selectors.EVENT_READ, "stdout")
        selector.register(running.stderr, selectors.EVENT_READ, "stderr")
        deadline_s = time.monotonic() + DEADLINE_S
        while selector.get_map():
            events = selector.select(max(0.0, deadline_s - time.monotonic()))
            assert events, "the child hangs"
            for key, _ in events:
                chunk = os.read(key.fd, 1 << 20)
                chunks[key.data].append(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data == "frames":
                    for data, buffers in reader.feed(chunk):
                        _add(result, data, buffers)
        selector.close()
        result.stdout, result.stderr = b"".join(chunks["stdout"]), b"".join(chunks["stderr"])
        while running.pid not in self.exited:
            self.answer()
        result.status = self.exited.pop(running.pid)
        with os.fdopen(running.snapshot_out, "rb") as stream:
            result.snapshot = os.pread(stream.fileno(), 1 << 30, 0)
        running.frames.close()
        os.close(running.stdout)
        os.close(running.stderr)
        return result

    def prepare(self) -> int:
        send_prepare(self.sock)
        answer = self.answer()
        while isinstance(answer, Exited):
            answer = self.answer()
        assert isinstance(answer, Prepared)
        return answer.prepared

    def refuse(self, datagram: bytes) -> Refused:
        self.sock.send(datagram)
        answer = self.answer()
        assert isinstance(answer, Refused)
        return answer

    def close(self) -> int:
        self.sock.close()
        return self.process.wait(DEADLINE_S)


def _add(result: Result, data: dict[str, Any], buffers: tuple[bytes, ...]) -> None:
    kind = data["kind"]
    result.kinds.append(kind)
    if kind == "message":
        result.messages.append({**data, "buffers": buffers})
    elif kind == "reply":
        result.reply = data
    elif kind == "snapshot":
        result.report = SnapshotReport.from_dict(data)
    elif kind == "failed":
        result.failed = data


class Objects:
    """The objects of a session, and the answers to a child that asks for some of them."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.index = 0
        self.asked: list[int] = []
        self.asked_bytes = 0
        self.error = ""
        """What the pager answers while it is not empty: the storage is down."""

    def snapshot_in(self) -> bytes:
        if not self.index:
            return b""
        memfd = os.memfd_create("in")
        sizes = {object_id: len(body) for object_id, body in self.bodies.items()}
        at_hand = {i: body for i, body in self.bodies.items() if len(body) < AT_HAND_BYTES}
        at_hand[self.index] = self.bodies[self.index]
        paging.write_snapshot_in(memfd, self.index, sizes, at_hand)
        with os.fdopen(memfd, "rb") as stream:
            return os.pread(stream.fileno(), 1 << 30, 0)

    def commit(self, report: SnapshotReport, written: bytes) -> None:
        bodies = {object_id: self.bodies[object_id] for object_id in report.keep}
        for new in report.new:
            bodies[new.id] = written[new.offset : new.offset + new.size_bytes]
        for patched in report.patched:
            body = bytearray(self.bodies[patched.base])
            for number, offset in patched.chunks:
                begin = number * CHUNK_BYTES
                size = min(CHUNK_BYTES, len(body) - begin)
                body[begin : begin + size] = written[offset : offset + size]
            bodies[patched.id] = bytes(body)
        self.bodies, self.index = bodies, report.index

    def answer(self, pager: socket.socket) -> None:
        """Answer until the child and its copies are gone."""
        with pager:
            while True:
                question, descriptors, _, _ = socket.recv_fds(pager, 65536, 1)
                if not question:
                    return
                wanted = json.loads(question)["want"]
                self.asked += wanted
                self.asked_bytes += sum(len(self.bodies[object_id]) for object_id in wanted)
                with socket.socket(fileno=descriptors[0]) as asker:
                    if self.error:
                        asker.send(json.dumps({"error": self.error}).encode())
                        continue
                    for position, object_id in enumerate(wanted):
                        memfd = os.memfd_create("object")
                        body = self.bodies[object_id]
                        paging.write_at(memfd, body, 0)
                        answer = {
                            "objects": [[object_id, [[0, 0, len(body)]]]],
                            "fds": 1,
                            "more": position < len(wanted) - 1,
                        }
                        socket.send_fds(asker, [json.dumps(answer).encode()], [memfd])
                        os.close(memfd)


class Notebook:
    """A session: what one cell leaves, the next one starts from."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self.zygote = zygote
        self.workdir, self.home = folder / "work", folder / "home"
        self.workdir.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.environment: dict[str, str] = {}
        self.seeds: dict[str, int] = {}
        self.limits = CellLimits()
        self.execution_count = 1
        self.objects = Objects()

    def request(self, code: Any, kind: Any = "execute", **content: Any) -> CellRequest:
        return CellRequest(
            kind=kind,
            msg=CellMessage(header={"msg_id": "m1"}, content={"code": code, **content}),
            execution_count=self.execution_count,
            workdir=str(self.workdir),
            home=str(self.home),
            environment=self.environment,
            seeds=self.seeds,
            limits=self.limits,
        )

    def start(self, code: Any, **content: Any) -> Running:
        return self.zygote.start(self.request(code, **content), self.objects)

    def ask(self, code: str, **content: Any) -> Result:
        """Run a request that may fail in any way; keeps what a serving process would commit."""
        result = self.zygote.finish(self.start(code, **content))
        if result.report is not None and result.status == 0:
            self.objects.commit(result.report, result.snapshot)
        if content.get("store_history", True) and not content.get("silent"):
            self.execution_count += 1
        return result

    def show(self, name: str) -> Result:
        """Ask for a variable as text."""
        return self.zygote.finish(self.start("", kind="variables", name=name))

    def run(self, *cells: str) -> Result:
        """Run cells that must succeed; returns the last one's result."""
        result = Result()
        for code in cells:
            result = self.ask(code)
            assert result.failed is None, result.failed
            assert result.content["status"] == "ok", result.content
            assert result.status == 0
        return result


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A warm zygote that all tests of the session share."""
    instance = Zygote(tmp_path_factory.mktemp("zygote"), "numpy", "pandas", "matplotlib.pyplot")
    yield instance
    assert instance.close() == 0, instance.log.read_text()


@pytest.fixture
def notebook(zygote: Zygote) -> Iterator[Notebook]:
    """A fresh session."""
    with tempfile.TemporaryDirectory(prefix="lkg-child-") as folder:
        yield Notebook(zygote, Path(folder))
