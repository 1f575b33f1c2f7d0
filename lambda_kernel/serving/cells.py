"""Running one cell: ask a zygote for a child, pump what it says, end it at its limits."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lambda_kernel.contract import cell_protocol
from lambda_kernel.contract.cell_protocol import (
    CellDescriptors,
    CellRequest,
    ChildKind,
    Exited,
    FailedReason,
    Forked,
    Refused,
    SnapshotReport,
)
from lambda_kernel.contract.frames import BadFrame, PartsReader
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.isolation import shared_memory
from lambda_kernel.serving import child_messages, control, sampling, sweep
from lambda_kernel.serving.child_messages import CellEnd, ChildMessage
from lambda_kernel.serving.errors import (
    CellEnded,
    CellInterrupted,
    CellOutOfMemory,
    CellProcessDied,
    CellTimeout,
    SnapshotTooLarge,
)
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.paging import Pager
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import Zygote

logger = logging.getLogger(__name__)

SAMPLE_S = 0.05
GATHER_S = 0.02
"""For stream text that follows what was sent: many small writes are few messages."""

FORK_WAIT_S = 20.0
"""For the zygote to fork; it may be busy with an import of some seconds."""
REAP_WAIT_S = 0.5
"""For the zygote to report a child that is dead; then it is woken, in case a cell stopped it."""
REAP_PATIENCE_S = 3.0
"""For a zygote that was woken: on a busy machine the end of namespaces takes its time."""
INTERRUPT_GRACE_S = 10.0
"""For a cell that was interrupted to end and to store its variables."""
READ_BYTES = 256 * 1024
DRAIN_READS = 1024


class ZygoteGone(Exception):
    """The zygote ended before the cell had begun: nothing of the user has run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLimitsInForce:
    """What ends a cell from outside.

    Attributes:
        deadline: when it is interrupted, on the clock.
        kill_by: when it is killed, if it is not over by then.
        timeout_s: the time it had, for people.
        memory_bytes: of its processes together.
        interrupt: descriptor of an `InterruptWatch`.
    """

    deadline: float
    kill_by: float
    timeout_s: float
    memory_bytes: int
    interrupt: int


class CellRun:
    """One cell from request to exit; used once.

    Attributes:
        peak_memory_bytes: sampled.
        started: whether user code may have run.
    """

    def __init__(
        self,
        zygote: Zygote,
        sweeper: Sweeper,
        output: Output,
        limits: CellLimitsInForce,
        on_started: Callable[[], None],
        pager: Pager | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._zygote = zygote
        self._sweeper = sweeper
        self._output = output
        self._limits = limits
        self._on_started = on_started
        self._pager = pager
        self._clock = clock
        self._poll = select.poll()
        # One read per turn of the loop: a flood starves neither another reader nor the clock.
        self._readers: dict[int, Callable[[], bool]] = {}
        self._outputs: set[int] = set()
        self._frames, self._child_end = socket.socketpair()
        self._parts = PartsReader(cell_protocol.MAX_MESSAGE_BYTES + 64 * 1024)
        self._kind = ""
        self._gauges: list[int] = []
        self._pid: int | None = None
        self._status: int | None = None
        self._gone = False
        self._reply: ChildMessage | None = None
        self._snapshot: SnapshotReport | None = None
        self._ended: CellEnded | None = None
        self._asked: CellEnded | None = None
        self._ends_by = limits.deadline
        self._reap_by: float | None = None
        self._fork_by = 0.0
        self._woken = False
        self._flush_by = 0.0
        self._has_questions = True
        self.peak_memory_bytes = 0
        self.started = False

    def run(self, request: CellRequest, snapshot_in: int, snapshot_out: int) -> CellEnd:
        """Run ``request`` and return how it ended.

        Raises:
            CellEnded: it did not reply, was ended at a limit, or left no usable snapshot.
            ZygoteGone: nothing has begun; another zygote may be tried.
        """
        self._kind = request.kind
        opened = self._send(request, snapshot_in, snapshot_out)
        try:
            self._pump()
            # User code begins only after its process could say so here: from now on it cannot, and
            # whether it did stands in what has come.
            self._frames.shutdown(socket.SHUT_RD)
            self._drain()
        finally:
            for descriptor in (*opened, *self._gauges):
                os.close(descriptor)
            self._frames.close()
            if self._pager is not None:
                self._pager.close()
        return self._result()

    def _send(self, request: CellRequest, snapshot_in: int, snapshot_out: int) -> list[int]:
        stdout, stdout_end = os.pipe2(os.O_CLOEXEC)
        stderr, stderr_end = os.pipe2(os.O_CLOEXEC)
        descriptors = CellDescriptors(
            frames=self._child_end.detach(),
            stdout=stdout_end,
            stderr=stderr_end,
            snapshot_in=snapshot_in,
            snapshot_out=snapshot_out,
            pager=self._pager_end(),
        )
        try:
            cell_protocol.send_request(self._zygote.channel, request, descriptors)
        except OSError:
            self._gone = True
        finally:
            for descriptor in (descriptors.frames, stdout_end, stderr_end, descriptors.pager):
                os.close(descriptor)
        self._frames.setblocking(False)
        for descriptor in (stdout, stderr):
            os.set_blocking(descriptor, False)
        self._watch(self._zygote.channel.fileno(), self._read_zygote)
        self._watch(self._frames.fileno(), self._read_frames)
        self._watch(stdout, lambda: self._read_pipe(stdout, "stdout"))
        self._watch(stderr, lambda: self._read_pipe(stderr, "stderr"))
        self._outputs = {self._frames.fileno(), stdout, stderr}
        self._watch(self._limits.interrupt, self._interrupted)
        pager = self._pager
        if pager is not None:
            self._watch_pager(pager)
            self._watch(pager.wake, lambda: self._answered(pager))
        return [stdout, stderr]

    def _pager_end(self) -> int:
        if self._pager is None:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return self._pager.detach_child_end()

    @property
    def zygote_lost(self) -> bool:
        """Whether the zygote must be replaced."""
        return self._gone

    @property
    def _is_complete(self) -> bool:
        return self._reply is not None and (self._kind != "execute" or self._snapshot is not None)

    def _pump(self) -> None:
        next_sample = self._clock() + SAMPLE_S
        self._fork_by = self._clock() + FORK_WAIT_S
        while self._status is None and not self._gone:
            now = self._clock()
            ends = self._ends_by
            if self._reap_by is not None:
                ends = self._reap_by + (REAP_PATIENCE_S if self._woken else 0.0)
            if self._pid is None:
                ends = min(ends, self._fork_by)
            if self._output.waits:
                ends = min(ends, self._flush_by)
            wait_s = min(next_sample, ends) - now
            for descriptor, _ in self._poll.poll(max(0.0, wait_s * 1000)):
                reader = self._readers.get(descriptor)
                if reader is not None:
                    reader()
            now = self._clock()
            if self._output.waits and now >= self._flush_by:
                self._output.flush()
                self._flush_by = now + GATHER_S
            if now >= next_sample:
                self._sample()
                next_sample = now + SAMPLE_S
            self._check_time(now)

    def _check_time(self, now: float) -> None:
        if self._reap_by is not None:
            if now >= self._reap_by + REAP_PATIENCE_S:
                # It reaps nobody: it is replaced.
                self._gone = True
            elif now >= self._reap_by and not self._woken:
                self._woken = True
                self._zygote.wake()
        elif self._pid is None and now >= self._fork_by:
            # Stopped by an earlier cell, or busy with an import that does not end.
            self._gone = True
        elif now >= self._ends_by and self._asked is not None:
            self._end(self._asked)
        elif now >= self._ends_by:
            reason = f"the cell did not finish within {self._limits.timeout_s:g} s"
            self._ask(CellTimeout(reason), self._limits.kill_by)

    def _drain(self) -> None:
        # Bounded: a process that the cell left behind may go on writing until the sweep.
        for _ in range(DRAIN_READS):
            open_ones = [reader for fd, reader in self._readers.items() if fd in self._outputs]
            if not sum(reader() for reader in open_ones):
                return

    def _result(self) -> CellEnd:
        if self._gone and not self.started and self._ended is None:
            raise ZygoteGone
        if self._ended is not None:
            raise self._ended if self.started else _before_its_start(self._ended)
        if self._asked is not None and not self._is_complete:
            # It died of the interrupt.
            raise self._asked if self.started else _before_its_start(self._asked)
        if self._reply is None:
            raise CellProcessDied(f"the cell's process ended before it replied: {self._death()}")
        if self._kind == "execute" and self._snapshot is None:
            raise CellProcessDied(
                f"the cell's process ended before its variables were saved: {self._death()}"
            )
        return CellEnd(reply=self._reply, snapshot=self._snapshot)

    def _death(self) -> str:
        if self._status is None:
            return "the process that it was forked from was killed"
        code = os.waitstatus_to_exitcode(self._status)
        if code >= 0:
            return f"exit status {code}"
        with contextlib.suppress(ValueError):
            return f"killed by signal {signal.Signals(-code).name}"
        return f"killed by signal {-code}"

    def _watch(self, descriptor: int, reader: Callable[[], bool]) -> None:
        self._readers[descriptor] = reader
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        if self._readers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _read_zygote(self) -> bool:
        try:
            datagram = self._zygote.channel.recv(cell_protocol.DATAGRAM_BYTES)
            answer = cell_protocol.decode_answer(datagram)
        except (OSError, InvalidField):
            # An empty datagram is the end: the zygote is dead.
            self._gone = True
            return False
        if isinstance(answer, Forked):
            self._pid = answer.forked
            if self._ended is not None:
                self._kill(self._pid)
        elif isinstance(answer, Refused):
            self._ended = CellProcessDied(f"no process could be started: {answer.refused}")
            self._status = 0
        elif isinstance(answer, Exited) and answer.exited == self._pid:
            self._status = answer.status
        return True

    def _read_frames(self) -> bool:
        frames = self._frames
        # What programs wrote before a message was sent is in their pipes by now, and comes first.
        for descriptor in self._outputs - {frames.fileno()}:
            self._readers.get(descriptor, _nothing)()
        try:
            # Only what comes with the word that user code begins is our own code's.
            if self.started or self._gauges:
                chunk = frames.recv(READ_BYTES)
            else:
                chunk, self._gauges, _, _ = socket.recv_fds(
                    frames, READ_BYTES, len(shared_memory.GAUGES), socket.MSG_CMSG_CLOEXEC
                )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._unwatch(frames.fileno())
            if self._is_complete and self._reap_by is None:
                self._reap_by = self._clock() + REAP_WAIT_S
            return False
        try:
            for data, buffers in self._parts.feed(chunk):
                self._frame(data, buffers)
        except BadFrame as error:
            self._unwatch(frames.fileno())
            self._end(CellProcessDied(f"the cell's process sent garbage: {error}"))
        return True

    def _frame(self, data: dict[str, Any], buffers: tuple[bytes, ...]) -> None:
        kind = data.get("kind")
        if kind == ChildKind.STARTED:
            if not self.started:
                self.started = True
                self._on_started()
        elif kind == ChildKind.MESSAGE:
            self._output.message(self._explained(data), buffers)
        elif kind == ChildKind.REPLY and self._reply is None:
            self._reply = child_messages.reply(self._explained(data), self._kind)
            if self._reply is None:
                self._end(CellProcessDied("the cell's process sent a malformed reply"))
        elif kind == ChildKind.SNAPSHOT and self._snapshot is None:
            self._snapshot = child_messages.snapshot(data)
            if self._snapshot is None:
                self._end(CellProcessDied("the cell's process sent a malformed snapshot report"))
        elif kind == ChildKind.FAILED:
            self._failed(data)
        else:
            self._output.dropped_count += 1

    def _explained(self, data: dict[str, Any]) -> dict[str, Any]:
        """Name the time limit where that is why the user's code was interrupted."""
        if not isinstance(self._asked, CellTimeout):
            return data
        return child_messages.timed_out(data, str(self._asked))

    def _failed(self, data: dict[str, Any]) -> None:
        text = str(data.get("message", ""))[: child_messages.MAX_TEXT]
        if data.get("reason") == FailedReason.SNAPSHOT_TOO_LARGE:
            self._ended = self._ended or SnapshotTooLarge(text)
        else:
            self._ended = self._ended or CellProcessDied(f"the cell's process failed: {text}")

    def _read_pipe(self, descriptor: int, name: str) -> bool:
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            self._output.raw(name, chunk)
        else:
            self._unwatch(descriptor)
        return bool(chunk)

    def _watch_pager(self, pager: Pager) -> None:
        self._watch(pager.fileno(), lambda: self._read_question(pager))

    def _read_question(self, pager: Pager) -> bool:
        if not pager.read():
            self._has_questions = False
        if pager.is_full or not self._has_questions:
            self._unwatch(pager.fileno())
        return self._has_questions

    def _answered(self, pager: Pager) -> bool:
        pager.reap()
        if self._has_questions and pager.fileno() not in self._readers:
            self._watch_pager(pager)
        return True

    def _interrupted(self) -> bool:
        reason = CellInterrupted("the cell was interrupted: its process was killed")
        if control.is_order_to_kill(self._limits.interrupt):
            self._unwatch(self._limits.interrupt)
            self._end(reason)
        else:
            grace_ends = self._clock() + INTERRUPT_GRACE_S
            self._ask(reason, min(grace_ends, self._limits.kill_by))
        return True

    def _sample(self) -> None:
        if self._pid is None or self._reap_by is not None:
            return
        if not sweep.is_alive(self._pid):
            self._reap_by = self._clock() + REAP_WAIT_S
            return
        zygote = sampling.read(self._zygote.pid)
        cell = [m for pid in self._sweeper.strangers() if (m := sampling.read(pid)) is not None]
        stored = shared_memory.stored_bytes(self._gauges)
        total = sampling.total_bytes(cell, zygote, stored)
        self.peak_memory_bytes = max(self.peak_memory_bytes, total)
        if total > self._limits.memory_bytes:
            self._end(
                CellOutOfMemory(
                    f"the cell held {total / 1e6:.0f} MB, "
                    f"the limit is {self._limits.memory_bytes / 1e6:.0f} MB"
                )
            )

    def _ask(self, reason: CellEnded, kill_by: float) -> None:
        """Interrupt the user's code, which then commits; ``reason`` is why, if it does not end."""
        if self._pid is None:
            self._end(reason)
            return
        self._asked = self._asked or reason
        self._ends_by = kill_by
        # A process that was stopped takes no interrupt.
        for number in (signal.SIGINT, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def _end(self, reason: CellEnded) -> None:
        """Kill the cell and remember why; the loop goes on until it is reaped."""
        self._ended = self._ended or reason
        self._reap_by = self._clock() + REAP_WAIT_S
        # A zygote that has not forked yet may still do so until it is replaced.
        if self._pid is not None:
            self._kill(self._pid)

    @staticmethod
    def _kill(pid: int) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def _nothing() -> bool:
    return False


def _before_its_start(ended: CellEnded) -> CellEnded:
    """Return the same end in words that fit where no user code had begun."""
    if isinstance(ended, CellInterrupted):
        return CellInterrupted("it had not begun")
    if isinstance(ended, CellTimeout):
        return CellTimeout("the time was over before the cell could begin")
    return ended
