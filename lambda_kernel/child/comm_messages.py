"""A comm message of a front end: given to the comm that the session has, or refused aloud."""

from __future__ import annotations

import sys
from typing import Any

from lambda_kernel.child.kernel import CellKernel
from lambda_kernel.child.state.entries import comm_label
from lambda_kernel.child.state.session import Session
from lambda_kernel.contract.cell_protocol import CellRequest
from lambda_kernel.contract.schema import InvalidField

TYPES = frozenset({"comm_open", "comm_msg", "comm_close"})
REPLY = "comm_reply"


def read(request: CellRequest) -> dict[str, Any]:
    """Return the message as ipykernel has it (raises InvalidField)."""
    header = {"msg_id": "", "session": "", **request.msg.header}
    content = {"data": {}, **request.msg.content}
    msg_type = header.get("msg_type")
    if msg_type not in TYPES:
        raise InvalidField("comm.header.msg_type", f"must be one of {sorted(TYPES)}")
    texts = ("comm_id", "target_name") if msg_type == "comm_open" else ("comm_id",)
    for name in texts:
        if not isinstance(content.get(name), str):
            raise InvalidField(f"comm.content.{name}", "must be text")
    return {
        "header": header,
        "msg_id": header["msg_id"],
        "msg_type": msg_type,
        "parent_header": {},
        "metadata": dict(request.msg.metadata),
        "content": content,
        "buffers": [memoryview(part) for part in request.msg.buffer_bytes()],
    }


def prepare(kernel: CellKernel, state: Session, message: dict[str, Any]) -> None:
    """Read the comm, and the variables that the functions behind it may read."""
    kernel.comm_manager.comms.get(message["content"]["comm_id"])
    state.loader.load_for("")


def handle(kernel: CellKernel, message: dict[str, Any]) -> None:
    """Let the session's functions have the message; the reply says that this is over."""
    manager, content = kernel.comm_manager, message["content"]
    comm_id, is_opening = content["comm_id"], message["msg_type"] == "comm_open"
    reply: dict[str, Any] = {"status": "ok"}
    try:
        if is_opening and comm_id in manager.comms:
            _tell(f"[widgets] a comm {comm_id!r} is open already; it stays as it is")
        elif is_opening or comm_id in manager.comms:
            getattr(manager, message["msg_type"])(None, [], message)
        elif message["msg_type"] == "comm_msg":
            _refuse(kernel, comm_id, message)
    except KeyboardInterrupt as interrupt:
        kernel.cell_shell.showtraceback()
        reply = {"status": "error", "ename": type(interrupt).__name__, "evalue": ""}
        reply["traceback"] = ["KeyboardInterrupt"]
    kernel.cell_session.send(None, REPLY, reply, message)


def _refuse(kernel: CellKernel, comm_id: str, message: dict[str, Any]) -> None:
    loss = kernel.cell_shell.lost_names.get(comm_label(comm_id))
    why = "its comm was closed, or the kernel was restarted since it was made"
    if loss is not None:
        why = f"it could not be stored after In[{loss.cell}]: {loss.why}"
    _tell(f"[widgets] this widget is inert: {why}. Run its cell again.")
    closed = {"comm_id": comm_id, "data": {}}
    kernel.cell_session.send(None, "comm_close", closed, message)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
