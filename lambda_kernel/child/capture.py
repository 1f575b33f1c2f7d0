"""The child's way out: Jupyter messages and stream text as frames on one socket."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from jupyter_client.jsonutil import json_clean, json_default

from lambda_kernel.contract.cell_protocol import MAX_MESSAGE_BYTES, ChildKind
from lambda_kernel.contract.frames import (
    CHILD_MESSAGE_TYPES,
    MAX_NESTING,
    NestedTooDeeply,
    length_prefixed,
    pack_parts,
)
from lambda_kernel.isolation import shared_memory

STREAM_CHUNK_CHARACTERS = 512 * 1024
FLUSH_CHARACTERS = 64 * 1024
FLUSH_INTERVAL_S = 0.05
READ_WAIT_S = 0.05
"""For the serving process to read what was printed before a program begins."""
OWN_THREAD = "lkg-output"
"""Name of the thread that sends what waits."""

_HELD_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Those that programs give handlers to; each costs time in every call."""

_PROGRAM_STARTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.fork"})
"""Audit events ahead of a program that writes to descriptors: what was printed comes first."""

_NO_NUMBER = (b"NaN", b"Infinity")


class FrameChannel:
    """Writes whole frames to the socket and gathers stream text on the way.

    Text written to stdout and stderr shares one queue, so that both keep their order, and leaves
    before any other message. A copy of this process (multiprocessing) must not write into the
    middle of the parent's frames: there the text goes to descriptors 1 and 2, messages nowhere.
    """

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock
        self._lock = threading.RLock()
        self._text_lock = threading.RLock()
        self._pending: list[tuple[str, str]] = []
        self._pending_characters = 0
        self._flushed_s = 0.0
        self._wake: threading.Event | None = None
        self._copied = False

    def open(self, sock: socket.socket) -> None:
        """Send to ``sock`` from now on; what was gathered before is dropped."""
        self._sock = sock
        self._pending.clear()
        self._pending_characters = 0
        os.register_at_fork(after_in_child=self._become_copy)
        sys.addaudithook(self._before_programs)

    @property
    def sock(self) -> socket.socket | None:
        """Where frames go; None while there is nowhere."""
        return self._sock

    @property
    def is_copy(self) -> bool:
        """Whether this process is a copy that the cell's own code forked."""
        return self._copied

    def send(self, data: dict[str, Any], buffers: Sequence[Any] = ()) -> bool:
        """Send one frame after the text that was written before it.

        Returns:
            Whether it could be sent: a frame has a size, and JSON in it a depth.
        """
        return not self._send(data, buffers)

    def _send(self, data: dict[str, Any], buffers: Sequence[Any]) -> str:
        """Send one frame; return what is wrong with it where it cannot be sent, else ""."""
        self.flush()
        try:
            body = _pack(data, buffers)
        except (RecursionError, NestedTooDeeply):
            return f"nested more than {MAX_NESTING} levels deep"
        if len(body) > MAX_MESSAGE_BYTES:
            return f"of more than {MAX_MESSAGE_BYTES // 1024**2} MB"
        self._write(length_prefixed(body))
        return ""

    def started(self) -> None:
        """Tell that user code begins, and hand over what measures the memory it may fill.

        Raises:
            OSError: nobody listens any more: it must not begin.
        """
        if self._sock is None:
            return
        gauges = shared_memory.open_gauges()
        frame = length_prefixed(pack_parts({"kind": ChildKind.STARTED.value}))
        try:
            socket.send_fds(self._sock, [frame], gauges)
        finally:
            for descriptor in gauges:
                os.close(descriptor)

    def send_message(
        self, msg_type: str, content: Any, metadata: Any, buffers: Sequence[Any] = ()
    ) -> None:
        """Send a Jupyter message, or a notice on stderr where it is too large or too deep."""
        if self._copied or msg_type not in CHILD_MESSAGE_TYPES:
            return
        frame = {
            "kind": ChildKind.MESSAGE.value,
            "msg_type": msg_type,
            "content": content,
            "metadata": metadata or {},
        }
        problem = self._send(frame, buffers)
        if problem:
            self.write("stderr", f"[output] one {msg_type} {problem} was left out.\n")

    def write(self, name: str, text: str) -> None:
        """Queue ``text`` for the stream ``name`` (``stdout`` or ``stderr``)."""
        if self._sock is None:
            return
        if self._copied:
            _write_all(1 if name == "stdout" else 2, text)
            return
        with self._text_lock:
            self._pending.append((name, text))
            self._pending_characters += len(text)
            full = self._pending_characters >= FLUSH_CHARACTERS
            stale = time.monotonic() - self._flushed_s >= FLUSH_INTERVAL_S
        if full or (stale and text.endswith("\n")):
            self.flush()
        else:
            self._flush_later()

    def flush(self) -> None:
        """Send all queued text."""
        if self._copied:
            return
        with self._text_lock:
            pending, self._pending = self._pending, []
            self._pending_characters = 0
            self._flushed_s = time.monotonic()
            for name, text in _merge(pending):
                frame = {
                    "kind": ChildKind.MESSAGE.value,
                    "msg_type": "stream",
                    "content": {"name": name, "text": text},
                    "metadata": {},
                }
                self._write(length_prefixed(pack_parts(frame)))

    def _write(self, body: bytes) -> None:
        if self._sock is None or self._copied:
            return
        # A signal handler that raises in the middle would leave half a frame behind.
        with self._lock, _signals_held(), suppress(OSError):
            self._sock.sendall(body)

    def _flush_later(self) -> None:
        if self._wake is None:
            wake = threading.Event()
            try:
                threading.Thread(
                    target=self._flush_loop, args=(wake,), name=OWN_THREAD, daemon=True
                ).start()
            except RuntimeError:
                # The cell has used up its processes and threads: its text leaves at once.
                self.flush()
                return
            self._wake = wake
        # Setting it takes as long as all the rest of a write.
        if not self._wake.is_set():
            self._wake.set()

    def _flush_loop(self, wake: threading.Event) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            wake.wait()
            time.sleep(FLUSH_INTERVAL_S)
            wake.clear()
            self.flush()

    def _before_programs(self, event: str, _: object) -> None:
        if event in _PROGRAM_STARTS and self._sock is not None and not self._copied:
            self.flush()
            # Its pipe is another way: until what was printed has been read, it waits, not for long.
            ends_s = time.monotonic() + READ_WAIT_S
            with suppress(OSError):
                while _unread_bytes(self._sock) and time.monotonic() < ends_s:
                    time.sleep(READ_WAIT_S / 100)

    def _become_copy(self) -> None:
        self._copied = True
        self._lock = threading.RLock()
        self._text_lock = threading.RLock()
        self._pending = []
        if self._sock is not None:
            # Else the copy, where it outlives the cell, would keep the stream of frames open.
            with suppress(OSError):
                self._sock.close()


def _unread_bytes(sock: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))
    return int(count)


def _pack(data: dict[str, Any], buffers: Sequence[Any]) -> bytes:
    try:
        body = pack_parts(data, buffers)
        if any(word in body for word in _NO_NUMBER):
            json.dumps(data, allow_nan=False)
    except NestedTooDeeply:
        raise
    except (TypeError, ValueError):
        plain = json.loads(json.dumps(json_clean(data), default=json_default))
        return pack_parts(plain, buffers)
    return body


def _merge(pending: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    start = 0
    while start < len(pending):
        name = pending[start][0]
        end = start
        while end < len(pending) and pending[end][0] == name:
            end += 1
        text = "".join(part for _, part in pending[start:end])
        for offset in range(0, len(text), STREAM_CHUNK_CHARACTERS):
            yield name, text[offset : offset + STREAM_CHUNK_CHARACTERS]
        start = end


def _write_all(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    with suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


@contextmanager
def _signals_held() -> Iterator[None]:
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
