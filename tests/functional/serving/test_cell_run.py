"""One cell's run where the zygote is late: nothing is said to have begun that has not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from lambda_kernel.contract.cell_protocol import (
    CellRequest,
    ChildKind,
    PendingRequest,
    receive_request,
)
from lambda_kernel.contract.frames import length_prefixed, pack_parts
from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.zygote_answers import Exited, Forked, encode_answer
from lambda_kernel.serving.cells import REAP_WAIT_S, CellRun, ZygoteGone
from lambda_kernel.serving.control import Interrupt, Orders
from lambda_kernel.serving.errors import CellEnded, CellInterrupted, CellTimeout
from lambda_kernel.serving.limits import REAP_PATIENCE_S, CellLimitsInForce
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.standing import Standing
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import Zygote

BEGIN_S = -10.0
LATER_S = BEGIN_S + REAP_WAIT_S + REAP_PATIENCE_S + 1.0
"""When a zygote that took no cell has been given up."""


@dataclass
class Late:
    """A zygote that the test plays, and a run that has been interrupted before it begins.

    Attributes:
        later: set at `LATER_S`.
    """

    theirs: socket.socket
    run: CellRun
    begun: list[bool]
    snapshot: int
    orders: Orders
    later: threading.Event

    def go(self, kind: Literal["execute", "complete"] = "execute") -> Exception:
        request = CellRequest(
            kind=kind,
            msg=CellMessage(header={"msg_id": "m"}, content={"code": "1"}),
            execution_count=1,
            workdir="/tmp",
            home="/tmp",
        )
        with pytest.raises((CellEnded, ZygoteGone)) as ended:
            self.run.run(request, self.snapshot, self.snapshot)
        return ended.value


@pytest.fixture
def late(request: pytest.FixtureRequest) -> Iterator[Late]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    orders = Orders()
    is_interrupted = getattr(request, "param", True)
    if is_interrupted:
        orders.put(Interrupt(kill=False))
    snapshot = os.memfd_create("snapshot")
    limits = CellLimitsInForce(
        deadline=0.0,
        kill_by=0.0,
        timeout_s=5.0,
        memory_bytes=2**30,
        orders=orders,
        fork_wait_s=20.0 if is_interrupted else 1000.0,
    )
    begun: list[bool] = []
    ticks = iter(range(int(BEGIN_S * 100), 10**9))
    later = threading.Event()

    def clock() -> float:
        # Its own time: nothing is waited for.
        now_s = next(ticks) / 100
        if now_s > LATER_S:
            later.set()
        return now_s

    run = CellRun(
        Zygote(pid=os.getpid(), channel=ours, standing=Standing.of(os.getpid())),
        Sweeper(own=[], places={}, visible=list),
        Output(lambda message: None, 1000),
        limits,
        lambda: begun.append(True),
        lambda reply: None,
        clock=clock,
    )
    yield Late(theirs, run, begun, snapshot, orders, later)
    orders.close()
    os.close(snapshot)
    ours.close()
    theirs.close()


def test_an_interrupt_before_the_fork_says_that_nothing_began(late: Late) -> None:
    ended = late.go()
    assert isinstance(ended, CellInterrupted)
    assert "had not begun" in str(ended)
    assert late.begun == []
    assert late.run.started is False
    assert late.run.zygote_lost, "it may fork yet: another one takes its place"


@pytest.mark.parametrize("late", [False], indirect=True)
def test_a_deadline_before_the_fork_says_that_nothing_began(late: Late) -> None:
    ended = late.go()
    assert isinstance(ended, CellTimeout)
    assert "before the cell could begin" in str(ended)
    assert late.run.started is False


def test_a_child_of_a_late_zygote_cannot_begin_any_more(late: Late) -> None:
    late.go()
    with _child_end(late) as child, pytest.raises(BrokenPipeError):
        child.sendall(b"user code begins")


@pytest.mark.parametrize("late", [False], indirect=True)
def test_what_had_begun_when_the_interrupt_came_is_said_to_have_begun(late: Late) -> None:
    def begin_and_interrupt() -> None:
        with _child_end(late) as child:
            child.sendall(length_prefixed(pack_parts({"kind": ChildKind.STARTED.value})))
            late.orders.put(Interrupt(kill=False))

    zygote = threading.Thread(target=begin_and_interrupt)
    zygote.start()
    ended = late.go()
    zygote.join()
    assert isinstance(ended, CellInterrupted)
    assert "killed" in str(ended)
    assert late.begun == [True]


@pytest.mark.parametrize(("kind", "is_lost"), [("execute", True), ("complete", False)])
def test_a_zygote_that_is_busy_is_not_given_up_for_a_question(
    late: Late, kind: Literal["execute", "complete"], is_lost: bool
) -> None:
    def fork_late() -> None:
        pending = receive_request(late.theirs)
        assert isinstance(pending, PendingRequest)
        pending.close()
        late.later.wait()
        for answer in (Forked(forked=2**30), Exited(exited=2**30, status=9)):
            late.theirs.send(encode_answer(answer))

    zygote = threading.Thread(target=fork_late)
    zygote.start()
    ended = late.go(kind)
    late.later.set()
    zygote.join()
    assert isinstance(ended, CellInterrupted)
    assert late.run.zygote_lost is is_lost


def _child_end(late: Late) -> socket.socket:
    pending = receive_request(late.theirs)
    assert isinstance(pending, PendingRequest)
    child = socket.socket(fileno=os.dup(pending.descriptors.frames))
    pending.close()
    return child
