"""Running one cell: ask a zygote for a child, pump what it says, end it at its limits."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from lambda_kernel.contract import cell_protocol, zygote_answers
from lambda_kernel.contract.cell_protocol import CellDescriptors, CellRequest
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.zygote_answers import Exited, Forked, Refused
from lambda_kernel.isolation import shared_memory
from lambda_kernel.serving import child_messages, sampling, sweep
from lambda_kernel.serving.cell_ends import before_its_start, how_it_died
from lambda_kernel.serving.child_frames import READ_BYTES, ChildFrames
from lambda_kernel.serving.child_messages import CellEnd, ChildMessage
from lambda_kernel.serving.control import Answer
from lambda_kernel.serving.errors import (
    CellEnded,
    CellInterrupted,
    CellOutOfMemory,
    CellProcessDied,
    CellTimeout,
)
from lambda_kernel.serving.limits import CellLimitsInForce
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.paging import Pager
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import Zygote

logger = logging.getLogger(__name__)

SAMPLE_S = 0.05
GATHER_S = 0.02
"""For stream text that follows what was sent: many small writes are few messages."""

REAP_WAIT_S = 0.5
"""For the zygote to report a child that is dead; then it is woken, in case a cell stopped it."""
INTERRUPT_GRACE_S = 10.0
"""For a cell that was interrupted to end and to store its variables."""
DRAIN_READS = 1024


class ZygoteGone(Exception):
    """The zygote ended before the cell had begun: nothing of the user has run."""


class CellRun:
    """One cell from request to exit; used once.

    Attributes:
        peak_memory_bytes: sampled.
    """

    def __init__(
        self,
        zygote: Zygote,
        sweeper: Sweeper,
        output: Output,
        limits: CellLimitsInForce,
        on_started: Callable[[], None],
        on_answer: Callable[[ChildMessage], None],
        pager: Pager | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._zygote = zygote
        self._sweeper = sweeper
        self._output = output
        self._limits = limits
        self._pager = pager
        self._clock = clock
        self._poll = select.poll()
        # One read per turn of the loop: a flood starves neither another reader nor the clock.
        self._readers: dict[int, Callable[[], bool]] = {}
        self._outputs: set[int] = set()
        self._child = ChildFrames(output, limits.orders, on_started, on_answer)
        self._pid: int | None = None
        self._status: int | None = None
        self._gone = False
        self._ended: CellEnded | None = None
        self._asked: CellEnded | None = None
        self._ends_by = limits.deadline
        self._reap_by: float | None = None
        self._fork_by = 0.0
        self._woken = False
        self._flush_by = 0.0
        self._has_questions = True
        self.peak_memory_bytes = 0

    def run(self, request: CellRequest, snapshot_in: int, snapshot_out: int) -> CellEnd:
        """Run ``request`` and return how it ended.

        Raises:
            CellEnded: it did not reply, was ended at a limit, or left no usable snapshot.
            ZygoteGone: nothing has begun; another zygote may be tried.
        """
        self._child.kind = request.kind
        opened = self._send(request, snapshot_in, snapshot_out)
        try:
            self._pump()
            # User code begins only after its process could say so here: from now on it cannot, and
            # whether it did stands in what has come.
            self._child.shut()
            self._drain()
        finally:
            for descriptor in opened:
                os.close(descriptor)
            self._child.close()
            if self._pager is not None:
                self._pager.close()
        return self._result()

    def _send(self, request: CellRequest, snapshot_in: int, snapshot_out: int) -> list[int]:
        stdout, stdout_end = os.pipe2(os.O_CLOEXEC)
        stderr, stderr_end = os.pipe2(os.O_CLOEXEC)
        descriptors = CellDescriptors(
            frames=self._child.detach_child_end(),
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
        for descriptor in (stdout, stderr):
            os.set_blocking(descriptor, False)
        self._watch(self._zygote.channel.fileno(), self._read_zygote)
        self._watch(self._child.fileno(), self._read_frames)
        self._watch(stdout, lambda: self._read_pipe(stdout, "stdout"))
        self._watch(stderr, lambda: self._read_pipe(stderr, "stderr"))
        self._outputs = {self._child.fileno(), stdout, stderr}
        self._watch(self._limits.orders.fileno(), self._ordered)
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
    def started(self) -> bool:
        """Whether user code may have run."""
        return self._child.started

    def _pump(self) -> None:
        next_sample = self._clock() + SAMPLE_S
        self._fork_by = self._clock() + self._limits.fork_wait_s
        while self._status is None and not self._gone:
            now = self._clock()
            ends = self._ends_by
            if self._reap_by is not None:
                ends = self._reap_by + (self._limits.reap_patience_s if self._woken else 0.0)
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
            replies = self._child.reply is not None and not self.peak_memory_bytes
            if now >= next_sample or replies:
                self._sample()
                next_sample = now + SAMPLE_S
            self._check_time(now)

    def _check_time(self, now: float) -> None:
        if self._reap_by is not None:
            if now >= self._reap_by + self._limits.reap_patience_s:
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
        child = self._child
        ended = self._ended or child.failure
        if self._gone and not child.started and ended is None:
            raise ZygoteGone
        if ended is None and not child.is_complete:
            # It died of the interrupt.
            ended = self._asked
        if ended is not None:
            raise ended if child.started else before_its_start(ended)
        if child.reply is None or not child.is_complete:
            missing = "it replied" if child.reply is None else "its variables were saved"
            death = how_it_died(self._status)
            raise CellProcessDied(f"the cell's process ended before {missing}: {death}")
        return CellEnd(reply=child.reply, snapshot=child.snapshot)

    def _watch(self, descriptor: int, reader: Callable[[], bool]) -> None:
        self._readers[descriptor] = reader
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        if self._readers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _read_zygote(self) -> bool:
        try:
            datagram = self._zygote.channel.recv(cell_protocol.DATAGRAM_BYTES)
            answer = zygote_answers.decode_answer(datagram)
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
        # What programs wrote before a message was sent is in their pipes by now, and comes first.
        for descriptor in self._outputs - {self._child.fileno()}:
            self._readers.get(descriptor, _nothing)()
        try:
            return self._child.read(self._explained)
        except EOFError:
            self._unwatch(self._child.fileno())
            if self._child.is_complete and self._reap_by is None:
                self._reap_by = self._clock() + REAP_WAIT_S
            return False
        except CellProcessDied as garbage:
            self._unwatch(self._child.fileno())
            self._end(garbage)
            return True

    def _explained(self, data: dict[str, Any]) -> dict[str, Any]:
        """Name the time limit where that is why the user's code was interrupted."""
        if not isinstance(self._asked, CellTimeout):
            return data
        return child_messages.timed_out(data, str(self._asked))

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

    def _ordered(self) -> bool:
        for order in self._limits.orders.take():
            if isinstance(order, Answer):
                self._child.answer(order)
            elif not order.kill:
                grace_ends = self._clock() + INTERRUPT_GRACE_S
                reason = (
                    "it was interrupted and did not end within "
                    f"{INTERRUPT_GRACE_S:g} s: its process was killed"
                )
                self._ask(CellInterrupted(reason), min(grace_ends, self._limits.kill_by))
            elif isinstance(self._asked, CellInterrupted):
                reason = "it went on after an interrupt: the second one killed its process"
                self._end(CellInterrupted(reason))
            else:
                self._end(CellInterrupted("its process was killed"))
        return True

    def _sample(self) -> None:
        if self._pid is None or self._reap_by is not None:
            return
        if not sweep.is_alive(self._pid):
            self._reap_by = self._clock() + REAP_WAIT_S
            return
        zygote = sampling.read(self._zygote.pid)
        cell = [m for pid in self._sweeper.strangers() if (m := sampling.read(pid)) is not None]
        stored = shared_memory.stored_bytes(self._child.gauges)
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
        self._ended = self._ended or self._child.failure or reason
        self._reap_by = self._clock() + REAP_WAIT_S
        # A zygote that has not forked yet may still do so until it is replaced.
        if self._pid is not None:
            self._kill(self._pid)
        elif self._child.kind not in cell_protocol.STORING_KINDS:
            # Nobody waits for this: what the zygote does is worth more than an early end.
            self._reap_by = max(self._reap_by, self._fork_by)

    @staticmethod
    def _kill(pid: int) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def _nothing() -> bool:
    return False
