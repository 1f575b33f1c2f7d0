"""The pool of containers, with containers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernel_gateway.errors import StartError
from kernel_gateway.local.container import Listeners
from kernel_gateway.local.container_log import ContainerLog
from kernel_gateway.local.invokes import Invoke
from kernel_gateway.local.lambda_service import (
    Capacity,
    FunctionNotFound,
    LambdaService,
    TooManyRequests,
)
from kernel_gateway.local.relay import loopback_listener
from kernel_gateway.local.warm_container import Function, Launched

A = Function(name="a", arn="arn:a", timeout_s=60, environment_id="a")
B = Function(name="b", arn="arn:b", timeout_s=60, environment_id="b")


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


class MemoryContainer:
    """A container without a process; a test plays its runtime."""

    def __init__(self) -> None:
        self.listeners = Listeners(
            runtime=loopback_listener(), s3=loopback_listener(), aws=loopback_listener()
        )
        self.ended = asyncio.Event()
        self.begun = asyncio.Event()
        self.connection: asyncio.StreamWriter | None = None
        self.port = self.listeners.runtime.getsockname()[1]

    async def begin(self, environment: Mapping[str, str]) -> None:
        self.begun.set()

    async def wait(self) -> int:
        await self.ended.wait()
        return 0

    def kill(self) -> None:
        self.ended.set()
        if self.connection is not None:
            self.connection.close()


@dataclass
class MemoryLauncher:
    """Launches containers in memory and remembers them."""

    folder: Path
    containers: list[tuple[str, MemoryContainer]] = field(default_factory=list)
    runtimes: list[asyncio.Task[None]] = field(default_factory=list)
    fail: bool = False

    async def launch(self, function: Function, container_id: str) -> Launched:
        if self.fail:
            raise StartError("no container here")
        container = MemoryContainer()
        self.containers.append((function.name, container))

        async def close() -> None:
            return

        log = ContainerLog.open(self.folder / container_id)
        return Launched(container=container, log=log, close=close)

    async def begin(self, launched: Launched, function: Function, container_id: str) -> None:
        container = launched.container
        assert isinstance(container, MemoryContainer)
        await container.begin({})
        self.runtimes.append(asyncio.create_task(run_runtime(container, container_id)))


async def run_runtime(container: MemoryContainer, container_id: str) -> None:
    """Answer every invoke with the container's id; ``wait`` holds it until it is killed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", container.port)
    container.connection = writer
    try:
        while True:
            writer.write(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(
                line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line
            )
            payload = await reader.readexactly(int(headers["content-length"]))
            if payload == b"wait":
                await container.ended.wait()
                return
            path = f"/2018-06-01/runtime/invocation/{headers['lambda-runtime-aws-request-id']}"
            body = container_id.encode()
            writer.write(
                f"POST {path}/response HTTP/1.1\r\nHost: x\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


@dataclass
class Stage:
    """A service with its launcher and clock."""

    launcher: MemoryLauncher
    clock: Clock
    services: list[LambdaService] = field(default_factory=list)

    def service(self, *functions: Function, **capacity: float) -> LambdaService:
        limits = Capacity(**{"warm_count": 0, **capacity})  # type: ignore[arg-type]
        service = LambdaService(functions, self.launcher, limits, self.clock)
        service.start()
        self.services.append(service)
        return service


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(MemoryLauncher(tmp_path), Clock())
    yield stage
    for service in stage.services:
        await service.stop()
    await asyncio.gather(*stage.launcher.runtimes)


def submit(
    service: LambdaService, function: str = "a", payload: bytes = b"x", tenant_id: str | None = None
) -> Invoke:
    invoke = Invoke(function_name=function, payload=payload, tenant_id=tenant_id)
    service.submit(invoke)
    return invoke


async def answer(invoke: Invoke) -> str:
    """Return the answer, or the type of the error."""
    async with asyncio.timeout(10):
        body = b"".join([chunk async for chunk in invoke.response.chunks()])
    return invoke.response.error.type if invoke.response.error else body.decode()


async def eventually_states(service: LambdaService, *wanted: str) -> None:
    async with asyncio.timeout(10):
        while sorted(service.states().values()) != sorted(wanted):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_consecutive_invokes_use_one_container(stage: Stage) -> None:
    service = stage.service(A)

    answers = [await answer(submit(service)) for _ in range(10)]

    assert len(set(answers)) == 1
    assert len(stage.launcher.containers) == 1


async def test_an_unknown_function_is_refused(stage: Stage) -> None:
    with pytest.raises(FunctionNotFound):
        submit(stage.service(A), "z")


async def test_beyond_the_limit_invokes_are_refused_and_nothing_is_started(stage: Stage) -> None:
    service = stage.service(A, max_containers=2)
    submit(service, payload=b"wait")
    submit(service, payload=b"wait")

    with pytest.raises(TooManyRequests):
        submit(service)
    await eventually_states(service, "busy", "busy")
    with pytest.raises(TooManyRequests):
        submit(service)

    assert len(stage.launcher.containers) == 2


async def test_containers_are_warmed_for_the_first_function_only(stage: Stage) -> None:
    service = stage.service(A, B, warm_count=2)

    await eventually_states(service, "idle", "idle")

    assert [name for name, _ in stage.launcher.containers] == ["a", "a"]


async def test_the_most_recently_used_container_is_taken(stage: Stage) -> None:
    service = stage.service(A, warm_count=2)
    await eventually_states(service, "idle", "idle")

    answers = set()
    for _ in range(6):
        answers.add(await answer(submit(service)))
        await eventually_states(service, "idle", "idle")

    assert len(answers) == 1


async def test_a_tenants_last_container_is_preferred(stage: Stage) -> None:
    service = stage.service(A, warm_count=2)
    await eventually_states(service, "idle", "idle")
    first = submit(service, tenant_id="t1")
    second = submit(service, tenant_id="t2")
    containers = {"t1": await answer(first), "t2": await answer(second)}
    assert len(set(containers.values())) == 2

    for tenant in ("t1", "t2", "t1", "t1", "t2"):
        await eventually_states(service, "idle", "idle")
        assert await answer(submit(service, tenant_id=tenant)) == containers[tenant]


async def test_an_idle_container_of_another_function_makes_room(stage: Stage) -> None:
    service = stage.service(A, B, max_containers=1)
    await answer(submit(service, "a"))
    await eventually_states(service, "idle")

    await answer(submit(service, "b"))

    assert [name for name, _ in stage.launcher.containers] == ["a", "b"]


async def test_a_container_that_dies_answers_and_is_replaced(stage: Stage) -> None:
    service = stage.service(A, warm_count=1)
    invoke = submit(service, payload=b"wait")
    await eventually_states(service, "busy")

    stage.launcher.containers[0][1].kill()

    assert await answer(invoke) == "Runtime.ExitError"
    await eventually_states(service, "idle")
    assert len(stage.launcher.containers) == 2


async def test_a_container_that_cannot_start_fails_the_invoke_it_was_started_for(
    stage: Stage,
) -> None:
    service = stage.service(A)
    stage.launcher.fail = True

    assert await answer(submit(service)) == "Runtime.StartError"
    assert service.states() == {}


async def test_a_container_that_is_too_old_is_replaced_when_it_is_idle(stage: Stage) -> None:
    service = stage.service(A, warm_count=1)
    first = await answer(submit(service))
    await eventually_states(service, "idle")

    stage.clock.now_s += 46 * 60
    service.reap()

    await eventually_states(service, "idle")
    assert await answer(submit(service)) != first


async def test_a_container_that_is_too_old_gets_no_invoke_after_a_laptops_sleep(
    stage: Stage,
) -> None:
    service = stage.service(A, warm_count=1)
    first = await answer(submit(service))
    await eventually_states(service, "idle")

    stage.clock.now_s += 2 * 60 * 60

    assert await answer(submit(service)) != first
    await eventually_states(service, "idle")


async def test_idle_containers_are_ended_but_the_warm_ones_stay(stage: Stage) -> None:
    service = stage.service(A, B, warm_count=1, idle_container_s=600)
    submit(service, "a", b"wait")
    await answer(submit(service, "a"))
    await answer(submit(service, "b"))
    await eventually_states(service, "busy", "idle", "idle")
    stage.launcher.containers[0][1].kill()
    await eventually_states(service, "idle", "idle")

    stage.clock.now_s += 601
    service.reap()

    await eventually_states(service, "idle")
    names = [name for name, container in stage.launcher.containers if not container.ended.is_set()]
    assert names == ["a"]


async def test_a_stopped_service_has_no_container(stage: Stage) -> None:
    service = stage.service(A, warm_count=2)
    await eventually_states(service, "idle", "idle")

    await service.stop()

    assert service.states() == {}
    assert all(container.ended.is_set() for _, container in stage.launcher.containers)
