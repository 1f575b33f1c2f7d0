"""One invocation on its way down the line: what each step made, and what the client is told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol, cast

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, CommittedFile, Namespace
from lambda_kernel.contract.frames import FrameKind, FrameWriter
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.serving.child_messages import CellEnd, ChildMessage
from lambda_kernel.serving.connectors import ConnectorValues
from lambda_kernel.serving.homes import SavedHome
from lambda_kernel.serving.kept_output import KeptOutput
from lambda_kernel.serving.manifest import Changes
from lambda_kernel.serving.masking import Masker
from lambda_kernel.serving.mirror import Mirrored, MirrorPlan
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.runtime_api import Event
from lambda_kernel.serving.session_objects import SessionObjects
from lambda_kernel.serving.snapshots import Saved
from lambda_kernel.serving.storing import Stored
from lambda_kernel.serving.witnessing import Inputs, witness_of

if TYPE_CHECKING:
    from lambda_kernel.serving.container import Container


class ByteStream(Protocol):
    """Where frames go."""

    def send(self, chunk: bytes) -> None:
        """Send ``chunk`` now."""


@dataclass(slots=True, kw_only=True)
class Cell:
    """One invocation on its way down the line; each step fills in what it made.

    Attributes:
        container: what outlives it.
        invocation: what is asked.
        event: how Lambda handed it over.
        begun: when it began, on the clock.
        deadline: when user code is interrupted, on the clock.
        writer: numbers and authenticates frames.
        key: of this invocation's frames and control objects.
        response: where they go.
        plan: what the working directory mirrors.
        output: what the client sees.
        started: whether user code began.
        begun_ms: when it began, Unix time.
        credentials_expire: of this invocation; ISO 8601.
        has_inputs: the working directory is as the cell is to find it.
        inputs: what is in it, once that was asked.
        home_head: digest of the HOME that was brought in.
        files: what the commit names, where it is one.
        answered: whether its reply was sent before its process ended.
        ran: whether a child was asked for, and so something must be swept.
        parent: the commit it starts from.
        mirrored, home, session: what was brought in.
        snapshot_out, end: what the child left and said.
        connectors, masker: the cell's connector values, and what keeps them out of its output.
        changes: what it did to files, where that is known already.
        stored, saved_home, saved: what was stored, not committed yet: files, HOME, variables.
        announced: whether what it deletes was noted for the next cell.
        commit: the stored bytes of that commit, before it is one.
        head: the commit, where there is one.
        tainted: something of the cell could not be removed.
        spent: the container's own credentials have run out: it must end.
        message: for people, of a cell that did commit.
    """

    container: Container
    invocation: Invocation
    event: Event
    begun: float
    deadline: float
    writer: FrameWriter
    key: bytes
    response: ByteStream
    plan: MirrorPlan
    output: Output = field(init=False)
    started: bool = False
    begun_ms: int = 0
    credentials_expire: str | None = None
    has_inputs: bool = False
    inputs: Inputs | None = None
    home_head: str | None = None
    files: tuple[CommittedFile, ...] = ()
    answered: bool = False
    ran: bool = False
    parent: Commit | None = None
    home: str = ""
    mirrored: Mirrored = field(default_factory=Mirrored)
    session: SessionObjects | None = None
    snapshot_out: int = -1
    end: CellEnd | None = None
    connectors: ConnectorValues = field(default_factory=ConnectorValues)
    masker: Masker = field(default_factory=lambda: Masker({}))
    changes: Changes | None = None
    stored: Stored = field(default_factory=Stored)
    saved_home: SavedHome | None = None
    saved: Saved | None = None
    commit: bytes = b""
    head: Head | None = None
    announced: bool = False
    tainted: bool = False
    spent: bool = False
    message: str = ""
    timings_ms: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0

    def __post_init__(self) -> None:
        limits = self.invocation.limits
        if self.invocation.commit:
            self.output = Output(self.send_message, limits.output_bytes, self._kept_output())
        else:
            self.output = Output(_unheard, limits.output_bytes)

    @property
    def namespace(self) -> Namespace:
        """The variables that the cell starts from."""
        return Namespace() if self.parent is None else self.parent.namespace

    def use_connectors(self, values: ConnectorValues) -> None:
        """Give the child these values, and keep them out of what it prints."""
        self.connectors = values
        if self.container.settings.mask_connectors:
            self.masker = Masker(values.variables)
            self.output.mask(self.masker)

    def send_message(self, message: ChildMessage) -> None:
        """Send a message of the cell to the client, now."""
        self._send(FrameKind.MESSAGE, message)

    def send_reply(self, message: ChildMessage) -> None:
        """Send the cell's reply: nothing of the cell follows."""
        self._send(FrameKind.REPLY, message)

    def send_answer(self, message: ChildMessage) -> None:
        """Send the reply to a request that stores nothing; who asked need not wait for the rest."""
        self.answered = True
        self.send_reply(message if self.masker.is_idle else message.masked(self.masker))

    def send_started(self) -> None:
        """Tell that user code begins."""
        self.started = True
        self.response.send(self.writer.write(FrameKind.STARTED, {}))

    def _kept_output(self) -> KeptOutput | None:
        container, invocation = self.container, self.invocation
        max_bytes = container.settings.kept_output_bytes
        if not max_bytes or invocation.kind != "execute":
            return None
        kernel_id, seq = invocation.kernel_id, invocation.seq
        key = keys.output_key(invocation.scope, kernel_id, seq)

        def upload(file: IO[bytes], size_bytes: int) -> None:
            state = container.settings.stack.state
            container.store.put(state, key, cast("BinaryIO", file), size_bytes=size_bytes)

        address = f"/api/kernels/{kernel_id}/outputs/{seq}"
        return KeptOutput(container.cache.folder, max_bytes, address, upload)

    def _send(self, kind: FrameKind, message: ChildMessage) -> None:
        self.response.send(self.writer.write(kind, message.to_dict(), message.buffers))

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        begun = self.container.clock()
        try:
            yield
        finally:
            took_ms = (self.container.clock() - begun) * 1000
            self.timings_ms[name] = round(self.timings_ms.get(name, 0.0) + took_ms, 2)

    def outcome(self, status: Status, message: str = "") -> Outcome:
        """Return the outcome as of now."""
        end, container = self.end, self.container
        scope, saved = self.invocation.scope, self.saved_home
        home_head = saved.digest if saved is not None else container.homes.saved_digest(scope)
        return Outcome(
            status=status,
            started=self.started,
            committed=self.head is not None,
            head=self.head,
            message=self.masker.text(message),
            files=tuple(self.stored.changes),
            home_head=home_head if scope.home_is_kept else None,
            lost=end.snapshot.lost if end is not None and end.snapshot is not None else (),
            probe=container.probe,
            timings_ms=dict(self.timings_ms),
            aws_calls=container.count.total,
            aws_sequential=container.count.chain,
            tainted=self.tainted,
            container_id=container.settings.container_id,
            aws_request_id=self.event.aws_request_id,
            peak_memory_bytes=self.peak_memory_bytes,
            fetched_bytes=0 if self.session is None else self.session.fetched_bytes,
            stored_bytes=0 if self.saved is None else self.saved.stored_bytes,
            witness=witness_of(self),
            nonce=self.invocation.nonce,
        )

    @property
    def reply_status(self) -> Status:
        """The status that the reply of the cell means."""
        content = self.end.reply.content if self.end is not None else {}
        return Status.OK if content.get("status", "ok") == "ok" else Status.ERROR


def _unheard(message: ChildMessage) -> None:
    """Drop what is said while a question is answered: it is no output of a cell."""
