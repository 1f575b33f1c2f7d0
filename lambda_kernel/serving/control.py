"""What the gateway orders while a cell runs, polled from the invocation's control objects."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lambda_kernel.contract import control
from lambda_kernel.contract.control import BadControl
from lambda_kernel.serving.errors import ObjectNotFound, StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool

logger = logging.getLogger(__name__)

POLL_S = 0.2
"""18,000 requests per hour of a running cell at most."""

ASKED_POLL_S = 0.1
"""While the cell waits for an answer; there are two objects to look for then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Interrupt the user's code; or kill its processes."""

    kill: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the user answered to question ``number`` of the cell."""

    number: int
    value: str


Order = Interrupt | Answer


class Orders:
    """Orders on their way from the thread that polls to the cell's loop.

    Attributes:
        question: the number of the question that waits for an answer; 0 = none does.
    """

    def __init__(self) -> None:
        self.question = 0
        self._lock = threading.Lock()
        self._orders: deque[Order] = deque()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor that is readable while there are orders."""
        return self._descriptor

    def put(self, order: Order) -> None:
        """Add an order."""
        with self._lock:
            if self._descriptor >= 0:
                self._orders.append(order)
                os.eventfd_write(self._descriptor, 1)

    def take(self) -> list[Order]:
        """Return the orders that came, and forget them."""
        with self._lock:
            os.eventfd_read(self._descriptor)
            orders = list(self._orders)
            self._orders.clear()
            return orders

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1


class ControlWatch:
    """Polls for control objects while a cell runs.

    The interrupt object is written again to have the cell killed. It is not deleted before: that
    could be the second order, not the first. Answers are deleted once they are read.

    The first poll comes after ``poll_s``: a short cell costs no request.

    Attributes:
        orders: what came.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        request_id: str,
        key: bytes,
        poll_s: float = POLL_S,
        asked_poll_s: float = ASKED_POLL_S,
    ) -> None:
        self.orders = Orders()
        self._store = store
        self._bucket = bucket
        self._request_id = request_id
        self._key = key
        self._poll_s = poll_s
        self._asked_poll_s = asked_poll_s
        self._stop = threading.Event()
        self._was_asked = False
        self._refused = b""

    def start(self, pool: Pool) -> ControlWatch:
        """Begin to poll in a thread of ``pool``."""
        pool.start(self._poll)
        return self

    def __enter__(self) -> ControlWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.orders.close()

    def _poll(self) -> None:
        while not self._stop.wait(self._asked_poll_s if self.orders.question else self._poll_s):
            if self._look_for_interrupt():
                return
            question = self.orders.question
            if question:
                self._look_for_answer(question)

    def _look_for_interrupt(self) -> bool:
        """Pass on an interrupt; return whether there can be no other order after it."""
        data = self._found(control.INTERRUPT)
        if data is None:
            return False
        is_kill = data.get("order") == control.KILL
        if is_kill or not self._was_asked:
            self.orders.put(Interrupt(kill=is_kill))
        self._was_asked = True
        if is_kill:
            self._delete(control.INTERRUPT)
        return is_kill

    def _look_for_answer(self, number: int) -> None:
        name = control.input_name(number)
        data = self._found(name)
        value = None if data is None else data.get("value")
        if not isinstance(value, str):
            return
        if self.orders.question == number:
            self.orders.question = 0
        self.orders.put(Answer(number=number, value=value))
        self._delete(name)

    def _found(self, name: str) -> dict[str, Any] | None:
        place = control.control_key(self._request_id, name)
        try:
            sealed = self._store.get(self._bucket, place)
        except ObjectNotFound:
            return None
        except StorageUnavailable:
            logger.warning("a control object cannot be polled")
            return None
        try:
            return control.unseal(self._key, self._request_id, name, sealed)
        except BadControl as problem:
            # It stays there and is found again and again: one word is enough.
            if sealed != self._refused:
                logger.warning("a control object is ignored", extra={"reason": str(problem)})
            self._refused = sealed
            return None

    def _delete(self, name: str) -> None:
        try:
            self._store.delete(self._bucket, control.control_key(self._request_id, name))
        except StorageUnavailable:
            logger.warning("a control object cannot be deleted")
