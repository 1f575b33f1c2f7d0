"""What is believed of what a child says: closed lists, right types, bounded sizes.

The child runs user code, which can write to its sockets itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lambda_kernel.contract.outcome import LostName
from lambda_kernel.contract.schema import InvalidField, encode
from lambda_kernel.contract.snapshot_report import MAX_CHANGED, SnapshotReport
from lambda_kernel.serving import message_shapes
from lambda_kernel.serving.masking import Masker

REPLY_TYPES = {
    "execute": "execute_reply",
    "complete": "complete_reply",
    "inspect": "inspect_reply",
    "comm": "comm_reply",
    "variables": "variables_reply",
    "probe": "probe_reply",
}

INTERRUPT_NAME = "KeyboardInterrupt"
"""What code raises that is interrupted."""

MAX_LOST = 1_000
MAX_TEXT = 2_000
MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildMessage:
    """A Jupyter message body: message or reply."""

    msg_type: str
    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: tuple[bytes, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the body of a frame."""
        return {"msg_type": self.msg_type, "content": self.content, "metadata": self.metadata}

    def masked(self, masker: Masker) -> ChildMessage:
        """Return it with connector values replaced; buffers are bytes and stay."""
        return replace(self, content=masker.json(self.content), metadata=masker.json(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnd:
    """How a cell ended that replied.

    Attributes:
        reply: its reply.
        snapshot: what it says about its variables; None for requests that keep none.
    """

    reply: ChildMessage
    snapshot: SnapshotReport | None

    def masked(self, masker: Masker) -> CellEnd:
        """Return it with connector values replaced in what is shown or stored."""
        if masker.is_idle:
            return self
        report = self.snapshot
        if report is not None:
            lost = tuple(LostName(**masker.json(encode(item))) for item in report.lost)
            report = replace(report, lost=lost)
        return CellEnd(reply=self.reply.masked(masker), snapshot=report)


def message(data: dict[str, Any], buffers: tuple[bytes, ...]) -> ChildMessage | None:
    """Return the message in ``data``, or None where it is not one that is taken."""
    msg_type, metadata = data.get("msg_type"), data.get("metadata", {})
    content = message_shapes.read_message(msg_type, data.get("content"))
    if content is None or not isinstance(metadata, dict):
        return None
    return ChildMessage(msg_type=str(msg_type), content=content, metadata=metadata, buffers=buffers)


def reply(data: dict[str, Any], kind: str) -> ChildMessage | None:
    """Return the reply to a request of ``kind``, or None where it is not one."""
    msg_type, content = REPLY_TYPES[kind], data.get("content")
    metadata = data.get("metadata", {})
    if data.get("msg_type") != msg_type or not isinstance(content, dict):
        return None
    checked = message_shapes.read_reply(msg_type, content)
    if checked is None or not isinstance(metadata, dict):
        return None
    return ChildMessage(msg_type=msg_type, content=checked, metadata=metadata)


def snapshot(data: dict[str, Any]) -> SnapshotReport | None:
    """Return what a child says about its session, or None where it makes no sense."""
    lost, changed = data.get("lost", []), data.get("changed", {})
    if not isinstance(lost, list) or not isinstance(changed, dict):
        return None
    names = list(changed.items())[:MAX_CHANGED]
    short = {
        **data,
        "lost": [_short(item) for item in lost[:MAX_LOST]],
        "changed": {name[:MAX_NAME]: str(what)[:MAX_NAME] for name, what in names},
    }
    try:
        return SnapshotReport.from_dict(short)
    except InvalidField:
        return None


def timed_out(data: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return an error of code that was interrupted at its time limit as that of the limit.

    Args:
        data: a message or a reply; what is no error is returned as it is.
        reason: which limit.
    """
    content = data.get("content")
    if not isinstance(content, dict) or "ename" not in content:
        return data
    text = f"{reason} and was interrupted: variables and files up to the interrupt are kept"
    if content["ename"] != INTERRUPT_NAME:
        text += f"; its own error was {content['ename']}: {content.get('evalue', '')}"
    traceback = content.get("traceback")
    lines = [*(traceback if isinstance(traceback, list) else ()), f"CellTimeout: {text}"]
    content = {**content, "ename": "CellTimeout", "evalue": text, "traceback": lines}
    return {**data, "content": content}


def size_of(value: Any) -> int:
    """Return roughly how many bytes ``value`` has as JSON."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return 2 + sum(len(key) + 4 + size_of(item) for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + size_of(item) for item in value)
    if isinstance(value, int):
        # A digit has a little over three bits; a number may have thousands.
        return 8 + value.bit_length() // 3
    return 8


def _short(item: object) -> object:
    if not isinstance(item, dict):
        return item
    return {k: v[:MAX_TEXT] if isinstance(v, str) else v for k, v in item.items()}
