"""Being a kernel: the sockets of a connection file, and a kernel of the shared gateway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from kernel_gateway.kernel_process.link import GatewayLink
from kernel_gateway.kernel_process.relay import Relay
from kernel_gateway.kernel_process.shared_gateway import SharedGateway
from kernel_gateway.kernel_process.sockets import Connection, KernelSockets


async def be_kernel(
    connection_file: Path,
    shared: SharedGateway,
    spec_name: str,
    env: dict[str, str],
    on_open: Callable[[GatewayLink], object],
) -> None:
    """Be the kernel of a connection file; return when it was shut down, or is gone.

    Cancelled, it ends the gateway's kernel.

    Args:
        connection_file: where clients connect.
        shared: the gateway; started where it does not run.
        spec_name: which kernelspec of the gateway.
        env: LAMBDA_KERNEL_… choices.
        on_open: called once the gateway has made the kernel.

    Raises:
        GatewayError: the file is no connection file, or there is no kernel to be had.
    """
    async with AsyncExitStack() as stack:
        # First of all, so that clients can connect while the gateway starts.
        sockets = KernelSockets(Connection.read(connection_file))
        stack.callback(sockets.close)
        stack.enter_context(await shared.lifelines.use())
        link = await GatewayLink.create(shared.find, spec_name, env)
        lifeline = shared.lifelines.hold(link.kernel_id)

        async def end() -> None:
            # Where the gateway did not hear of it, it sees the lifeline.
            if await link.end():
                lifeline.close()

        stack.push_async_callback(end)
        await link.open()
        on_open(link)
        await Relay(sockets, link).run()
