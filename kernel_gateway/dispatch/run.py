"""One cell from its invocation to its settled end: sent at most once, never waited for for ever."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from kernel_gateway.dispatch.failures import CellRefused, Trouble
from kernel_gateway.dispatch.function_codes import FunctionCodes
from kernel_gateway.dispatch.gate import ConcurrencyGate, Ticket, Withdrawn
from kernel_gateway.dispatch.invoker import Invoker
from kernel_gateway.dispatch.overflow import payload_of
from kernel_gateway.dispatch.settle import (
    Attempt,
    CommitPoint,
    Heard,
    Settled,
    attached_to,
    matching_stored,
    settle_left,
    settle_outcome,
    settle_silence,
)
from kernel_gateway.errors import (
    CELL_INTERRUPTED,
    STORAGE_UNAVAILABLE,
    ForgedStream,
    GatewayError,
    InvokeBroken,
    InvokeError,
    InvokeNotSent,
    InvokeRefused,
    InvokeThrottled,
    LeaseLost,
    NotFound,
    Started,
    StartError,
    StorageError,
)
from kernel_gateway.function_code import FunctionCode
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import control, keys
from lambda_kernel.contract.frames import (
    BadFrame,
    Frame,
    FrameKind,
    FrameReader,
    invocation_key,
)
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.outcome import Outcome
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

TURN_S = 0.002


async def always() -> bool:
    """Return True: for what nobody else can take over."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """How cells are sent.

    Attributes:
        max_concurrency: how many cells of one function may be in flight.
        max_wait_s: how long a cell waits for a free container before it is given up.
        max_request_bytes: a larger request is refused.
        slack_s: what an invocation may take on top of the function's timeout.
        drain_s: how long the response may stay open after its last frame.
        connect_pauses_s: between attempts to reach Lambda at all.
        claim_pauses_s: between attempts to find out whether a cell without outcome committed.
    """

    max_concurrency: int = 200
    max_wait_s: float = 300.0
    max_request_bytes: int = 64 * 1024 * 1024
    slack_s: float = 60.0
    drain_s: float = 5.0
    connect_pauses_s: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0)
    claim_pauses_s: tuple[float, ...] = (0.2, 1.0, 3.0, 10.0)


@dataclass(slots=True, eq=False)
class Flight:
    """One cell on its way, for whoever wants to interrupt it.

    Attributes:
        invocation: what was asked.
        ticket: its place in line.
        on_wait: called with the number of cells ahead, where no container is free for long.
        may_wait: False for what is sent at once, to a container that no cell needs, or not at all.
        may_start: asked right before it is sent; False = another gateway has its kernel.
        sent: the request may have reached Lambda.
        overflowed: the request stands in the overflow bucket.
        interrupted: a control object was put.
        answered: the number of the newest question of the cell that was answered; 0 = none was.
        function_name, version: what executes it; "" where Lambda did not say.
    """

    invocation: Invocation
    ticket: Ticket = field(default_factory=Ticket)
    on_wait: Callable[[int], object] = lambda ahead: None
    may_wait: bool = True
    may_start: Callable[[], Awaitable[bool]] = always
    sent: bool = False
    overflowed: bool = False
    interrupted: bool = False
    answered: int = 0
    function_name: str = ""
    version: str = ""


class Dispatcher:
    """Sends cells to functions and settles what became of them; `open` comes first."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        invoker: Invoker,
        stack: keys.Stack,
        handler_digest: str,
        settings: DispatchSettings,
    ) -> None:
        self._store = store
        self._invoker = invoker
        self.handler_digest = handler_digest
        self._frame_key = b""
        self._point = CommitPoint(store=store, bucket=stack.state, pauses_s=settings.claim_pauses_s)
        self._overflow_bucket = stack.overflow
        self._settings = settings
        self._gates: dict[str, ConcurrencyGate] = {}
        self._codes = FunctionCodes(invoker)

    async def open(self) -> None:
        """Read the key of the frames, which stands beside the staged handler.

        Raises:
            StartError: there is none.
            StorageError: S3 does not answer.
        """
        key = keys.frame_key_key(self.handler_digest)
        try:
            self._frame_key = (await self._store.get(self._overflow_bucket, key)).body
        except NotFound as missing:
            raise StartError(
                f"bucket {self._overflow_bucket} has no {key}: the handler is not staged, or was "
                "staged by another version; stage it again"
            ) from missing

    def gate(self, function_name: str) -> ConcurrencyGate:
        """Return the gate of a function: its limit, and how many run and wait."""
        gate = self._gates.get(function_name)
        if gate is None:
            settings = self._settings
            gate = ConcurrencyGate(ceiling=settings.max_concurrency, max_wait_s=settings.max_wait_s)
            self._gates[function_name] = gate
        return gate

    async def run_cell(
        self, flight: Flight, function_name: str
    ) -> AsyncGenerator[Frame | Settled, None]:
        """Yield the authentic frames of a cell but its outcome, then one Settled.

        After the Settled, going on with the iteration waits until Lambda is done with the
        invocation, so that the container it used is free.

        Args:
            flight: the cell; may be interrupted meanwhile.
            function_name: which function.

        Raises:
            CellRefused: PayloadTooLarge, or StorageUnavailable; nothing started.
        """
        invocation = flight.invocation
        heard = Heard()
        try:
            payload = await payload_of(
                invocation,
                self._store,
                self._overflow_bucket,
                limit_bytes=self._settings.max_request_bytes,
            )
        except StorageError as unstored:
            raise CellRefused(STORAGE_UNAVAILABLE, str(unstored)) from unstored
        flight.overflowed = payload.overflowed
        reader = FrameReader(self._key(invocation))
        turn = _Turn()
        try:
            async with aclosing(self._chunks(flight, payload.body, function_name)) as chunks:
                async for chunk in chunks:
                    for frame in _take(reader, chunk, heard, invocation):
                        await turn.give()
                        yield frame
                    if heard.outcome is not None:
                        yield await settle_outcome(invocation, heard, heard.outcome, self._point)
                        await self._drain(chunks)
                        return
            problem: InvokeError = InvokeBroken("the response ended without an outcome")
        except Withdrawn as withdrawn:
            trouble = Trouble(failure=CELL_INTERRUPTED, started=Started.NO, detail=str(withdrawn))
            yield Settled(trouble=trouble)
            return
        except InvokeError as caught:
            problem = caught
        logger.warning(
            "an invocation ended without an outcome",
            extra={"request_id": invocation.request_id, "problem": type(problem).__name__},
        )
        yield await settle_silence(invocation, heard, problem, self._point)

    def code_of(self, flight: Flight, outcome: Outcome | None) -> asyncio.Task[FunctionCode] | None:
        """Return the code that ran a cell, as Lambda says; None where none is known to have."""
        if not flight.version:
            return None
        container_id = "" if outcome is None else outcome.container_id
        return self._codes.of(flight.function_name, flight.version, container_id)

    async def settle_left(self, attempt: Attempt | Invocation) -> Settled:
        """Return what became of a cell that nobody waits for any more; it commits no more.

        Raises:
            StorageError: the commit point cannot be reached.
        """
        return await settle_left(attempt, self._point)

    async def interrupt(self, flight: Flight, *, kill: bool = False) -> None:
        """End the cell: it leaves the line, or its container is told.

        Args:
            flight: the cell. Where it was interrupted before and still runs, it is killed.
            kill: do not let its code end itself and commit.

        Raises:
            StorageError: the container cannot be told.
        """
        flight.ticket.withdraw()
        if not flight.sent:
            return
        invocation = flight.invocation
        order = control.KILL if kill or flight.interrupted else control.INTERRUPT
        flight.interrupted = True
        await self._tell(invocation, control.INTERRUPT, {"order": order})

    async def answer(self, flight: Flight, number: int, value: str) -> None:
        """Give the cell the answer to its question ``number`` (raises StorageError)."""
        flight.answered = number
        await self._tell(flight.invocation, control.input_name(number), {"value": value})

    async def clean_up(self, flight: Flight) -> None:
        """Delete what the cell left in the overflow bucket, which also expires after a day."""
        request_id = flight.invocation.request_id
        left = []
        if flight.overflowed:
            left.append(keys.request_key(request_id))
        if flight.interrupted:
            left.append(control.control_key(request_id, control.INTERRUPT))
        if flight.answered:
            # Others were read, and deleted by who read them.
            name = control.input_name(flight.answered)
            left.append(control.control_key(request_id, name))
        for key in left:
            try:
                await self._store.delete(self._overflow_bucket, key)
            except GatewayError:
                logger.info("an object in the overflow bucket could not be deleted", exc_info=True)

    async def _tell(self, invocation: Invocation, name: str, data: dict[str, str]) -> None:
        request_id = invocation.request_id
        sealed = control.seal(self._key(invocation), request_id, name, data)
        place = control.control_key(request_id, name)
        await self._store.put(self._overflow_bucket, place, sealed)

    def _key(self, invocation: Invocation) -> bytes:
        return invocation_key(self._frame_key, invocation.request_id, invocation.nonce)

    async def _chunks(
        self, flight: Flight, payload: bytes, function_name: str
    ) -> AsyncGenerator[bytes, None]:
        pauses_s = list(self._settings.connect_pauses_s)
        gate = self.gate(function_name)
        while True:
            if not flight.may_wait and not gate.has_spare:
                raise InvokeThrottled("no container is free that no cell needs")
            await gate.enter(flight.ticket, flight.on_wait)
            pause_s = 0.0
            try:
                await _begin(flight)
                async with aclosing(self._timed(flight, payload, function_name)) as chunks:
                    async for chunk in chunks:
                        if not chunk:
                            gate.accepted()
                        yield chunk
            except InvokeThrottled:
                gate.throttled()
                if not flight.may_wait:
                    raise
            except InvokeNotSent as problem:
                if isinstance(problem, InvokeRefused) or not pauses_s:
                    raise
                pause_s = pauses_s.pop(0)
            else:
                return
            finally:
                gate.leave()
            # Both prove that nothing started, so it may be sent again.
            flight.sent = False
            await asyncio.sleep(pause_s)

    async def _timed(
        self, flight: Flight, payload: bytes, function_name: str
    ) -> AsyncGenerator[bytes, None]:
        timeout_s = flight.invocation.limits.timeout_s
        deadline_s = asyncio.get_running_loop().time() + timeout_s + self._settings.slack_s
        flight.function_name = function_name
        stream = self._invoker.invoke(
            function_name,
            payload,
            timeout_s=timeout_s,
            on_version=lambda version: setattr(flight, "version", version),
        )
        try:
            while True:
                try:
                    async with asyncio.timeout_at(deadline_s):
                        chunk = await anext(stream, None)
                except TimeoutError:
                    raise InvokeBroken(
                        f"Lambda did not end the invocation within {timeout_s:g} s"
                    ) from None
                if chunk is None:
                    return
                yield chunk
        finally:
            await stream.aclose()

    async def _drain(self, chunks: AsyncGenerator[bytes, None]) -> None:
        try:
            async with asyncio.timeout(self._settings.drain_s):
                async for _ in chunks:
                    pass
        except (TimeoutError, InvokeError):
            logger.info("a response did not end after its outcome", exc_info=True)


class _Turn:
    """A cell's share of the event loop: one that floods must not hold up the others."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    async def give(self) -> None:
        """Let the others go on, where this one has had its time."""
        if time.monotonic() - self._began_s >= TURN_S:
            await asyncio.sleep(0)
            self._began_s = time.monotonic()


def _take(reader: FrameReader, chunk: bytes, heard: Heard, invocation: Invocation) -> list[Frame]:
    """Return the frames to hand on; note the rest. What follows the outcome is not looked at."""
    passed: list[Frame] = []
    try:
        for frame in reader.feed(chunk):
            if frame.kind is FrameKind.OUTCOME:
                outcome = _checked_outcome(frame, invocation)
                heard.stored = matching_stored(outcome, frame.buffers)
                heard.attached = attached_to(outcome, frame.buffers)
                heard.outcome = outcome
                break
            if frame.kind is FrameKind.REPLY:
                heard.reply = frame.data
            heard.started = heard.started or frame.kind is FrameKind.STARTED
            passed.append(frame)
    except (BadFrame, InvalidField) as problem:
        raise ForgedStream(str(problem)) from problem
    return passed


def _checked_outcome(frame: Frame, invocation: Invocation) -> Outcome:
    outcome = Outcome.from_dict(frame.data)
    if outcome.nonce != invocation.nonce:
        raise BadFrame("the outcome is that of another invocation")
    if outcome.head is not None and outcome.head.seq != invocation.seq:
        raise BadFrame("the outcome names a commit of another number")
    return outcome


async def _begin(flight: Flight) -> None:
    if not await flight.may_start():
        raise LeaseLost("this gateway does not hold it any more")
    flight.sent = True
