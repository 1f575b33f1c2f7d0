"""Control objects of a running invocation: today, the request to interrupt it."""

from __future__ import annotations

import hmac
import logging
import os
import threading
from types import TracebackType

from lambda_kernel.serving.errors import ObjectNotFound, StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool

logger = logging.getLogger(__name__)

POLL_S = 0.5
INTERRUPT = "interrupt"


class InterruptWatch:
    """Polls for the interrupt object while a cell runs; its descriptor becomes readable then.

    The first poll comes after ``poll_s``: a short cell costs no request.
    """

    def __init__(
        self, store: ObjectStore, bucket: str, key: str, token: bytes, poll_s: float = POLL_S
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._key = key
        self._token = token
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
            if self._is_there():
                with self._lock:
                    if self._descriptor >= 0:
                        os.eventfd_write(self._descriptor, 1)
                return

    def _is_there(self) -> bool:
        try:
            found = self._store.get(self._bucket, self._key)
        except ObjectNotFound:
            return False
        except StorageUnavailable:
            logger.warning("the interrupt object cannot be polled")
            return False
        if not hmac.compare_digest(found, self._token):
            logger.warning("an interrupt object is not authentic")
            return False
        try:
            self._store.delete(self._bucket, self._key)
        except StorageUnavailable:
            logger.warning("the interrupt object cannot be deleted")
        return True
