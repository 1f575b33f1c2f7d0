"""What is believed of the control objects of an invocation, while its cell runs."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator

import pytest

from lambda_kernel.contract import control
from lambda_kernel.contract.keys import Stack
from lambda_kernel.serving.control import Answer, ControlWatch, Interrupt, Order
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.parallel import CallCount, Pool

BUCKET = Stack().overflow
REQUEST = "a" * 32
KEY = b"k" * 32
WAIT_MS = 20_000


class Watched:
    """A watch that polls without pause, and the bucket it looks into."""

    def __init__(self, pool: Pool) -> None:
        self.store = MemoryObjectStore()
        self.watch = ControlWatch(
            self.store, BUCKET, REQUEST, KEY, poll_s=0.0005, asked_poll_s=0.0005
        ).start(pool)

    def put(self, name: str, sealed: bytes) -> None:
        self.store.put(BUCKET, control.control_key(REQUEST, name), sealed)

    def tell(self, name: str, **data: str) -> None:
        self.put(name, control.seal(KEY, REQUEST, name, data))

    def polled(self) -> None:
        """Return once every object that is there now was looked at."""
        seen = threading.Semaphore(0)
        self.store.refuse = lambda operation, key: seen.release()
        for _ in range(6):
            assert seen.acquire(timeout=WAIT_MS / 1000)
        self.store.refuse = lambda operation, key: None

    def orders(self) -> list[Order]:
        poll = select.poll()
        poll.register(self.watch.orders.fileno(), select.POLLIN)
        assert poll.poll(WAIT_MS), "no order came"
        return self.watch.orders.take()


@pytest.fixture
def watched() -> Iterator[Watched]:
    pool = Pool(CallCount(), threads=2)
    made = Watched(pool)
    with made.watch:
        yield made
    pool.close()


def test_an_interrupt_comes_once_and_the_second_order_kills(watched: Watched) -> None:
    watched.tell("interrupt", order="interrupt")
    assert watched.orders() == [Interrupt(kill=False)]
    watched.polled()
    watched.tell("interrupt", order="kill")
    assert watched.orders() == [Interrupt(kill=True)]


def test_an_answer_is_looked_for_only_while_its_question_is_open_and_deleted_once_read(
    watched: Watched,
) -> None:
    watched.tell("input-1", value="early")
    watched.polled()
    assert ("get", control.control_key(REQUEST, "input-1")) not in watched.store.calls
    watched.watch.orders.question = 1
    assert watched.orders() == [Answer(number=1, value="early")]
    watched.polled()
    assert watched.store.keys(BUCKET) == []
    assert watched.watch.orders.question == 0


FORGERIES: dict[str, Callable[[], bytes]] = {
    "garbage": lambda: b"x" * 300,
    "empty": lambda: b"",
    "plain": lambda: b'{"value": "yes"}',
    "another key": lambda: control.seal(b"x" * 32, REQUEST, "input-2", {"value": "no"}),
    "another request": lambda: control.seal(KEY, "b" * 32, "input-2", {"value": "no"}),
    "the answer before": lambda: control.seal(KEY, REQUEST, "input-1", {"value": "no"}),
    "an interrupt": lambda: control.seal(KEY, REQUEST, "interrupt", {"order": "kill"}),
    "no text": lambda: control.seal(KEY, REQUEST, "input-2", {"value": 3}),
    "nothing": lambda: control.seal(KEY, REQUEST, "input-2", {}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_or_replayed_answer_is_ignored_and_the_right_one_still_counts(
    watched: Watched, forgery: str
) -> None:
    watched.watch.orders.question = 2
    watched.put("input-2", FORGERIES[forgery]())
    watched.polled()
    watched.tell("input-2", value="yes")
    assert watched.orders() == [Answer(number=2, value="yes")]


def test_a_forged_interrupt_is_ignored_and_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.put("interrupt", control.seal(KEY, REQUEST, "input-1", {"order": "kill"}))
    watched.polled()
    watched.tell("interrupt", order="interrupt")
    assert watched.orders() == [Interrupt(kill=False)]
    assert caplog.text.count("a control object is ignored") == 1


def test_storage_that_does_not_answer_for_a_while_stops_nothing(watched: Watched) -> None:
    refused = threading.Semaphore(0)

    def refuse(operation: str, key: str) -> None:
        refused.release()
        raise StorageUnavailable("down")

    watched.store.refuse = refuse
    assert refused.acquire(timeout=WAIT_MS / 1000)
    watched.store.refuse = lambda operation, key: None
    watched.tell("interrupt", order="interrupt")
    assert watched.orders() == [Interrupt(kill=False)]
