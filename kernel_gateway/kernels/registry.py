"""All kernels of this gateway, and their durable records."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping

from kernel_gateway.audit.envelopes import Sealer
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.dispatch.invoker import Invoker
from kernel_gateway.dispatch.run import Dispatcher, DispatchSettings
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import (
    BadRequest,
    GatewayError,
    HeldElsewhere,
    NotFound,
    PreconditionFailed,
)
from kernel_gateway.kernels import beginning, cut_off, forking, seeds
from kernel_gateway.kernels.caches import InputHistory, ManifestCache
from kernel_gateway.kernels.clocks import SYSTEM_CLOCKS, Clocks
from kernel_gateway.kernels.directory import Directory
from kernel_gateway.kernels.ended import EndedKernel, EndedKernels
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.lease import ReplicaSettings, clock_s
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.record import KernelRecord, RecordStore
from kernel_gateway.kernels.recorder import CellRecorder
from kernel_gateway.kernels.replica import Replica
from kernel_gateway.kernels.services import KernelServices, KernelSettings
from kernel_gateway.kernels.state import ExecutionState
from kernel_gateway.messaging.caller import GATEWAY, Actor
from kernel_gateway.messaging.message import utc_text
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import names
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 2.0
RELEASE_TIMEOUT_S = 0.4


class KernelRegistry:
    """The kernels by id. Ownership is checked by the caller (`identity.may_see`, `may_execute`).

    Attributes:
        services: what its kernels share.
        ended: kernels that this gateway had.
        on_moved: called with a kernel that another gateway has taken over, once it has stopped.
    """

    def __init__(self, services: KernelServices, environments: Mapping[str, Environment]) -> None:
        self.services = services
        self._environments = environments
        self._directory = Directory(services, environments)
        self.on_moved: Callable[[LambdaKernel], object] = lambda kernel: None
        self.ended = EndedKernels()

    @classmethod
    async def open(
        cls,
        *,
        stack: Stack,
        handler_digest: str,
        store: ObjectStore,
        invoker: Invoker,
        environments: Mapping[str, Environment],
        settings: KernelSettings | None = None,
        pythons: Mapping[str, str] | None = None,
        dispatch_settings: DispatchSettings | None = None,
        replica_settings: ReplicaSettings | None = None,
        sealer: Sealer | None = None,
        keeping: Keeping | None = None,
        index_pause_s: float | None = None,
        clocks: Clocks = SYSTEM_CLOCKS,
        lease_clock: Callable[[], float] = clock_s,
    ) -> KernelRegistry:
        """Return the registry, which reads the records that the deployment holds from now on.

        Args:
            stack: names of buckets and functions.
            handler_digest: of the staged handler, beside which the key of the frames stands.
            store: S3.
            invoker: Lambda.
            environments: by kernelspec name.
            settings: what kernels may use.
            pythons: versions of environments' Pythons, by environment id; None = the gateway's.
            dispatch_settings: how cells are sent.
            replica_settings: who this gateway is among those on the same buckets.
            sealer: signs the journals; None = they are not signed.
            keeping: how they are kept.
            index_pause_s: so long after a cell its journal is indexed; None = by searches only.
            clocks: the time, and how long kernels are idle.
            lease_clock: seconds; nobody may set it.

        Raises:
            StartError: the handler is not staged.
            StorageError: S3 does not answer.
        """
        settings = settings or KernelSettings()
        dispatcher = Dispatcher(
            store=store,
            invoker=invoker,
            stack=stack,
            handler_digest=handler_digest,
            settings=dispatch_settings or DispatchSettings(),
        )
        services = KernelServices(
            stack=stack,
            store=store,
            dispatcher=dispatcher,
            records=RecordStore(store=store, bucket=stack.records),
            replica=Replica(
                replica_settings or ReplicaSettings(),
                store,
                stack.records,
                in_use=lambda: registry._in_use(),
                on_lost=lambda lease_id: registry._leave(lease_id),
                clock=lease_clock,
            ),
            manifests=ManifestCache(max_bytes=settings.manifest_bytes),
            history=InputHistory(max_characters=settings.history_characters),
            recorder=CellRecorder(store, stack.records, clocks.now, sealer, keeping, index_pause_s),
            settings=settings,
            clocks=clocks,
            pythons=pythons or {},
            shut_down=lambda kernel_id, actor: registry.shutdown(kernel_id, actor=actor),
        )
        registry = cls(services, environments)
        await asyncio.gather(dispatcher.open(), services.replica.open())
        registry._directory.begin(lambda: cut_off.sweep(registry))
        return registry

    async def close(self) -> None:
        """Stop what runs; the records stay, so that the next gateway finds its kernels."""
        services = self.services
        await self._directory.close()
        stopping = [asyncio.ensure_future(kernel.suspend()) for kernel in self.all()]
        tasks = [*stopping, *services.tasks, *services.settling.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await services.recorder.close()
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await services.replica.close()
        except (TimeoutError, GatewayError):
            logger.warning("the lease was not given up: it has to expire", exc_info=True)

    async def start(
        self,
        owner: Identity,
        *,
        spec_name: str,
        options: KernelOptions,
        kernel_id: str | None = None,
        actor: Actor | None = None,
    ) -> LambdaKernel:
        """Return a new kernel, idle, whose record is durable.

        Args:
            owner: who starts it, and as whom its cells run.
            spec_name: which kernelspec.
            options: what the client chose.
            kernel_id: a lower-case UUID, drawn where None; variables left under it are not seen.
            actor: who starts it, for the journal.

        Raises:
            NotFound: there is no such kernelspec, or no such kernel to fork.
            BadRequest: ``kernel_id`` is not a lower-case UUID, or the cell to fork at is not kept.
            PreconditionFailed: a kernel of this id exists, or was another's.
            StorageError: the record could not be written.
        """
        owner = owner.as_owner
        source = self.source_of(owner, options)
        found = None
        if source is not None:
            options = options.inherited(source.options)
            found = await beginning.found(self.services, source, options)
        floor_seq = await self._used_seq(owner, options, kernel_id) if kernel_id is not None else 0
        kernel = await self.begin(
            owner,
            spec_name=spec_name,
            options=options,
            kernel_id=str(uuid.uuid4()) if kernel_id is None else kernel_id,
            workdir_name=None if source is None else source.record.workdir_name,
            floor_seq=floor_seq,
            found=found,
            actor=actor,
        )
        if source is not None and found is not None:
            await self._note_fork(source, found, kernel)
        return kernel

    async def begin(
        self,
        owner: Identity,
        *,
        spec_name: str,
        options: KernelOptions,
        kernel_id: str,
        workdir_name: str | None = None,
        floor_seq: int = 0,
        found: forking.Found | None = None,
        recorded_seeds: Mapping[str, int] | None = None,
        actor: Actor | None = None,
    ) -> LambdaKernel:
        """Return a new kernel whose id nobody has used since ``floor_seq``; raises as `start`."""
        environment = self._environments.get(spec_name)
        if environment is None:
            raise NotFound(f"there is no kernelspec {spec_name!r}")
        if found is not None:
            # The first commit of the fork comes after the one that it begins with.
            floor_seq = max(floor_seq, found.origin.head.seq)
        if recorded_seeds is None:
            recorded_seeds = {} if found is not None else seeds.drawn(environment)
        record = KernelRecord(
            kernel_id=kernel_id,
            spec_name=spec_name,
            owner=owner.as_owner,
            options=options,
            workdir_name=workdir_name or uuid.uuid4().hex,
            created=utc_text(self.services.now()),
            floor_seq=floor_seq,
            origin=None if found is None else found.origin,
            holder=await self.services.replica.ready(),
            seeds=dict(recorded_seeds),
            opened_by=actor,
        )
        etag = await self.services.records.create(record)
        if found is not None:
            await beginning.hold(self.services, record, found)
            self.services.manifests.put(kernel_id, found.origin.head, found.stored)
        return self._directory.add(record, etag, environment, is_new=True)

    def source_of(self, owner: Identity, options: KernelOptions) -> LambdaKernel | None:
        """Return the kernel that is to be forked, None where a session begins with nothing.

        Raises:
            NotFound: there is none of this scope: whether another has one cannot be told.
        """
        if options.source is None:
            return None
        source = self._directory.kernels.get(options.source.kernel_id)
        if source is None or source.scope != options.scope_of(owner.as_owner, source.kernel_id):
            raise NotFound(f"Kernel does not exist: {options.source.kernel_id}")
        return source

    def get(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel as it is known here; `find` asks the record (raises NotFound)."""
        try:
            return self._directory.kernels[kernel_id]
        except KeyError:
            raise NotFound(f"there is no kernel {kernel_id}") from None

    def all(self) -> list[LambdaKernel]:
        """Return every kernel that is known here, oldest first."""
        return list(self._directory.kernels.values())

    async def complete(self) -> None:
        """Wait until the kernels of earlier gateways are known (raises StorageError)."""
        await self._directory.complete()

    async def refresh(self) -> None:
        """Bring in what other gateways did, up to some seconds ago (raises StorageError)."""
        await self._directory.refresh()
        await cut_off.end_all(self)

    async def find(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel as it is now, whichever gateway started it.

        Raises:
            NotFound: there is none.
            StorageError: S3 does not answer.
        """
        await self.services.replica.check()
        return await self._directory.find(kernel_id)

    async def reach(self, found: LambdaKernel, *, takes: bool) -> LambdaKernel:
        """Return the kernel, if no other gateway serves it.

        Args:
            found: what `find` has just returned.
            takes: it is served here from now on; else only looked at.

        Raises:
            HeldElsewhere: another gateway serves it.
            NotFound: there is none.
            StorageError: S3 does not answer.
        """
        kernel = found
        if takes:
            async with self._directory.lock(found.kernel_id):
                kernel = self.get(found.kernel_id)
                is_cut_off = cut_off.is_cut_off(kernel)
                await kernel.hold()
            if is_cut_off:
                await self.shutdown(kernel.kernel_id, cut_off.REASON)
                await cut_off.delete_state(self.services, kernel.scope)
                raise NotFound(f"there is no kernel {kernel.kernel_id}: it was {cut_off.REASON}")
        if kernel.is_held:
            return kernel
        holder = kernel.record.holder
        if holder is not None and (sighting := await self.services.replica.sight(holder)):
            raise HeldElsewhere(
                holder,
                replica_id=sighting.lease.replica_id,
                url=sighting.lease.url,
                retry_after_s=sighting.lease.duration_s,
            )
        return kernel

    async def shutdown(
        self, kernel_id: str, reason: str = "shut down", actor: Actor = GATEWAY
    ) -> None:
        """End the kernel and delete its record.

        Args:
            kernel_id: which.
            reason: why, as in "it was …"; its clients are told.
            actor: who asks, for the journal.

        Raises:
            NotFound: there is none.
            StorageError: the record could not be deleted; the kernel is as it was.
        """
        kernel = self.get(kernel_id)
        await kernel.hold()
        await self.services.records.delete(kernel_id)
        # A second request may have been faster meanwhile.
        if self._directory.kernels.pop(kernel_id, None) is not None:
            ended = EndedKernel(kernel_id=kernel_id, owner=kernel.owner, reason=reason)
            self.ended.add(ended)
        await kernel.shutdown(reason, actor)

    async def restart(self, kernel_id: str, actor: Actor = GATEWAY) -> None:
        """Restart the kernel: same id, empty namespace (raises NotFound, StorageError)."""
        await self.get(kernel_id).restart(actor=actor)

    async def interrupt(self, kernel_id: str, actor: Actor = GATEWAY) -> None:
        """Interrupt the running cell of the kernel (raises NotFound, StorageError)."""
        await self.get(kernel_id).interrupt(actor)

    def waiting(self, environment: Environment) -> int:
        """Return how many cells of this environment wait for a free container."""
        function_name = self.services.stack.function_name(environment.id)
        return self.services.dispatcher.gate(function_name).waiting

    def _in_use(self) -> bool:
        return any(
            kernel.connections or kernel.execution_state is not ExecutionState.IDLE
            for kernel in self.all()
            if kernel.is_held
        )

    def _leave(self, lease_id: str) -> None:
        for kernel in self._directory.held_under(lease_id):
            # What stands there from now on is what its record says, when it is looked at.
            self._directory.add(kernel.record, kernel.etag, kernel.environment, is_new=False)
            task = asyncio.get_running_loop().create_task(self._left(kernel))
            self.services.tasks.add(task)
            task.add_done_callback(self.services.tasks.discard)

    async def _left(self, kernel: LambdaKernel) -> None:
        await kernel.suspend(is_moved=True)
        self.on_moved(kernel)

    async def _used_seq(self, owner: Identity, options: KernelOptions, kernel_id: str) -> int:
        try:
            names.check_kernel_id(kernel_id)
        except InvalidField as problem:
            raise BadRequest(str(problem)) from problem
        if kernel_id in self._directory.kernels:
            raise PreconditionFailed(f"kernel {kernel_id} exists")
        await self.services.recorder.check_past(kernel_id, owner)
        chain = beginning.chain_of(self.services, options.scope_of(owner, kernel_id), kernel_id)
        return await chain.highest_seq()

    async def _note_fork(
        self, source: LambdaKernel, found: forking.Found, fork: LambdaKernel
    ) -> None:
        try:
            source = await self.reach(source, takes=True)
        except GatewayError:
            # Its journal is that of the gateway which serves it; the fork's own tells of it too.
            logger.info("a fork is not in the journal of its source", exc_info=True)
            return
        event = forking.told(found, fork.kernel_id, fork.record.opened_by)
        self.services.recorder.forked(source.record, event)
