"""A real gateway with everything behind it, and a client that speaks to it over a raw websocket."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from websockets.sync.client import connect

COMMAND = str(Path(sys.executable).with_name("kernel-gateway"))
TOKENS = {name: f"token-of-{name}" for name in ("u1", "u1-a1", "u1-a2", "u10", "root")}
IDENTITIES = [
    ("u1", None, False),
    ("u1", "a1", False),
    ("u1", "a2", False),
    ("u10", None, False),
    ("root", None, True),
]


@dataclass
class Gateway:
    """A running `kernel-gateway` process."""

    url: str
    token: str
    state_dir: Path
    process: subprocess.Popen[str]
    banner: list[str]

    def rest(
        self, method: str, path: str, *, token: str | None = None, **arguments: Any
    ) -> requests.Response:
        headers = {"Authorization": f"token {token or self.token}"} | arguments.pop("headers", {})
        return requests.request(method, self.url + path, headers=headers, timeout=120, **arguments)

    @contextmanager
    def owners_client(self, service: str) -> Iterator[Any]:
        """Yield a client with the gateway's own key, as the owner of the state directory has."""
        endpoints = json.loads((self.state_dir / "run" / "aws.json").read_text())
        key = json.loads((self.state_dir / "keys.json").read_text())["gateway"]
        client = boto3.client(
            service,
            endpoint_url=endpoints[service],
            region_name=endpoints["region"],
            aws_access_key_id=key["access_key_id"],
            aws_secret_access_key=key["secret_access_key"],
        )
        try:
            yield client
        finally:
            client.close()

    def session(self, *, token: str | None = None, **body: Any) -> NotebookClient:
        made = self.rest("POST", "/api/kernels", token=token, json=body)
        assert made.status_code == 201, made.text
        return NotebookClient(self, made.json()["id"], token or self.token)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)


@dataclass
class Execution:
    """What one execute_request gave, in the order it came."""

    msg_id: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    def of(self, msg_type: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.messages if m["header"]["msg_type"] == msg_type]

    @property
    def types(self) -> list[str]:
        return [m["header"]["msg_type"] for m in self.messages]

    @property
    def reply(self) -> dict[str, Any]:
        (reply,) = self.of("execute_reply")
        return reply

    @property
    def reply_metadata(self) -> dict[str, Any]:
        (reply,) = [m for m in self.messages if m["header"]["msg_type"] == "execute_reply"]
        value: dict[str, Any] = reply["metadata"]["lambda_kernel"]
        return value

    def stream(self, name: str) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == name)

    @property
    def stdout(self) -> str:
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        return self.stream("stderr")

    @property
    def result(self) -> str:
        (result,) = self.of("execute_result")
        text: str = result["data"]["text/plain"]
        return text

    @property
    def error(self) -> str:
        return f"{self.reply.get('ename')}: {self.reply.get('evalue')}"

    @property
    def done(self) -> bool:
        """Whether the reply and the idle after it are there; they are the last to come."""
        last = self.messages[-4:]
        idle = any(m["content"].get("execution_state") == "idle" for m in last)
        return idle and any(m["header"]["msg_type"] == "execute_reply" for m in last)


class NotebookClient:
    """One kernel, spoken to as a notebook front end does (legacy websocket protocol)."""

    def __init__(
        self,
        gateway: Gateway,
        kernel_id: str,
        token: str,
        session_id: str | None = None,
        *,
        query: str = "",
    ) -> None:
        self.gateway = gateway
        self.kernel_id = kernel_id
        self.token = token
        self.session_id = session_id or uuid.uuid4().hex
        url = gateway.url.replace("http", "ws", 1)
        self._open = ExitStack()
        self.socket = self._open.enter_context(
            connect(
                f"{url}/api/kernels/{kernel_id}/channels?session_id={self.session_id}{query}",
                additional_headers={"Authorization": f"token {token}"},
                max_size=None,
                compression=None,
            )
        )

    def message(
        self,
        msg_type: str,
        content: dict[str, Any],
        channel: str = "shell",
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": msg_type,
            "session": self.session_id,
            "username": "tester",
            "version": "5.3",
            "date": "2026-01-01T00:00:00Z",
        }
        return {
            "header": header,
            "parent_header": {},
            "metadata": metadata or {},
            "content": content,
            "channel": channel,
            "buffers": [],
        }

    def send(
        self,
        msg_type: str,
        content: dict[str, Any],
        channel: str = "shell",
        metadata: dict[str, Any] | None = None,
    ) -> str:
        message = self.message(msg_type, content, channel, metadata)
        self.socket.send(json.dumps(message))
        msg_id: str = message["header"]["msg_id"]
        return msg_id

    def submit(self, code: str, **content: Any) -> Execution:
        request = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        return Execution(self.send("execute_request", request | content))

    def receive(self, timeout_s: float) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout_s))
        return message

    def answer(self, value: str) -> None:
        """Answer the question that a cell has asked."""
        self.send("input_reply", {"value": value, "status": "ok"}, channel="stdin")

    def asked(self, execution: Execution, timeout_s: float = 60) -> dict[str, Any]:
        """Return the next question of a cell, once it comes; what comes before it is noted."""
        while True:
            message = self.receive(timeout_s)
            if message["parent_header"].get("msg_id") != execution.msg_id:
                continue
            execution.messages.append(message)
            if message["header"]["msg_type"] == "input_request":
                return message
            assert not execution.done, f"the cell ended and asked nothing: {execution.messages}"

    def wait(self, *executions: Execution, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        by_id = {execution.msg_id: execution for execution in executions}
        while not all(execution.done for execution in executions):
            message = self.receive(max(0.1, deadline - time.monotonic()))
            owner = by_id.get(message["parent_header"].get("msg_id", ""))
            if owner is not None:
                owner.messages.append(message)

    def execute(
        self, code: str, *, timeout_s: float = 90, answers: Sequence[str] = (), **content: Any
    ) -> Execution:
        """Run a cell; its questions are answered by ``answers``, one after the other."""
        execution = self.submit(code, **({"allow_stdin": True} if answers else {}), **content)
        for value in answers:
            self.asked(execution, timeout_s)
            self.answer(value)
        self.wait(execution, timeout_s=timeout_s)
        return execution

    def request(self, msg_type: str, content: dict[str, Any], channel: str = "shell") -> Any:
        msg_id = self.send(msg_type, content, channel)
        while True:
            message = self.receive(30)
            is_reply = message["header"]["msg_type"] == msg_type.replace("_request", "_reply")
            if is_reply and message["parent_header"].get("msg_id") == msg_id:
                return message["content"]

    def close(self) -> None:
        self._open.close()


@contextmanager
def a_gateway(
    state_dir: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """Start `kernel-gateway`, wait until it says that a client can connect, stop it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    environment |= environ or {}
    log = (state_dir.parent / f"{state_dir.name}.log").open("a")
    process = subprocess.Popen(
        [COMMAND, "--port", "0", "--state-dir", str(state_dir), *arguments],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    banner = [process.stdout.readline() for _ in range(4)]
    if not banner[-1]:
        process.wait(20)
        pytest.fail(f"the gateway did not start:\n{Path(log.name).read_text()[-4000:]}")
    facts = json.loads((state_dir / "run" / "gateway.json").read_text())
    gateway = Gateway(facts["url"].rstrip("/"), facts["token"], state_dir, process, banner)
    try:
        yield gateway
    finally:
        gateway.stop()
        process.stdout.close()
        log.close()


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def identities_toml() -> str:
    """Return an identities file with the tokens of TOKENS."""
    lines = []
    for user, agent, admin in IDENTITIES:
        token = TOKENS[user if agent is None else f"{user}-{agent}"]
        digest = hashlib.sha256(token.encode()).hexdigest()
        lines += ["[[identity]]", f'user = "{user}"', f'token_sha256 = "{digest}"']
        lines += [f'agent = "{agent}"'] if agent else []
        lines += ["admin = true"] if admin else []
    return "\n".join(lines) + "\n"
