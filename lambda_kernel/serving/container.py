"""What one warm container holds between invocations, and how it comes up."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import resource
import site
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lambda_kernel.contract import keys
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Probe
from lambda_kernel.contract.witness import ContainerFacts
from lambda_kernel.isolation import reexec
from lambda_kernel.isolation.namespaces import Room
from lambda_kernel.serving import credentials, handler, probing, runtime_api
from lambda_kernel.serving.cache import DownloadCache
from lambda_kernel.serving.connectors import Connectors, SecretsManagerReader
from lambda_kernel.serving.credentials import Credentials, RoleAssumer, StsRoleAssumer
from lambda_kernel.serving.homes import HomeLimits, Homes, others_are_hidden
from lambda_kernel.serving.objects import ObjectStore, S3ObjectStore
from lambda_kernel.serving.packages import PackageList
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.segments import SegmentCache
from lambda_kernel.serving.session_objects import Shelf
from lambda_kernel.serving.snapshots import Snapshots
from lambda_kernel.serving.standing import Standing
from lambda_kernel.serving.sweep import Sweeper
from lambda_kernel.serving.zygotes import ZygoteLaunch, Zygotes

logger = logging.getLogger(__name__)

CACHE_FOLDER = "/tmp/.lkg-cache"  # noqa: S108  (the only place with room on AWS Lambda)
HANDLER_FOLDER = "/tmp/.lkg-handler"  # noqa: S108  (as bootstrap.py names it)
CACHE_SHARE = 0.4
CHUNK_SHARE = 0.25
DORMANT_SHARE = 0.25
"""Of the ephemeral storage, for HOMEs of scopes that are not served now."""

HASH_SEED = "0"
"""In every environment: the order of a set must not change from a cell to the next."""

ZYGOTE_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": HASH_SEED,
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
"""Added to the clean environment of a zygote, and so of every cell."""

REPRODUCIBLE_ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "946684800"}
"""Added too where randomness is recorded. Files that are made of the same have the same bytes
where a program asks for this moment (2000-01-01) instead of the clock.
Source: reproducible-builds.org, SOURCE_DATE_EPOCH."""


TOLD_VARIABLES = ("PYTHONHASHSEED", "TZ", "LANG", "LC_ALL", "SOURCE_DATE_EPOCH")
"""What a replay needs of the environment; the audit trail holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the function's environment says about this container.

    Attributes:
        stack: names of buckets and roles.
        handler_digest: of the staged handler, which the frame key stands beside.
        tier: isolation tier.
        preload: modules that a zygote imports ahead.
        ephemeral_bytes, memory_bytes: sizes of the container.
        home_bytes: what a HOME may measure to be saved.
        kept_output_bytes: what is kept of an output that is too long to be sent; 0 = nothing.
        container_id: which container this is.
        runtime_api: address of the Runtime API.
        mask_connectors: replace connector values in what a cell prints.
        allow_degraded: run cells although the probe failed.
        recorded_randomness: what a cell gets at random can be replayed.
        function_version: of the function's code.
        alone_on_machine: a Lambda micro-VM, where this process need not be pid 1.
    """

    stack: Stack
    handler_digest: str
    tier: str
    preload: tuple[str, ...]
    ephemeral_bytes: int
    memory_bytes: int
    home_bytes: int
    kept_output_bytes: int
    container_id: str
    runtime_api: str
    mask_connectors: bool
    allow_degraded: bool
    recorded_randomness: bool
    function_version: str
    alone_on_machine: bool

    @classmethod
    def from_platform(cls, variables: Mapping[str, str]) -> Settings:
        """Return the settings in the function's environment.

        Raises:
            KeyError: a variable is missing.
        """
        stack = Stack(
            prefix=variables.get("LKG_PREFIX", "lkg-"),
            stack=variables.get("LKG_STACK", "prod"),
            account_id=variables.get("LKG_ACCOUNT_ID", "000000000000"),
            governed_read_prefix=variables.get("LKG_GOVERNED_READ_PREFIX") or None,
        )
        memory_mb = variables.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "2048")
        return cls(
            stack=stack,
            handler_digest=variables["LKG_HANDLER_URI"].split("/")[-2],
            tier=variables.get("LKG_TIER", "process"),
            preload=tuple(filter(None, variables.get("LKG_PRELOAD", "").split(","))),
            ephemeral_bytes=int(variables.get("LKG_EPHEMERAL_MB", "2048")) * 1024**2,
            memory_bytes=int(variables.get("LKG_MEMORY_MB", memory_mb)) * 1024**2,
            home_bytes=int(variables.get("LKG_HOME_MB", "2048")) * 1024**2,
            kept_output_bytes=int(variables.get("LKG_KEPT_OUTPUT_MB", "256")) * 1024**2,
            container_id=variables.get("AWS_LAMBDA_LOG_STREAM_NAME", ""),
            runtime_api=variables["AWS_LAMBDA_RUNTIME_API"],
            mask_connectors=variables.get("LKG_MASK_CONNECTORS", "1") != "0",
            allow_degraded=variables.get("LKG_ALLOW_DEGRADED", "") == "1",
            recorded_randomness=variables.get("LKG_RECORDED_RANDOMNESS", "1") != "0",
            function_version=variables.get("AWS_LAMBDA_FUNCTION_VERSION", ""),
            alone_on_machine=stack.stack != "local" and "AWS_EXECUTION_ENV" in variables,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Everything that outlives an invocation.

    Attributes:
        settings: see there.
        frame_key: the secret beside the staged handler.
        store: S3 with the credentials that ``use`` chose last.
        use: makes ``store`` sign with other credentials; None = with none.
        execution_role: the function's own credentials.
        assumer: STS.
        count: of AWS requests.
        pool: threads for requests.
        cache, homes, snapshots: what is kept warm of workspaces, HOMEs and variables.
        zygotes, sweeper: processes.
        standing: of the serving process, before any cell ran.
        probe: the isolation that was measured.
        shadowable: top-level names of the image's packages; a HOME that has one of them needs a
            zygote that has not imported them.
        packages: what the image has.
        facts: what the container is, for the audit trail.
        clock, wall_clock: seconds, monotonic and Unix.
    """

    settings: Settings
    frame_key: bytes
    store: ObjectStore
    use: Callable[[Credentials | None], None]
    execution_role: Credentials
    assumer: RoleAssumer
    count: CallCount
    pool: Pool
    cache: DownloadCache
    homes: Homes
    snapshots: Snapshots
    connectors: Connectors
    zygotes: Zygotes
    sweeper: Sweeper
    standing: Standing
    probe: Probe
    shadowable: frozenset[str]
    packages: PackageList
    facts: ContainerFacts
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    @property
    def shortfall(self) -> str | None:
        """Why no cell may run here; None where one may."""
        if self.settings.allow_degraded:
            return None
        return probing.shortfall(self.probe, self.settings.tier)


def serve(stage: reexec.Stage2) -> None:
    """Bring the container up and serve until it is spent or the Runtime API is gone."""
    _forget_import_paths()
    settings = Settings.from_platform(stage.platform)
    api = runtime_api.RuntimeApi(settings.runtime_api)
    try:
        container = open_container(stage, settings)
    except Exception as error:
        logger.exception("the container cannot serve")
        api.fail_init(error)
        sys.exit(1)
    # What is there by now stays: collections look at what cells leave only, and take 0.4 ms.
    gc.collect()
    gc.freeze()
    try:
        if not settings.alone_on_machine:
            api.end_with_platform()
        runtime_api.serve(
            api,
            lambda event, answer: handler.handle(event, answer, container),
            # A cell leaves cycles that hold its values, keys and buffers of requests.
            between=gc.collect,
        )
    except runtime_api.RuntimeApiError:
        logger.exception("the container ends")
        sys.exit(1)


def open_container(stage: reexec.Stage2, settings: Settings) -> Container:
    """Return the container, with a zygote that is starting."""
    _raise_file_limit()
    task_root = stage.platform.get("LAMBDA_TASK_ROOT", "")
    emptied = {task_root, HANDLER_FOLDER} & {stage.handler_dir}
    sweeper = Sweeper.create(lambda_machine=settings.alone_on_machine, emptied=emptied)
    zygotes = Zygotes(_launch(stage, settings, tier=settings.tier), sweeper)
    # The zygote takes seconds to be ready: it starts before everything else.
    zygote = zygotes.get(bare=False)
    count = CallCount()
    clients = credentials.open_clients(stage.platform, count.called)
    role = credentials.execution_role(stage.platform)
    clients.swappable.swap(role)
    store = S3ObjectStore(clients.s3, clients.requests)
    frame_key = store.get(settings.stack.overflow, keys.frame_key_key(settings.handler_digest))
    found = probing.measure(_demand(stage, settings), zygote, sweeper)
    if settings.allow_degraded and found.tier != settings.tier:
        zygotes.close()
        zygotes = Zygotes(_launch(stage, settings, tier=found.tier), sweeper)
        zygotes.get(bare=False)
    pool, packages = Pool(count), PackageList.found()
    stack = settings.stack
    container = Container(
        settings=settings,
        frame_key=frame_key,
        store=store,
        use=clients.swappable.swap,
        execution_role=role,
        assumer=StsRoleAssumer(clients.sts, stack.role_arn(stack.scoped_role)),
        count=count,
        pool=pool,
        cache=DownloadCache.open(Path(CACHE_FOLDER), int(settings.ephemeral_bytes * CACHE_SHARE)),
        homes=Homes(store, stack.state, pool, limits=_home_limits(settings, found)),
        snapshots=Snapshots(
            Shelf(
                store=store,
                bucket=stack.state,
                pool=pool,
                cache=SegmentCache(int(settings.memory_bytes * CHUNK_SHARE)),
            )
        ),
        connectors=Connectors(SecretsManagerReader(clients.secrets), stack),
        zygotes=zygotes,
        sweeper=sweeper,
        standing=Standing.of(os.getpid()),
        probe=found,
        shadowable=_installed_names(),
        packages=packages,
        facts=_facts(stage, settings, packages),
    )
    sweeper.places.setdefault("/tmp", set()).add(os.path.basename(CACHE_FOLDER))  # noqa: S108, PTH119
    sweeper.sweep_files()
    return container


def _demand(stage: reexec.Stage2, settings: Settings) -> probing.Demand:
    return probing.Demand(
        tier=settings.tier,
        alone_on_machine=settings.alone_on_machine,
        platform=stage.platform,
        degraded=stage.degraded,
    )


def _home_limits(settings: Settings, found: Probe) -> HomeLimits:
    # Where the descriptors of this process can be opened, nothing is parked in them.
    share = DORMANT_SHARE if found.non_dumpable else 0.0
    return HomeLimits(
        saved_bytes=settings.home_bytes,
        dormant_bytes=int(settings.ephemeral_bytes * share),
        others_hidden=others_are_hidden(found.tier),
    )


def _launch(stage: reexec.Stage2, settings: Settings, *, tier: str) -> ZygoteLaunch:
    room = Room(tmp_bytes=settings.ephemeral_bytes, shared_memory_bytes=settings.memory_bytes)
    return ZygoteLaunch(
        exec_only=not stage.degraded,
        code_fd=stage.code_fd,
        environment=_zygote_environment(stage, settings),
        preload=settings.preload,
        room=room if tier == probing.NAMESPACES_TIER else None,
    )


def _zygote_environment(stage: reexec.Stage2, settings: Settings) -> dict[str, str]:
    reproducible = REPRODUCIBLE_ENVIRONMENT if settings.recorded_randomness else {}
    return {**stage.environment, **ZYGOTE_ENVIRONMENT, **reproducible}


def _facts(stage: reexec.Stage2, settings: Settings, packages: PackageList) -> ContainerFacts:
    environment = _zygote_environment(stage, settings)
    return ContainerFacts(
        python=platform.python_version(),
        architecture=platform.machine(),
        function_version=settings.function_version,
        packages=packages.digest,
        variables={name: environment[name] for name in TOLD_VARIABLES if name in environment},
    )


def _forget_import_paths() -> None:
    """Import by name from the image only; our own package is found by its own path."""
    sys.path[:] = [e for e in sys.path if e not in ("", "/") and not e.startswith("/proc/")]


def _installed_names() -> frozenset[str]:
    names: set[str] = set()
    for folder in site.getsitepackages():
        with contextlib.suppress(OSError):
            names.update(path.name.partition(".")[0] for path in Path(folder).iterdir())
    return frozenset(names)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
