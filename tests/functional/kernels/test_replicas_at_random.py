"""Whatever three gateways do to one kernel, in whatever order: one history, no cell twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.dispatch.run import DispatchSettings
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import GatewayError, HeldElsewhere
from kernel_gateway.kernels.lease import ReplicaSettings
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.kernels.state import IllegalTransition
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.invocation import Head
from tests.functional.kernels.conftest import (
    DIGEST,
    FRAME_KEY,
    OWNER,
    STACK,
    Client,
    FakeFunction,
    FlakyStore,
)

LEASE_S = 10.0
REPLICAS = "abc"
T = TypeVar("T")
names = st.sampled_from(REPLICAS)


class Clock:
    """A clock with its own zero and speed."""

    def __init__(self, start_s: float, rate: float) -> None:
        self.now_s, self.rate = start_s, rate

    def __call__(self) -> float:
        return self.now_s


class Replicas(RuleBasedStateMachine):
    """Gateways that sleep, die, lose their storage and come back, on one store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = FlakyStore()
        self.function = FakeFunction(self.store)
        self.clocks = {
            name: Clock(start, rate)
            for name, start, rate in zip(REPLICAS, (0.0, 1e6, 50.0), (1.0, 0.95, 1.05), strict=True)
        }
        self.registries: dict[str, KernelRegistry] = {}
        self.clients: dict[str, Client] = {}
        self.dead: list[KernelRegistry] = []
        self.cell_count = 0
        self.kernel_id = ""

    def run(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(20):
                return await work

        return self.loop.run_until_complete(bounded())

    async def opened(self, name: str) -> KernelRegistry:
        return await KernelRegistry.open(
            stack=STACK,
            handler_digest=DIGEST,
            store=self.store,
            invoker=InMemoryInvoker(self.function),
            environments={"lambda-python": Environment(timeout_s=30)},
            dispatch_settings=DispatchSettings(claim_pauses_s=(0.0,)),
            replica_settings=ReplicaSettings(replica_id=name, lease_s=LEASE_S),
            lease_clock=self.clocks[name],
        )

    @initialize()
    def begin(self) -> None:
        key = keys.frame_key_key(DIGEST)
        self.run(self.store.put(STACK.overflow, key, FRAME_KEY))
        for name in REPLICAS:
            self.registries[name] = self.run(self.opened(name))
        start = self.registries["a"].start(
            OWNER, spec_name="lambda-python", options=KernelOptions()
        )
        self.kernel_id = self.run(start).kernel_id

    @rule(seconds=st.floats(0.1, 2 * LEASE_S))
    def time_goes_by(self, seconds: float) -> None:
        for clock in self.clocks.values():
            clock.now_s += seconds * clock.rate

    @rule(name=names)
    def a_gateway_keeps_up(self, name: str) -> None:
        self.run(self.registries[name].services.replica.keep_up())

    @rule(name=names, word=st.sampled_from(["print", "wait", "dies", "commits-and-dies"]))
    def a_cell_is_sent(self, name: str, word: str) -> None:
        """Through a client that may have been connected all along, as before a sleep."""
        self.run(self._send(name, word))

    async def _send(self, name: str, word: str) -> None:
        client = self.clients.get(name)
        if client is None:
            try:
                registry = self.registries[name]
                kernel = await registry.reach(await registry.find(self.kernel_id), takes=True)
            except HeldElsewhere:
                return
            client = self.clients[name] = Client(kernel)
            kernel.attach(client.take)
        self.cell_count += 1
        msg_id = client.execute(f"{word} {name}{self.cell_count}")
        if word != "wait":
            self.function.release.set()
            await client.done(msg_id)
            self.function.release.clear()
        else:
            for _ in range(40):
                await asyncio.sleep(0)
        if client.kernel.execution_state == "dead":
            del self.clients[name]

    @rule()
    def cells_in_flight_end(self) -> None:
        self.run(self._release())

    async def _release(self) -> None:
        self.function.release.set()
        for _ in range(200):
            await asyncio.sleep(0)
        self.function.release.clear()

    @rule(name=names)
    def a_kernel_is_restarted(self, name: str) -> None:
        try:
            self.run(self._restart(name))
        except (GatewayError, IllegalTransition):
            return

    async def _restart(self, name: str) -> None:
        registry = self.registries[name]
        await registry.reach(await registry.find(self.kernel_id), takes=True)
        await registry.restart(self.kernel_id)

    @rule(name=names)
    def a_gateway_is_killed_and_starts_again(self, name: str) -> None:
        """The old process's cells stay in flight; it never says anything again."""
        self.dead.append(self.registries[name])
        self.clients.pop(name, None)
        self.registries[name] = self.run(self.opened(name))

    @rule(name=names)
    def a_gateway_stops_and_starts_again(self, name: str) -> None:
        self.clients.pop(name, None)
        self.run(self.registries[name].close())
        self.registries[name] = self.run(self.opened(name))

    @invariant()
    def no_cell_ran_twice(self) -> None:
        assert len(self.function.ran) == len(set(self.function.ran))

    @invariant()
    def one_epoch_is_one_gateway(self) -> None:
        senders: dict[int, set[str]] = {}
        for invocation in self.function.invocations:
            sender = str(invocation.msg.content["code"]).split()[1][0]
            senders.setdefault(invocation.epoch, set()).add(sender)
        assert all(len(each) == 1 for each in senders.values()), senders

    @invariant()
    def epochs_only_grow(self) -> None:
        epochs = [invocation.epoch for invocation in self.function.invocations]
        assert epochs == sorted(epochs)

    @invariant()
    def every_commit_stands_on_the_one_before_it(self) -> None:
        head: Head | None = None
        count_by_seq: dict[int, int] = {}
        for seq, stored in enumerate(self._commits(), start=1):
            commit = Commit.from_bytes(stored)
            assert commit.seq == seq
            if commit.void:
                continue
            # After a restart a session begins with nothing; never with anything but the last.
            assert commit.parent in (head, None)
            head = Head(seq=seq, digest=digest_of(stored))
            count_by_seq[seq] = commit.execution_count

    def _commits(self) -> list[bytes]:
        objects: list[Any] = sorted(self.store.objects.items())
        return [body for (bucket, _), body in objects if bucket == STACK.state]

    def teardown(self) -> None:
        self.function.release.set()
        for registry in (*self.registries.values(), *self.dead):
            self.run(registry.close())
        self.run(self._release())
        self.loop.close()


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
