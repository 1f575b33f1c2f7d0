"""A child that was forked ahead, as the zygote holds it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass

from lambda_kernel.child.confined import Confined
from lambda_kernel.contract.cell_protocol import PendingRequest

TAKEN = b"taken"
"""What it answers when it has its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandBy:
    """A child that was forked ahead.

    Attributes:
        pid: its own, or that of the first process of its namespaces.
        channel: where it takes its request from.
        confined: its namespaces, where it has some.
    """

    pid: int
    channel: socket.socket
    confined: Confined | None = None

    def hand_over(self, pending: PendingRequest, timeout_s: float) -> bool:
        """Make it the child of a request; False, and dead, where it does not answer in time."""
        with self.channel as sock:
            sock.settimeout(timeout_s)
            with suppress(OSError):
                pending.forward(sock)
                if sock.recv(len(TAKEN)) == TAKEN:
                    return True
        # It was killed or stopped meanwhile; it may not wake up with the request in its hands.
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.close()
        return False

    def close(self) -> None:
        """Close what connects it with the zygote."""
        self.channel.close()
        if self.confined is not None:
            self.confined.notes.close()
