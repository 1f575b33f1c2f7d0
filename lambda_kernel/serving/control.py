"""Control objects of a running invocation: today, the request to interrupt it."""

from __future__ import annotations

import hmac
import logging
import os
import threading
from dataclasses import dataclass
from types import TracebackType

from lambda_kernel.serving.errors import ObjectNotFound, StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool

logger = logging.getLogger(__name__)

POLL_S = 0.5
INTERRUPT = "interrupt"
KILL = "kill"
_ASK = 1
_KILL = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptTokens:
    """What the interrupt object must hold to be believed.

    Attributes:
        interrupt: the user's code is interrupted, and commits.
        kill: the cell's processes are killed.
    """

    interrupt: bytes
    kill: bytes


def is_order_to_kill(descriptor: int) -> bool:
    """Return what a watch's descriptor that is readable says."""
    return os.eventfd_read(descriptor) >= _KILL


class InterruptWatch:
    """Polls for the interrupt object while a cell runs; its descriptor becomes readable then.

    The object is written again to have the cell killed. It is not deleted before: that could be
    the second order, not the first.

    The first poll comes after ``poll_s``: a short cell costs no request.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        key: str,
        tokens: InterruptTokens,
        poll_s: float = POLL_S,
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._key = key
        self._tokens = tokens
        self._was_asked = False
        self._poll_s = poll_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._descriptor = -1

    def start(self, pool: Pool) -> InterruptWatch:
        """Begin to poll in a thread of ``pool``."""
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        pool.start(self._poll)
        return self

    def fileno(self) -> int:
        """Return the descriptor that becomes readable by an interrupt."""
        return self._descriptor

    def __enter__(self) -> InterruptWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1

    def _poll(self) -> None:
        while not self._stop.wait(self._poll_s):
            found = self._found()
            if found is None:
                continue
            is_kill = hmac.compare_digest(found, self._tokens.kill)
            if not is_kill and not hmac.compare_digest(found, self._tokens.interrupt):
                logger.warning("an interrupt object is not authentic")
                continue
            if is_kill or not self._was_asked:
                self._tell(_KILL if is_kill else _ASK)
            self._was_asked = True
            if is_kill:
                self._delete()
                return

    def _tell(self, order: int) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, order)

    def _found(self) -> bytes | None:
        try:
            return self._store.get(self._bucket, self._key)
        except ObjectNotFound:
            return None
        except StorageUnavailable:
            logger.warning("the interrupt object cannot be polled")
            return None

    def _delete(self) -> None:
        try:
            self._store.delete(self._bucket, self._key)
        except StorageUnavailable:
            logger.warning("the interrupt object cannot be deleted")
