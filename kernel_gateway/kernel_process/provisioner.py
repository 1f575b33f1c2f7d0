"""The kernel provisioner ``lambda-kernel``: kernels without a process, for jupyter_client.

An application that finds it named in a kernelspec has its kernel in a thread of its own, and is
told why where none can be had. Source: jupyter_client, "Kernel Provisioning".
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import List, Unicode

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernel_process.kernel import be_kernel
from kernel_gateway.kernel_process.link import GatewayLink
from kernel_gateway.kernel_process.shared_gateway import SharedGateway
from kernel_gateway.kernels.options import (
    ENV_NAMES,
    FROM,
    PROJECTS,
    RUN,
    SCOPE,
    WORKSPACE,
    KernelOptions,
)
from kernel_gateway.run_file import default_state_dir

logger = logging.getLogger(__name__)

ENDED, FAILED = 0, 1
TOKEN_FILE = "JUPYTER_TOKEN_FILE"  # noqa: S105  (a name)


class KernelThread:
    """A kernel in a thread; the gateway ends it where the whole program ends, too.

    Attributes:
        opened: done once the gateway has made the kernel, or it is clear that it will not.
        ended: done with the end of the kernel, with an exit code as of a process.
    """

    def __init__(
        self, connection_file: Path, shared: SharedGateway, spec_name: str, env: dict[str, str]
    ) -> None:
        self.opened: Future[GatewayLink] = Future()
        self.ended: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(
            be_kernel(connection_file, shared, spec_name, env, self.opened.set_result)
        )
        threading.Thread(target=self._run, name="lambda-kernel", daemon=True).start()

    def end(self) -> None:
        """Have the kernel ended, whatever it does."""
        self._soon(self._task.cancel)

    def interrupt(self) -> None:
        """Have its running cell interrupted."""
        if self.opened.done() and self.opened.exception() is None:
            link = self.opened.result()
            self._soon(lambda: self._begin(link.interrupt()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        # The task that ends with the kernel keeps it from being collected.
        task = self._loop.create_task(work)
        self._task.add_done_callback(lambda _: task.cancel())

    def _soon(self, call: Any) -> None:
        if not self.ended.done():
            self._loop.call_soon_threadsafe(call)

    def _run(self) -> None:
        exit_code = FAILED
        try:
            self._loop.run_until_complete(self._task)
            exit_code = ENDED
        except asyncio.CancelledError:
            exit_code = -signal.SIGTERM
            if not self.opened.done():
                self._fail(ConfigError("the kernel was ended before it had begun"))
        except Exception as problem:  # noqa: BLE001  (it is raised where the kernel is started)
            self._fail(problem)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self.ended.set_result(exit_code)
            self._loop.close()

    def _fail(self, problem: Exception) -> None:
        if self.opened.done():
            logger.warning("a kernel ended", extra={"reason": repr(problem)})
        else:
            self.opened.set_exception(problem)


class LambdaKernelProvisioner(LocalProvisioner):
    """Starts kernels of the gateway of a state directory, and the gateway where none runs.

    What an application gives as the kernel's environment (``LAMBDA_KERNEL_…``) goes before what
    the kernelspec says.
    """

    state_dir = Unicode(str(default_state_dir()), help="State directory of the gateway.")
    config_file = Unicode(help="Configuration of the gateway, where it has to be started.")
    spec_name = Unicode("lambda-python", help="The gateway's kernelspec: the environment.")
    token_file = Unicode(help="Where the token of the user or agent stands whose kernel it is.")
    workspace = Unicode(help="Workspace that the cells see.")
    projects = List(Unicode(), help="Folders of it that are mirrored; none = all.")
    run = Unicode(help="Run that the cells work in.")
    scope = Unicode(help="`agent`, or `execution`: an empty HOME for every cell.")
    source = Unicode(help="Kernel, or <kernel id>@<cell>, whose variables it begins with.")

    def __init__(self, **given: Any) -> None:
        """Take what the kernelspec says (raises ConfigError for what is not known)."""
        unknown = sorted(set(given) - set(self.trait_names()))
        if unknown:
            known = ", ".join(self.class_own_traits())
            raise ConfigError(
                f"metadata.kernel_provisioner.config.{unknown[0]}: is not known; known are {known}"
            )
        super().__init__(**given)
        self._kernel: KernelThread | None = None

    @property
    def has_process(self) -> bool:
        """Whether the kernel was started, and its end not yet waited for."""
        return self._kernel is not None

    async def poll(self) -> int | None:
        """Return None while the kernel lives, else its exit code."""
        if self._kernel is None:
            return ENDED
        return self._kernel.ended.result() if self._kernel.ended.done() else None

    async def wait(self) -> int | None:
        """Wait for the end of the kernel, and return its exit code."""
        if self._kernel is None:
            return ENDED
        # Cancelled by whoever loses patience, the future must stay as it is.
        code = await asyncio.shield(asyncio.wrap_future(self._kernel.ended))
        self._kernel = None
        return code

    async def send_signal(self, signum: int) -> None:
        """Do what a kernel's process does: interrupt the running cell, or end."""
        if self._kernel is not None and signum == signal.SIGINT:
            self._kernel.interrupt()
        elif self._kernel is not None and signum in (signal.SIGTERM, signal.SIGKILL):
            self._kernel.end()

    async def kill(self, restart: bool = False) -> None:
        """End the kernel."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """End the kernel."""
        await self.send_signal(signal.SIGTERM)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel, and return how to connect once the gateway has made it.

        Raises:
            GatewayError: it cannot be had; the message says why.
        """
        environ: dict[str, str] = kwargs["env"]
        env = self._choices(environ)
        KernelOptions.from_env(env)
        connection_file = Path(self.parent.connection_file)  # type: ignore[union-attr]
        shared = self._gateway(environ)
        self._kernel = KernelThread(connection_file, shared, self.spec_name, env)
        try:
            await asyncio.wrap_future(self._kernel.opened)
        except BaseException:
            self._kernel.end()
            self._kernel = None
            raise
        return self.connection_info

    def _gateway(self, environ: dict[str, str]) -> SharedGateway:
        if self.token_file:
            # Another token there is that of the application itself.
            environ = {k: v for k, v in environ.items() if k != "JUPYTER_TOKEN"}
            environ[TOKEN_FILE] = self.token_file
        return SharedGateway(
            state_dir=Path(self.state_dir).expanduser().absolute(),
            config=self.config_file or None,
            environ=environ,
        )

    def _choices(self, environ: dict[str, str]) -> dict[str, str]:
        own = {
            WORKSPACE: self.workspace,
            PROJECTS: ",".join(self.projects),
            RUN: self.run,
            SCOPE: self.scope,
            FROM: self.source,
        }
        chosen = {name: environ.get(name) or own[name] for name in ENV_NAMES}
        return {name: value for name, value in chosen.items() if value}
