"""Threads that a cell left running: stopped before its variables are stored."""

from __future__ import annotations

import ctypes
import sys
import threading
import time

from lambda_kernel.child.capture import OWN_THREAD

PATIENCE_S = 0.2
STOPPED = "_ended_with_its_cell"


def stop_threads() -> None:
    """Ask every other thread to end, and tell which ones were running."""
    own = threading.current_thread()
    running = [t for t in threading.enumerate() if t is not own and t.name != OWN_THREAD]
    if not running:
        return
    for thread in running:
        vars(thread)[STOPPED] = True
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )
    deadline = time.monotonic() + PATIENCE_S
    for thread in running:
        thread.join(max(0.0, deadline - time.monotonic()))
    names = ", ".join(repr(thread.name) for thread in running if not thread.daemon)
    if names:
        sys.stderr.write(f"[state] still running, and ended with the cell: thread {names}\n")
