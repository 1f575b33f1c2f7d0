"""What the gateway answers, as values."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.errors import GatewayError


@dataclass(frozen=True, slots=True, kw_only=True)
class CellError:
    """The exception that a cell ended with, or why it could not end by itself.

    Attributes:
        ename: its class, such as ``ValueError``; or a failure of the README's table.
        evalue: its text.
        traceback: lines with ANSI colours.
    """

    ename: str
    evalue: str
    traceback: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ename}: {self.evalue}"


class CellFailed(GatewayError):
    """A cell ended with an error; raised by `Result.raise_for_error` only.

    Attributes:
        result: all of it, with the outputs before the error.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(str(result.error))
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a cell ended.

    Attributes:
        status: ``ok`` or ``error``.
        execution_count: its number.
        outputs: as a notebook file has them (nbformat 4).
        error: None where it ended well.
        user_expressions: by name, as the messaging spec says.
        payload: such as what ``%load`` puts into the next input.
        lambda_kernel: request_id, committed, failure, timings_ms and more.
        replayed: whether this is the answer to a request that had been received before.
    """

    status: str
    execution_count: int | None
    outputs: list[dict[str, Any]]
    error: CellError | None
    user_expressions: dict[str, Any]
    payload: list[dict[str, Any]]
    lambda_kernel: dict[str, Any]
    replayed: bool

    @property
    def text(self) -> str:
        """What a reader of the notebook sees: streams, and displays as text; not the error."""
        return "".join(map(_text, self.outputs))

    @property
    def stdout(self) -> str:
        """What was printed."""
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        """What was printed to stderr, notices of the gateway included."""
        return self._stream("stderr")

    @property
    def committed(self) -> bool:
        """Whether what the cell did to variables and files is kept."""
        return bool(self.lambda_kernel.get("committed"))

    def data(self, mimetype: str) -> Any:
        """Return the newest display of this type, such as ``image/png`` (base64); else None."""
        found = [output["data"] for output in self.outputs if mimetype in output.get("data", {})]
        return found[-1][mimetype] if found else None

    def raise_for_error(self) -> Result:
        """Return this, where the cell ended well.

        Raises:
            CellFailed: it did not.
        """
        if self.error is not None:
            raise CellFailed(self)
        return self

    def _stream(self, name: str) -> str:
        return "".join(o["text"] for o in self.outputs if o.get("name") == name)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, replayed: bool) -> Result:
        """Return what an answer of ``/execute`` says."""
        error = None
        if data["status"] != "ok":
            error = CellError(
                ename=data["ename"], evalue=data["evalue"], traceback=tuple(data["traceback"] or ())
            )
        return cls(
            status=data["status"],
            execution_count=data["execution_count"],
            outputs=data["outputs"],
            error=error,
            user_expressions=data["user_expressions"],
            payload=data["payload"],
            lambda_kernel=data["lambda_kernel"],
            replayed=replayed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One Jupyter message of a running cell; the last is the ``execute_reply``.

    Attributes:
        number: its place among those of the cell.
        msg_type: such as ``stream``.
        content: as the messaging spec says for this type.
        metadata: of the message.
        buffers: binary parts.
    """

    number: int
    msg_type: str
    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        """What it shows as text; "" where that is nothing."""
        if self.msg_type == "stream":
            return str(self.content["text"])
        data = self.content.get("data")
        return str(data.get("text/plain", "")) if isinstance(data, dict) else ""

    @property
    def is_last(self) -> bool:
        """Whether the cell has ended."""
        return self.msg_type == "execute_reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """One kernel as listings have it.

    Attributes:
        kernel_id: its id.
        name: its kernelspec.
        execution_state: ``idle``, ``busy``, ``restarting``, ``starting`` or ``dead``.
        last_activity: ISO 8601 with ``Z``.
        connections: how many websockets are attached.
        lambda_kernel: user, agent, workspace, execution_count and more.
    """

    kernel_id: str
    name: str
    execution_state: str
    last_activity: str
    connections: int
    lambda_kernel: dict[str, Any]

    @property
    def workspace(self) -> str:
        """The workspace that its cells work in."""
        return str(self.lambda_kernel["workspace"])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KernelInfo:
        """Return what a kernel's REST model says."""
        return cls(
            kernel_id=data["id"],
            **{name: data[name] for name in cls.__dataclass_fields__ if name != "kernel_id"},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableInfo:
    """One name of a session, without its value.

    Attributes:
        name: an identifier.
        type: the name of its type.
        cell: number of the cell that stored or lost it.
        carried: whether the next cell has it.
        size_bytes: stored; 0 for a lost one.
        why: why it is lost.
        hint: what to do instead.
    """

    name: str
    type: str
    cell: int
    carried: bool
    size_bytes: int = 0
    why: str = ""
    hint: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VariableInfo:
        """Return what the REST model says."""
        return cls(
            name=data["name"],
            type=data["type"],
            cell=data["cell"],
            carried=data["carried"],
            size_bytes=data.get("bytes", 0),
            why=data.get("why", ""),
            hint=data.get("hint", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One file or folder of a workspace.

    Attributes:
        path: relative to the workspace; a folder's ends in ``/``.
        type: ``file`` or ``folder``.
        size_bytes: of the content.
        modified: ISO 8601 with ``Z``, None where it is not known.
    """

    path: str
    type: str
    size_bytes: int
    modified: str | None


@dataclass(slots=True)
class EventReader:
    """Server-sent events from lines.

    Source: HTML standard, "Server-sent events".

    Attributes:
        last_number: of the last event that was whole; None before the first.
    """

    last_number: int | None = None
    _fields: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin with a new stream: what the last one left unfinished is not part of it."""
        self._fields.clear()

    def feed(self, line: str) -> Event | None:
        """Take one line without its end; return the event that it completes."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        data = json.loads(fields["data"])
        self.last_number = int(fields["id"])
        return Event(
            number=self.last_number,
            msg_type=fields["event"],
            content=data["content"],
            metadata=data["metadata"],
            buffers=tuple(map(b64decode, data["buffers"])),
        )


def _text(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    return str(output.get("data", {}).get("text/plain", ""))
