"""Makes a function's containers: bubblewrap, the ways to S3 and STS, the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_gateway.environments.environment import Environment
from kernel_gateway.local import seccomp
from kernel_gateway.local.aws_root import AwsFront, serve_container
from kernel_gateway.local.bubblewrap import ContainerSpec, find_bwrap, top_level
from kernel_gateway.local.container import BubblewrapContainer
from kernel_gateway.local.container_init import PORTS, WORKING_DIRECTORY
from kernel_gateway.local.container_log import ContainerLog
from kernel_gateway.local.execution_role import ExecutionRole
from kernel_gateway.local.interpreter import Interpreter
from kernel_gateway.local.relay import CONTAINER_CONNECTIONS, Relay, UnixAddress
from kernel_gateway.local.warm_container import Function, Launched
from lambda_kernel.contract.keys import Stack

MIB = 1024 * 1024
SHIM = Path(__file__).with_name("container_init.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a function's containers are made of.

    Attributes:
        environment: its execution environment.
        interpreter: the Python in it.
    """

    environment: Environment
    interpreter: Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLauncher:
    """Makes containers with bubblewrap.

    Attributes:
        stack: names of everything.
        region: AWS region.
        handler_uri: where the bootstrap finds the handler.
        bootstrap: host path of the bootstrap.
        runtimes: by function name.
        role: gives each container its credentials.
        storage: S3.
        front: STS and Secrets Manager.
        logs: the folder of container logs.
    """

    stack: Stack
    region: str
    handler_uri: str
    bootstrap: Path
    runtimes: Mapping[str, Runtime]
    role: ExecutionRole
    storage: UnixAddress
    front: AwsFront
    logs: Path

    @property
    def code(self) -> Mapping[str, Path]:
        """The files that stand for a function's deployment package."""
        return {"bootstrap.py": self.bootstrap, "container_init.py": SHIM}

    async def launch(self, function: Function, container_id: str) -> Launched:
        """Return a container whose shim is ready to begin (raises StartError)."""
        log = ContainerLog.open(self.logs / function.name / f"{container_id}.jsonl")
        try:
            container = await BubblewrapContainer.spawn(self._spec(function), log)
        except BaseException:
            log.close()
            raise
        try:
            relay = await Relay.open(container.listeners.s3, self.storage, CONTAINER_CONNECTIONS)
            source = f"{function.name}/{container_id}"
            server = serve_container(self.front, container.listeners.aws, source)
        except BaseException:
            container.kill()
            raise

        async def close() -> None:
            await relay.close()
            server.stop()
            await server.close_all_connections()

        return Launched(container=container, log=log, close=close)

    async def begin(self, launched: Launched, function: Function, container_id: str) -> None:
        """Let its runtime start (raises StartError)."""
        credentials = await self.role.environment(function.name)
        environment = {**self._environment(function, container_id), **credentials}
        await launched.container.begin(environment)

    def _spec(self, function: Function) -> ContainerSpec:
        runtime = self.runtimes[function.name]
        links, folders = top_level()
        return ContainerSpec(
            bwrap=find_bwrap(),
            as_root=os.geteuid() == 0,
            interpreter=runtime.interpreter,
            bootstrap=str(self.bootstrap),
            shim=str(SHIM),
            links=links,
            folders=folders,
            ephemeral_bytes=runtime.environment.ephemeral_mb * MIB,
            shared_memory_bytes=runtime.environment.memory_mb * MIB,
            seccomp=seccomp.filter_for(runtime.environment),
        )

    def _environment(self, function: Function, container_id: str) -> dict[str, str]:
        runtime_port, s3_port, aws_port = PORTS
        environment = self.runtimes[function.name].environment
        return {
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(environment.memory_mb),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": container_id,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{runtime_port}",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{s3_port}",
            "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{aws_port}",
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": f"http://127.0.0.1:{aws_port}",
            "_HANDLER": "handler.handler",
            "LAMBDA_TASK_ROOT": WORKING_DIRECTORY,
            "TZ": ":UTC",
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LKG_HANDLER_URI": self.handler_uri,
            **settings_environment(self.stack, environment),
        }


def settings_environment(stack: Stack, environment: Environment) -> dict[str, str]:
    """Return our own variables of a function; none of them is secret."""
    settings = {
        "LKG_PREFIX": stack.prefix,
        "LKG_STACK": stack.stack,
        "LKG_ACCOUNT_ID": stack.account_id,
        "LKG_TIER": environment.tier,
        "LKG_PRELOAD": ",".join(environment.preload),
        "LKG_EPHEMERAL_MB": str(environment.ephemeral_mb),
        "LKG_HOME_MB": str(environment.home_mb),
        "LKG_KEPT_OUTPUT_MB": str(environment.kept_output_mb),
        "LKG_MEMORY_MB": str(environment.memory_mb),
        "LKG_ALLOW_DEGRADED": "1" if environment.allow_degraded else "0",
        "LKG_MASK_CONNECTORS": "1" if environment.mask_connectors else "0",
        "LKG_RECORDED_RANDOMNESS": "1" if environment.recorded_randomness else "0",
    }
    if stack.governed_read_prefix is not None:
        settings["LKG_GOVERNED_READ_PREFIX"] = stack.governed_read_prefix
    return settings
