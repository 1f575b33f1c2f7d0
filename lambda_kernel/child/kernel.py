"""A real ipykernel for one request: no sockets, no threads, no files of its own."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import os
import re
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The debugger would import debugpy and start threads; no process here lives long enough for it.
_no_debugger = types.ModuleType("ipykernel.debugger")
vars(_no_debugger).update(_is_debugpy_available=False, Debugger=object)
sys.modules.setdefault("ipykernel.debugger", _no_debugger)

import traitlets  # noqa: E402
from ipykernel.compiler import (  # noqa: E402
    XCachingCompiler,
    get_tmp_hash_seed,
    murmur2_x86,
)
from ipykernel.displayhook import ZMQShellDisplayHook  # noqa: E402
from ipykernel.ipkernel import IPythonKernel  # noqa: E402
from ipykernel.zmqshell import ZMQInteractiveShell  # noqa: E402
from IPython.core.error import UsageError  # noqa: E402
from IPython.core.interactiveshell import ExecutionResult  # noqa: E402
from IPython.core.profiledir import ProfileDir  # noqa: E402
from traitlets.config import Config  # noqa: E402

from lambda_kernel.child import asking  # noqa: E402
from lambda_kernel.child.capture import FrameChannel  # noqa: E402
from lambda_kernel.child.interrupting import Interruptible, Interrupting  # noqa: E402
from lambda_kernel.child.invocations import CellInvocation, InvocationMagics  # noqa: E402
from lambda_kernel.child.losses import Loss, story  # noqa: E402
from lambda_kernel.child.session import CellSession, CellStream  # noqa: E402
from lambda_kernel.child.state import entries  # noqa: E402
from lambda_kernel.child.state.loading import Loader  # noqa: E402
from lambda_kernel.child.state_magics import StateMagics  # noqa: E402
from lambda_kernel.child.stdin import Asker  # noqa: E402

logger = logging.getLogger(__name__)

_NO_HOME = "/nonexistent"
_MURMUR_BYTES = 16 * 1024
"""What ipykernel's own hash is taken of: it is slow, and knows no lone surrogates."""
_MACROS = ("IPython.core.macro.Macro", "IPython.macro.Macro")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FIRST_WORD = re.compile(r"\s*([^\W\d]\w*)")
LIVE_BACKENDS = frozenset(
    {
        *("widget", "ipympl", "notebook", "nbagg", "webagg", "qt", "qt4", "qt5", "qt6", "qtagg"),
        *("qt5agg", "tk", "tkagg", "gtk", "gtk3", "gtk4", "wx", "osx", "macosx"),
    }
)
INLINE_BACKENDS = (None, "", "inline", "agg", "asyncio")


class CellCompiler(XCachingCompiler):
    """Names cells so that every process gives the same cell the same name."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """Return the file name of a cell: ipykernel's, but for the number of the process."""
        data = raw_code.encode("utf-8", "surrogatepass")
        if len(data) <= _MURMUR_BYTES and not _SURROGATE.search(raw_code):
            digest = murmur2_x86(raw_code, get_tmp_hash_seed())
        else:
            digest = int.from_bytes(hashlib.sha256(data).digest()[:4])
        return f"/tmp/ipykernel_0/{digest}.py"  # noqa: S108  (no such file)


class CellDisplayHook(ZMQShellDisplayHook):
    """Shifts ``_``, ``__`` and ``___`` also where they are stored and not loaded."""

    def update_user_ns(self, result: Any) -> None:
        """Make ``result`` the newest output."""
        shell: Any = self.shell
        if result is shell.user_ns["_oh"]:
            return
        unders = [] if shell.stored is None else entries.shift(shell.stored)
        super().update_user_ns(result)  # type: ignore[no-untyped-call]
        for name in unders:
            shell.user_ns.pop(name, None)


class CellShell(ZMQInteractiveShell):
    """The shell of a cell: tells what became of lost variables; draws inline only."""

    displayhook_class = traitlets.Type(CellDisplayHook)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.lost_names: dict[str, Loss] = {}
        self.invocations: list[CellInvocation] = []
        self.stored: Loader | None = None
        self.cell_context = contextvars.copy_context()
        self.interrupting = Interrupting()

    @property
    def ipython_dir(self) -> str:  # type: ignore[override]
        """``~/.ipython`` of the cell's HOME; the zygote has none, so it is never stored."""
        return str(_ipython_dir())

    def init_ipython_dir(self, ipython_dir: str | None) -> None:
        """Make no folder."""

    def _ipython_dir_changed(self, change: Any) -> None:
        """Make no folder."""

    def init_user_ns(self) -> None:
        """Put IPython's own names where the user finds them."""
        super().init_user_ns()  # type: ignore[no-untyped-call]
        # ``user_ns_hidden`` gets more: what ``%pylab`` brings, which the next cell needs too.
        self.own_names = dict(self.user_ns_hidden)

    def transform_cell(self, raw_cell: str) -> str:
        """Transform a cell; a variable hides a magic of the same name also where it is stored."""
        word = _FIRST_WORD.match(raw_cell)
        if self.stored is not None and word:
            is_magic = self.find_magic(word[1])  # type: ignore[no-untyped-call]
            if is_magic or self.stored.type_of(word[1]) in _MACROS:
                self.stored.load_names([word[1]])
        return str(super().transform_cell(raw_cell))  # type: ignore[no-untyped-call]

    async def run_cell_async(
        self, raw_cell: str, *args: Any, transformed_cell: str | None = None, **kwargs: Any
    ) -> Any:
        """Run a cell, with the stored variables that it may read.

        Its context is kept, for the values of context variables.
        """
        if self.stored is not None:
            self.stored.load_for(transformed_cell or raw_cell)
            entries.order_outputs(self)
            entries.bind_empty_unders(self, self.stored)
        if self.last_execution_result is None:
            # Magics look at the result of the cell before, which another process had.
            self.last_execution_result = ExecutionResult(None)
        kwargs["transformed_cell"] = transformed_cell
        try:
            cell = super().run_cell_async(raw_cell, *args, **kwargs)
            return await Interruptible(cell, self.interrupting)
        finally:
            self.cell_context = contextvars.copy_context()

    def reset(self, *args: Any, **kwargs: Any) -> None:
        """Forget all variables, the stored ones too."""
        if self.stored is not None:
            self.stored.forget_all()
        super().reset(*args, **kwargs)  # type: ignore[no-untyped-call]

    def enable_gui(self, gui: str | None = None) -> None:
        """Refuse event loops of windows: there is no display."""
        if gui not in INLINE_BACKENDS:
            raise UsageError(f"the GUI {gui!r} needs a display; use %matplotlib inline")

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Draw as ``%matplotlib`` asks; refuse what needs windows, or a process that goes on."""
        if gui is not None and gui.lower() in LIVE_BACKENDS:
            raise UsageError(
                f"%matplotlib {gui} needs a process and a window that outlive the cell; here each "
                "cell has a process of its own, and no display. Use %matplotlib inline; a figure "
                "to zoom in, draw with a library that lives in the browser (plotly, altair, bokeh)"
            )
        return super().enable_matplotlib(gui)  # type: ignore[no-untyped-call]

    def _get_exc_info(self, exc_tuple: Any = None) -> Any:
        etype, value, tb = super()._get_exc_info(exc_tuple)  # type: ignore[no-untyped-call]
        name = getattr(value, "name", None)
        if type(value) is NameError and isinstance(name, str) and name in self.lost_names:
            text = f"{value.args[0] if value.args else value}"
            told = story(name, self.lost_names[name])
            if told not in text:
                value.args = (f"{text}\n{told}",)
        return etype, value, tb


# Libraries know a notebook by this name (rich, tqdm) and module (plotly, which else sends its whole
# script along with a session's first figure), and ``%config`` its section.
CellShell.__name__ = CellShell.__qualname__ = ZMQInteractiveShell.__name__
CellShell.__module__ = ZMQInteractiveShell.__module__


class CellKernel(IPythonKernel):
    """The kernel behind one request."""

    shell_class = CellShell
    compiler_class = CellCompiler
    _execute_sleep = 0.0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.asker = Asker()
        self.input_timeout_s: float | None = None

    @property
    def cell_shell(self) -> Any:
        """The shell, a CellShell."""
        return self.shell

    @property
    def cell_session(self) -> CellSession:
        """The session, which holds the reply."""
        session = self.session
        if not isinstance(session, CellSession):
            raise TypeError("this kernel was not made by build_kernel")
        return session

    def begin_message(self, message: dict[str, Any]) -> None:
        """Make ``message`` the parent of what follows."""
        self.set_parent([], message)  # type: ignore[no-untyped-call]

    def start_request(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tie the kernel to this process and its event loop."""
        self.io_loop = _LoopAdapter(loop)  # type: ignore[assignment]
        self.shell_channel_thread = SimpleNamespace(parent_thread=threading.current_thread())

    def _publish_execute_input(self, code: str, parent: Any, execution_count: int) -> None:
        """Send nothing: the gateway has told its clients already."""

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Do nothing: the queue stands in the gateway."""

    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Any:
        return self.cell_shell.interrupting.by_signal(future, asyncio.get_running_loop())

    def _input_request(self, prompt: str, ident: Any, parent: Any, password: bool = False) -> str:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return self.asker.ask(
            self.cell_session.channel, prompt, password=password, timeout_s=self.input_timeout_s
        )


class _LoopAdapter:
    """What ipykernel wants of tornado's loop; wakes an idle loop also from a signal handler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add_callback(self, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Do nothing: only used to end the process, which ends after its request anyway."""

    def stop(self) -> None:
        """Do nothing."""


class _LazyProfileDir(ProfileDir):
    """A profile that makes no folder until something is stored in it (``%store``)."""

    @property
    def location(self) -> str:  # type: ignore[override]
        """The default profile of the cell's HOME."""
        return str(_ipython_dir() / "profile_default")

    def _location_changed(self, change: Any) -> None:
        """Make no folder."""


def _ipython_dir() -> Path:
    return Path(os.environ.get("HOME", _NO_HOME), ".ipython")


def build_kernel(channel: FrameChannel) -> CellKernel:
    """Return the process's kernel, made as ipykernel's own application makes it.

    Comm messages find the kernel through ``Kernel.instance()``: only one can be built.
    """
    config = Config()
    config.HistoryManager.enabled = False
    # Others ask whether there is a section of this name; there is no file.
    config.IPKernelApp.connection_file = ""
    # What there is of it ends with the cell; the gateway keeps the inputs.
    config.HistoryManager.hist_file = ":memory:"
    module = types.ModuleType("__main__", "Automatically created module for IPython")
    kernel = CellKernel.instance(
        config=config,
        session=CellSession(channel),
        log=logger,
        profile_dir=_LazyProfileDir(),
        user_module=module,
        user_ns=None,
    )
    kernel.cell_shell.displayhook.get_execution_count = lambda: kernel.cell_shell.execution_count
    # ipykernel's application loads it, so that %store is there.
    kernel.cell_shell.extension_manager.load_extension("storemagic")
    kernel.cell_shell.register_magics(InvocationMagics, StateMagics)
    asking.be_quick(kernel.cell_shell.Completer)
    sys.stdout = CellStream("stdout", channel, 1)
    sys.stderr = CellStream("stderr", channel, 2)
    return kernel
