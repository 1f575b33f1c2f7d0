"""The local Lambda service: functions, warm containers, concurrency limit."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernel_gateway.local.invokes import FunctionError, Invoke
from kernel_gateway.local.settings import RECYCLE_AGE_S
from kernel_gateway.local.warm_container import Function, Launcher, State, WarmContainer

logger = logging.getLogger(__name__)

REAP_INTERVAL_S = 5.0


def _since_boot() -> float:
    # Unlike `monotonic` it goes on while a laptop sleeps, as the life of credentials does.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FunctionNotFound(Exception):
    """There is no function of that name."""


class TooManyRequests(Exception):
    """Every container is busy and no more may be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many containers, and for how long.

    Attributes:
        max_containers: all functions together.
        warm_count: kept ready for the first function.
        idle_container_s: an idle container beyond these is ended after this long.
        recycle_age_s: an older container gets no invoke any more: its credentials run out.
    """

    max_containers: int = 4
    warm_count: int = 1
    idle_container_s: float = 600.0
    recycle_age_s: float = RECYCLE_AGE_S


class LambdaService:
    """Runs invokes of functions in containers that stay warm.

    Containers are shared by all callers of a function, most recently used first; a tenant's last
    container is preferred, never reserved.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        launcher: Launcher,
        capacity: Capacity,
        clock: Callable[[], float] = _since_boot,
    ) -> None:
        self._functions = {function.name: function for function in functions}
        self._launcher = launcher
        self._capacity = capacity
        self._clock = clock
        self._containers: dict[str, WarmContainer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, deque[Invoke]] = {name: deque() for name in self._functions}
        self._reaper: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to warm containers for the first function."""
        self._keep_warm()
        self._reaper = asyncio.create_task(self._reap())

    async def stop(self) -> None:
        """End every container and wait until nothing of them runs."""
        self._stopping = True
        if self._reaper is not None:
            self._reaper.cancel()
        for container in self._containers.values():
            container.kill()
        pending = list(self._tasks.values())
        if pending:
            _, late = await asyncio.wait(pending, timeout=2)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def submit(self, invoke: Invoke) -> None:
        """Give ``invoke`` to a container, or to one that is being started for it.

        Raises:
            FunctionNotFound: there is no such function.
            TooManyRequests: nothing was started and nothing will be.
        """
        function = self._functions.get(invoke.function_name)
        if function is None:
            raise FunctionNotFound(invoke.function_name)
        idle = self._choose_idle(function, invoke.tenant_id)
        if idle is not None:
            idle.assign(invoke)
            return
        waiting = self._waiting[function.name]
        if self._coming_count(function) <= len(waiting) and not self._make_room(function):
            raise TooManyRequests(invoke.function_name)
        waiting.append(invoke)

    def function(self, name: str) -> Function | None:
        """Return the function of this name."""
        return self._functions.get(name)

    def states(self) -> dict[str, str]:
        """Return the state of every container by id."""
        return {name: container.state.value for name, container in self._containers.items()}

    # What a container tells the service.

    def became_idle(self, container: WarmContainer) -> None:
        """Hand the longest waiting invoke to ``container``, or replace it if it is too old."""
        if self._is_old(container) and not self._stopping:
            container.kill()
            return
        waiting = self._waiting[container.function.name]
        while waiting:
            invoke = waiting.popleft()
            if not invoke.response.ended:
                container.assign(invoke)
                return

    def give_back(self, invoke: Invoke) -> None:
        """Run an invoke again that no runtime has seen."""
        if invoke.response.ended:
            return
        self._waiting[invoke.function_name].appendleft(invoke)
        self._serve_waiting(self._functions[invoke.function_name])

    def ended(self, container: WarmContainer) -> None:
        """Forget ``container`` and see to those that waited for it."""
        del self._containers[container.id]
        if self._stopping:
            return
        function = container.function
        waiting = self._waiting[function.name]
        if container.state is State.STARTING:
            # Each start was made for one invoke; a start that failed fails one, as on Lambda.
            if waiting and len(waiting) > self._coming_count(function):
                waiting.popleft().response.end(container.init_error)
        else:
            self._keep_warm()
        self._serve_waiting(function)

    def _serve_waiting(self, function: Function) -> None:
        waiting = self._waiting[function.name]
        while waiting:
            idle = self._choose_idle(function, waiting[0].tenant_id)
            if idle is None:
                break
            idle.assign(waiting.popleft())
        while len(waiting) > self._coming_count(function):
            if not self._make_room(function):
                if self._busy_count(function):
                    return  # a container of this function comes back and takes it
                error = FunctionError.create("Runtime.ExitError", "no container could be started")
                waiting.popleft().response.end(error)

    def _choose_idle(self, function: Function, tenant_id: str | None) -> WarmContainer | None:
        for container in self._of(function):
            if container.state is State.IDLE and self._is_old(container):
                container.kill()
        idle = [c for c in self._of(function) if c.state is State.IDLE]
        if not idle:
            return None
        return max(idle, key=lambda c: (tenant_id in {c.tenant_id, None}, c.idle_since))

    def _is_old(self, container: WarmContainer) -> bool:
        return container.age_s > self._capacity.recycle_age_s

    def _of(self, function: Function) -> list[WarmContainer]:
        return [c for c in self._containers.values() if c.function.name == function.name]

    def _coming_count(self, function: Function) -> int:
        return sum(c.is_coming for c in self._of(function))

    def _busy_count(self, function: Function) -> int:
        return sum(c.state is State.BUSY for c in self._of(function))

    def _make_room(self, function: Function) -> bool:
        """Start a container, ending an idle one of another function if it must be."""
        alive = [c for c in self._containers.values() if c.state is not State.ENDING]
        if len(alive) >= self._capacity.max_containers:
            idle = [c for c in alive if c.state is State.IDLE]
            if not idle:
                return False
            min(idle, key=lambda c: c.idle_since).kill()
        self._launch(function)
        return True

    def _launch(self, function: Function) -> None:
        container = WarmContainer(
            id=uuid.uuid4().hex, function=function, service=self, clock=self._clock
        )
        self._containers[container.id] = container
        task = asyncio.create_task(self._run(container))
        self._tasks[container.id] = task

    async def _run(self, container: WarmContainer) -> None:
        try:
            await container.run(self._launcher)
        finally:
            del self._tasks[container.id]
            self.ended(container)

    def _keep_warm(self) -> None:
        function = next(iter(self._functions.values()), None)
        if function is None or self._stopping:
            return
        while (
            len([c for c in self._of(function) if c.state is not State.ENDING])
            < self._capacity.warm_count
            and len(self._containers) < self._capacity.max_containers
        ):
            self._launch(function)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_INTERVAL_S)
            self.reap()

    def reap(self) -> None:
        """End containers that have been idle for too long, and idle ones that are too old."""
        first = next(iter(self._functions.values()), None)
        for function in self._functions.values():
            idle = [c for c in self._of(function) if c.state is State.IDLE]
            idle.sort(key=lambda c: c.idle_since)
            keep = self._capacity.warm_count if function is first else 0
            surplus = idle[: max(0, len(idle) - keep)]
            for container in idle:
                is_stale = self._clock() - container.idle_since > self._capacity.idle_container_s
                if self._is_old(container) or (is_stale and container in surplus):
                    container.kill()
