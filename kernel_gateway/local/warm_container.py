"""One container in the pool of the local Lambda service, from start to end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from kernel_gateway.errors import StartError
from kernel_gateway.local.container import Container
from kernel_gateway.local.container_log import ContainerLog
from kernel_gateway.local.invokes import FunctionError, Invoke
from kernel_gateway.local.runtime_api import RuntimeApi

logger = logging.getLogger(__name__)

INIT_TIMEOUT_S = 60.0
"""Lambda allows 10 s; a loaded laptop is given more."""

DRAIN_S = 1.0


class State(Enum):
    """Where a container stands."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One Lambda function.

    Attributes:
        name: as it is invoked.
        arn: its full name.
        timeout_s: an invoke that runs longer is killed.
        environment_id: the execution environment it stands for.
        memory_mb: of its containers.
        code: the files that its containers run, by their name in the package.
    """

    name: str
    arn: str
    timeout_s: float
    environment_id: str
    memory_mb: int = 0
    code: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A container that has been let go, and what has to be closed after its end."""

    container: Container
    log: ContainerLog
    close: Callable[[], Awaitable[None]]


class Launcher(Protocol):
    """Makes containers."""

    async def launch(self, function: Function, container_id: str) -> Launched:
        """Return a container whose shim is ready to begin (raises StartError)."""

    async def begin(self, launched: Launched, function: Function, container_id: str) -> None:
        """Let its runtime start (raises StartError)."""


class Pool(Protocol):
    """The service that a container belongs to."""

    def became_idle(self, container: WarmContainer) -> None:
        """Its runtime asks for an invoke."""

    def give_back(self, invoke: Invoke) -> None:
        """An invoke that its runtime has not seen."""


class WarmContainer:
    """A container and its state; also what its Runtime API talks to.

    Attributes:
        id: 32 hex digits; names the log stream.
        state: where it stands.
        current: the invoke that it runs, answered or not, until the runtime asks for the next.
        tenant_id: whose invoke it ran last.
        idle_since: on the service's clock.
        init_error: why it could not start.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002  (what it is called elsewhere)
        function: Function,
        service: Pool,
        clock: Callable[[], float],
    ) -> None:
        self.id = id
        self.function = function
        self.state = State.STARTING
        self.current: Invoke | None = None
        self.tenant_id: str | None = None
        self.idle_since = 0.0
        self.init_error = FunctionError.create(
            "Runtime.ExitError", "the runtime ended before it was ready"
        )
        self._service = service
        self._clock = clock
        self._created = clock()
        self._next: asyncio.Future[Invoke] | None = None
        self._launched: Launched | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        self._killed = False

    @property
    def is_coming(self) -> bool:
        """Whether it will ask for an invoke soon: it is starting, or has answered its last."""
        if self.state is State.BUSY:
            return self.current is not None and self.current.response.ended
        return self.state is State.STARTING

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return self._clock() - self._created

    async def run(self, launcher: Launcher) -> None:
        """Run the container until it has ended, whatever the reason."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INIT_TIMEOUT_S, self._init_timed_out)
        try:
            launched = self._launched = await launcher.launch(self.function, self.id)
        except (StartError, OSError) as error:
            self._cancel_timer()
            self.init_error = FunctionError.create("Runtime.StartError", str(error))
            logger.exception("container could not be started", extra={"container_id": self.id})
            return
        api = await RuntimeApi.open(launched.container.listeners.runtime, self)
        status = -1
        try:
            if self._killed:
                launched.container.kill()
            else:
                await launcher.begin(launched, self.function, self.id)
            status = await launched.container.wait()
            # The kernel has closed the runtime's connections by now; what they say about an
            # event that was never read comes before the verdict below.
            await api.drained(DRAIN_S)
        except StartError as error:
            self.init_error = FunctionError.create("Runtime.StartError", str(error))
            logger.exception("container could not be started", extra={"container_id": self.id})
        finally:
            self._cancel_timer()
            launched.container.kill()
            await api.close()
            await launched.container.wait()
            await launched.close()
            launched.container.listeners.close()
            self._verdict(status, launched.log)
            launched.log.close()

    def assign(self, invoke: Invoke) -> None:
        """Run ``invoke`` here; the container must be idle."""
        assert self._next is not None  # noqa: S101  (an idle container has a runtime in `next`)
        self.state = State.BUSY
        self.current = invoke
        self.tenant_id = invoke.tenant_id
        self._deadline_ms = int((time.time() + self.function.timeout_s) * 1000)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.function.timeout_s, self._timed_out)
        self._log("platform.start", invoke)
        self._next.set_result(invoke)
        self._next = None

    def kill(self) -> None:
        """End it; no invoke is given to it any more."""
        self._killed = True
        if self.state is not State.STARTING:
            self.state = State.ENDING
        if self._launched is not None:
            self._launched.container.kill()

    # What the Runtime API calls.

    async def next_invoke(self) -> Invoke:
        """Wait for the next invoke; the one before it is over."""
        self._cancel_timer()
        if self.current is not None:
            self._log("platform.report", self.current)
            self.current = None
        waiting: asyncio.Future[Invoke] = asyncio.get_running_loop().create_future()
        self._next = waiting
        if not self._killed:
            self.state = State.IDLE
            self.idle_since = self._clock()
            self._service.became_idle(self)
        try:
            return await waiting
        except asyncio.CancelledError:
            self._take_back()
            raise
        finally:
            if self._next is waiting:
                self._next = None
                self._withdraw()

    def deadline_ms(self) -> int:
        """Return when the current invoke is ended, in milliseconds since the epoch."""
        return self._deadline_ms

    def function_arn(self) -> str:
        """Return the ARN the runtime was invoked by."""
        return self.function.arn

    def undelivered(self, invoke: Invoke) -> None:
        """Take back ``invoke`` and end this container, whose runtime is gone."""
        if self.current is invoke:
            self.current = None
            self._cancel_timer()
            self.kill()
            self._log("platform.undelivered", invoke)
            self._service.give_back(invoke)

    def init_failed(self, error: FunctionError) -> None:
        """Note why the runtime could not start; it ends by itself."""
        if self.state is State.STARTING:
            self.init_error = error

    def _take_back(self) -> None:
        if self.current is not None:  # assigned in the very moment in which the runtime went
            self.undelivered(self.current)

    def _withdraw(self) -> None:
        # The runtime closed the connection it was waiting on: nothing can be given to it.
        if self.state is State.IDLE:
            self.kill()

    def _timed_out(self) -> None:
        invoke = self.current
        if invoke is not None:
            text = (
                f"RequestId: {invoke.request_id} Error: Task timed out after "
                f"{self.function.timeout_s:.2f} seconds"
            )
            invoke.response.end(FunctionError.create("Sandbox.Timedout", text))
        self.kill()

    def _init_timed_out(self) -> None:
        self.init_error = FunctionError.create(
            "Sandbox.Timedout", f"the runtime was not ready after {INIT_TIMEOUT_S:.0f} seconds"
        )
        self.kill()

    def _verdict(self, status: int, log: ContainerLog) -> None:
        invoke, self.current = self.current, None
        how = f"signal: {status - 128}" if status > 128 else f"exit status {status}"
        if invoke is not None:
            text = f"RequestId: {invoke.request_id} Error: Runtime exited with error: {how}"
            invoke.response.end(FunctionError.create("Runtime.ExitError", text))
        if self.state is not State.STARTING:
            self.state = State.ENDING
        log.platform("platform.exit", status=status)
        logger.info("container ended", extra={"container_id": self.id, "status": status})

    def _log(self, event: str, invoke: Invoke) -> None:
        if self._launched is not None:
            self._launched.log.platform(event, requestId=invoke.request_id)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
