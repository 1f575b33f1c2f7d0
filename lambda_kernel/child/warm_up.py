"""What the zygote does ahead: imports, and throw-away cells that leave no trace."""

from __future__ import annotations

import asyncio
import functools
import importlib
import linecache
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lambda_kernel.child import asking, side_state
from lambda_kernel.child.cell import dispatch
from lambda_kernel.child.kernel import CellKernel
from lambda_kernel.child.randomness import Randomness
from lambda_kernel.child.rehydrators.registry import import_own
from lambda_kernel.child.side_state import Baseline
from lambda_kernel.child.state import lazy
from lambda_kernel.child.state.session import Session
from lambda_kernel.contract import paging

logger = logging.getLogger(__name__)

WARM_UP_CELLS = (
    "x = 1 + 1\nx",
    "def f(n):\n    return [n, {'a': n}]\nf(1)",
    "import asyncio\nawait asyncio.sleep(0)",
    "print('warm')\ndisplay({'text/plain': 'warm'}, raw=True)",
    "%time 1",
    "1 / 0",
)
STAND_BY_CELL = "1 + 1"


def preload_module(name: str) -> None:
    """Import ``name``; one that is missing or broken is left out, with a log line."""
    folder = tempfile.mkdtemp(prefix="lkg-preload-")
    os.environ["MPLCONFIGDIR"] = folder
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  (a broken library must not end the zygote)
        reason = f"{type(error).__name__}: {error}"
        logger.warning("preload module left out", extra={"module_name": name, "reason": reason})
    finally:
        del os.environ["MPLCONFIGDIR"]
        shutil.rmtree(folder, ignore_errors=True)
    if threading.active_count() > 1:
        logger.warning("preload module started threads", extra={"module_name": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Something that makes questions quick once it was done.

    Attributes:
        run: does it.
        may_stop: it may be dropped anywhere, and be done again.
    """

    run: Callable[[], object]
    may_stop: bool


def rehearsals(kernel: CellKernel, preload: Iterable[str]) -> list[Rehearsal]:
    """Return what is to be done, in its order.

    It takes longer than all else before a first cell, which does not wait for it.
    """
    parsing = [functools.partial(asking.parse_ahead, code) for code in asking.PARSED_AHEAD]
    parsing += [functools.partial(_parse_ahead, name) for name in preload]
    asked = [functools.partial(_rehearse_question, kernel, *r) for r in asking.warm_up_requests()]
    # What is parsed is quickly asked.
    return [Rehearsal(run=each, may_stop=True) for each in parsing] + [
        Rehearsal(run=each, may_stop=False) for each in asked
    ]


def _rehearse_question(kernel: CellKernel, msg_type: str, content: dict[str, Any]) -> None:
    _ask(kernel, msg_type, content)
    make_fresh(kernel)


def _parse_ahead(name: str) -> None:
    module = sys.modules.get(name)
    if module is not None:
        asking.parse_ahead("module.", module=module)


def warm_up(kernel: CellKernel) -> None:
    """Run throw-away cells, so that what they import is there; the kernel is fresh again."""
    import_own()
    importlib.import_module("lambda_kernel.rehydrators")
    for code in WARM_UP_CELLS:
        run_warm_up(kernel, code)
    _rehearse(kernel)
    make_fresh(kernel)


def warm_stand_by(kernel: CellKernel) -> None:
    """Touch what a cell touches, so that these pages are this process's own already."""
    run_warm_up(kernel, STAND_BY_CELL)
    baseline = Baseline.here("/", kernel.cell_shell)
    side_state.collect(baseline)
    side_state.collect_objects(baseline)
    Randomness({}, {}).collect()
    make_fresh(kernel)


def _rehearse(kernel: CellKernel) -> None:
    """Store and restore a small session."""
    run_warm_up(kernel, "x = [1]\ndef f():\n    return x\nclass C:\n    pass\nc = C()")
    snapshot_out = os.memfd_create("lkg-warm-up", os.MFD_CLOEXEC)
    snapshot_in = os.memfd_create("lkg-warm-up", os.MFD_CLOEXEC)
    try:
        begin = _session(kernel)
        begin.restore(snapshot_in, -1)
        report = begin.save(snapshot_out)
        bodies = {n.id: os.pread(snapshot_out, n.size_bytes, n.offset) for n in report.new}
        sizes = {new.id: new.size_bytes for new in report.new}
        paging.write_snapshot_in(snapshot_in, report.index, sizes, bodies)
        kernel.cell_shell.reset(new_session=True)
        again = _session(kernel)
        again.restore(snapshot_in, -1)
        again.loader.load_for("c, f")
    finally:
        os.close(snapshot_in)
        os.close(snapshot_out)


def _session(kernel: CellKernel) -> Session:
    return Session(kernel.cell_shell, Baseline.here("/", kernel.cell_shell), 2**30, {}, None)


def make_fresh(kernel: CellKernel) -> None:
    """Remove every trace of throw-away cells."""
    kernel.cell_shell.reset(new_session=True)
    kernel.cell_shell.lost_names.clear()
    kernel.cell_shell.stored = None
    kernel.cell_shell.invocations.clear()
    lazy.uninstall(kernel.cell_shell.user_ns)
    for name in kernel.cell_shell.compile._filename_map:
        linecache.cache.pop(name, None)
    kernel.cell_shell.compile._filename_map.clear()
    kernel.cell_shell.history_manager.output_hist_reprs.clear()
    # Else %tb and %debug would show the error of a cell that nobody wrote.
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    kernel.cell_shell._last_traceback = None
    kernel.cell_shell.InteractiveTB.tb = None
    # Where %store keeps its values is made of the HOME at its first use.
    kernel.cell_shell.db = None
    kernel.cell_session.reply = None


def run_warm_up(kernel: CellKernel, code: str) -> dict[str, Any]:
    """Run ``code`` in this process with no way out; returns the reply's content."""
    content = {"code": code, "silent": False, "store_history": True, "stop_on_error": False}
    return _ask(kernel, "execute_request", content)


def _ask(kernel: CellKernel, msg_type: str, content: dict[str, Any]) -> dict[str, Any]:
    header = {"msg_id": "", "session": "", "msg_type": msg_type}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        kernel.start_request(loop)
        message = {"header": header, "content": content, "metadata": {}, "parent_header": {}}
        kernel.begin_message(message)
        loop.run_until_complete(dispatch(kernel, message | {"msg_type": msg_type}))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    reply = kernel.cell_session.reply
    return dict(reply["content"]) if reply else {}
