"""One request in a forked child, from its descriptors to its last frame."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from lambda_kernel.child import asking, cell_history, comm_messages, process, rehydrators
from lambda_kernel.child.capture import FrameChannel
from lambda_kernel.child.invocations import CellInvocation
from lambda_kernel.child.kernel import CellKernel
from lambda_kernel.child.probing import probe_reply
from lambda_kernel.child.representing import variables_reply
from lambda_kernel.child.session import send_reply
from lambda_kernel.child.side_state import Baseline
from lambda_kernel.child.state.memory import open_pagemap
from lambda_kernel.child.state.session import Session, SnapshotTooLarge, SnapshotUnreadable
from lambda_kernel.contract.cell_protocol import (
    FAILED_STATUS,
    STORING_KINDS,
    CellDescriptors,
    CellRequest,
    ChildKind,
    FailedReason,
)
from lambda_kernel.isolation import linux, namespaces

REQUEST_TYPES = {
    "execute": "execute_request",
    "complete": "complete_request",
    "inspect": "inspect_request",
}


class UnsupportedRequest(Exception):
    """The child has no answer for this kind of request, or its content is malformed."""


def run_child(
    request: CellRequest,
    descriptors: CellDescriptors,
    kernel: CellKernel,
    hidden: str | None,
    *,
    confined: bool,
) -> NoReturn:
    """Turn this forked process into the request's child; never returns.

    Args:
        request: what to do.
        descriptors: whose ends this process now owns; all others are closed.
        kernel: the zygote's, fresh.
        hidden: our own folder on ``sys.path``, which user code does not see.
        confined: this process is in namespaces of its own, and in the session of their first
            process.
    """
    status = FAILED_STATUS
    channel = kernel.cell_session.channel
    try:
        if not confined:
            os.setsid()
        process.reset_signals()
        interrupts = process.Interrupts()
        interrupts.hold()
        own = process.take_descriptors(descriptors)
        # As in ipykernel; and a crash is seen where its cell is.
        faulthandler.enable(2)
        channel.open(socket.socket(fileno=own.frames))
        _silence_own_logging()
        if confined:
            namespaces.let_in((request.workdir, request.home))
            linux.drop_capabilities()
        status = _answer(request, own, kernel, channel, hidden, interrupts)
    except BaseException as error:  # noqa: BLE001  (the process ends here, whatever it was)
        _report(channel, error)
    finally:
        channel.flush()
        # Threads that the cell left would keep an orderly exit waiting.
        os._exit(status)


def _answer(
    request: CellRequest,
    own: CellDescriptors,
    kernel: CellKernel,
    channel: FrameChannel,
    hidden: str | None,
    interrupts: process.Interrupts,
) -> int:
    if request.kind == "probe":
        process.limit(request.limits)
        header = {"msg_type": "probe_reply"}
        send_reply(channel, {"header": header, "metadata": {}, "content": probe_reply(request)})
        return 0
    message = {} if request.kind == "variables" else _message(request)
    pagemap = open_pagemap(own.pager)
    state = _prepare(request, kernel, channel, hidden, pagemap)
    state.restore(own.snapshot_in, own.pager)
    if request.kind == "variables":
        header = {"msg_type": "variables_reply"}
        content = variables_reply(state, kernel.cell_shell, request.msg.content)
        send_reply(channel, {"header": header, "metadata": {}, "content": content})
        return 0
    # A comm message is no cell: it changes the session after the last one.
    number = request.execution_count + (request.kind == "comm")
    cell_history.begin_cell(kernel.cell_shell, number)
    if request.kind == "comm":
        comm_messages.prepare(kernel, state, message)
    else:
        ran_here = CellInvocation.here(request.execution_count, request.environment)
        kernel.cell_shell.invocations.append(ran_here)
    if request.kind not in STORING_KINDS:
        asking.make_ready(kernel.cell_shell, state.loader, message["content"])
    gc.enable()
    _handle(kernel, message, interrupts)
    if channel.is_copy:
        # The cell forked and its copy came this far: only the original answers and saves.
        return 0
    channel.flush()
    process.flush_descriptors()
    reply = kernel.cell_session.reply
    if reply is None:
        raise UnsupportedRequest(f"a {request.kind} request had no reply")
    if request.kind not in STORING_KINDS:
        send_reply(channel, reply)
        return 0
    try:
        # Context variables have the values that the cell gave them in its own context only.
        context = kernel.cell_shell.cell_context
        report = context.run(state.save, own.snapshot_out)
    finally:
        send_reply(channel, reply)
    channel.send(report.to_dict())
    return 0


def _message(request: CellRequest) -> dict[str, Any]:
    if request.kind == "comm":
        return comm_messages.read(request)
    msg_type = REQUEST_TYPES.get(request.kind)
    if msg_type is None:
        raise UnsupportedRequest(f"requests of kind {request.kind} are not supported yet")
    content = dict(request.msg.content)
    if not isinstance(content.get("code"), str):
        raise UnsupportedRequest("content.code must be a string")
    if request.kind != "execute":
        content.setdefault("cursor_pos", len(content["code"]))
    header = {"msg_id": "", "session": "", **request.msg.header, "msg_type": msg_type}
    return {
        "header": header,
        "msg_id": header["msg_id"],
        "msg_type": msg_type,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "buffers": [],
    }


def _prepare(
    request: CellRequest,
    kernel: CellKernel,
    channel: FrameChannel,
    hidden: str | None,
    pagemap: int | None,
) -> Session:
    os.umask(0o022)
    process.set_environment(request)
    process.enter(request.workdir)
    kernel.cell_session.begin()
    kernel.input_timeout_s = request.limits.input_timeout_s
    kernel.cell_shell.home_dir = request.home
    sys.argv[:] = ["ipykernel_launcher.py"]
    # From here on, code of the user may run: .pth files, usercustomize, unpickling.
    channel.started()
    # Not before: at a cell's limit of open files the descriptors that this hands over might not go.
    process.limit(request.limits)
    process.add_user_site(hidden)
    rehydrators.begin_cell(request.workdir, request.home)
    kernel.cell_shell.history_manager.dir_hist[:] = [request.workdir]
    baseline = Baseline.here(request.workdir, kernel.cell_shell)
    return Session(
        kernel.cell_shell, baseline, request.limits.snapshot_bytes, request.seeds, pagemap
    )


def _handle(kernel: CellKernel, message: dict[str, Any], interrupts: process.Interrupts) -> None:
    loop = _make_loop()
    asyncio.set_event_loop(loop)
    kernel.start_request(loop)
    kernel.begin_message(message)
    try:
        interrupts.let_in()
        loop.run_until_complete(dispatch(kernel, message))
    except KeyboardInterrupt as interrupt:
        # It came before the user's code began, or when it had just ended.
        _reply_interrupted(kernel, message, interrupt)
    finally:
        interrupts.ignore()


def _make_loop() -> asyncio.AbstractEventLoop:
    # It logs that it was made, which is no news in each cell of a session that logs everything.
    logger = logging.getLogger("asyncio")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        return asyncio.new_event_loop()
    finally:
        logger.disabled = was_disabled


def _reply_interrupted(
    kernel: CellKernel, message: dict[str, Any], interrupt: KeyboardInterrupt
) -> None:
    if kernel.cell_session.reply is not None:
        return
    reply_type = message["msg_type"].replace("_request", "_reply")
    content = {
        "status": "error",
        "ename": type(interrupt).__name__,
        "evalue": "",
        "traceback": ["KeyboardInterrupt"],
        "execution_count": kernel.cell_shell.execution_count - 1,
        "user_expressions": {},
        "payload": [],
    }
    kernel.cell_session.send(None, reply_type, content, message)


async def dispatch(kernel: CellKernel, message: dict[str, Any]) -> None:
    """Let the kernel answer ``message``; the reply is kept in its session."""
    if message["msg_type"] in comm_messages.TYPES:
        comm_messages.handle(kernel, message)
    else:
        await kernel.shell_handlers[message["msg_type"]](None, [], message)


def _silence_own_logging() -> None:
    # The zygote's log goes to its stderr; the cell's stderr is the user's.
    own = logging.getLogger("lambda_kernel")
    own.handlers[:] = [logging.NullHandler()]
    own.propagate = False
    threading.excepthook = threading.__excepthook__


def _report(channel: FrameChannel, error: BaseException) -> None:
    reason, text = FailedReason.INTERNAL, str(error)
    if isinstance(error, SnapshotTooLarge):
        reason = FailedReason.SNAPSHOT_TOO_LARGE
    elif isinstance(error, SnapshotUnreadable):
        reason = FailedReason.SNAPSHOT_UNREADABLE
    elif not isinstance(error, UnsupportedRequest):
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
        text = f"{type(error).__name__}: {error}{where}"
    channel.send({"kind": ChildKind.FAILED.value, "reason": reason.value, "message": text})
