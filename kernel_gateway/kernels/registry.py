"""All kernels of this gateway, and their durable records."""

from __future__ import annotations

from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.options import KernelOptions


class KernelRegistry:
    """The kernels by id. Ownership is checked by the caller (`identity.may_see`, `may_execute`)."""

    async def open(self) -> None:
        """Read the frame key and every kernel record of the deployment (raises StorageError)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop what runs; the records stay, so that the next gateway finds its kernels."""
        raise NotImplementedError

    async def start(
        self,
        owner: Identity,
        *,
        spec_name: str,
        options: KernelOptions,
        kernel_id: str | None = None,
    ) -> LambdaKernel:
        """Return a new kernel, idle, whose record is durable.

        Raises:
            NotFound: there is no such kernelspec.
            BadRequest: ``kernel_id`` is not a lower-case UUID.
            PreconditionFailed: a kernel of this id exists.
            StorageError: the record could not be written.
        """
        raise NotImplementedError

    def get(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel (raises NotFound)."""
        raise NotImplementedError

    def all(self) -> list[LambdaKernel]:
        """Return every kernel, oldest first."""
        raise NotImplementedError

    async def shutdown(self, kernel_id: str) -> None:
        """End the kernel and delete its record (raises NotFound, StorageError)."""
        raise NotImplementedError

    async def restart(self, kernel_id: str) -> None:
        """Restart the kernel: same id, empty namespace (raises NotFound, StorageError)."""
        raise NotImplementedError

    async def interrupt(self, kernel_id: str) -> None:
        """Interrupt the running cell of the kernel (raises NotFound, StorageError)."""
        raise NotImplementedError
