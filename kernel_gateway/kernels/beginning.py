"""The commit that a kernel begins with, where it begins with another's variables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.kernels import forking
from kernel_gateway.kernels.options import FROM, KernelOptions
from kernel_gateway.kernels.position import Chain
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.kernels.services import KernelServices
from lambda_kernel.contract.scope import Scope

if TYPE_CHECKING:
    from kernel_gateway.kernels.kernel import LambdaKernel


def chain_of(services: KernelServices, scope: Scope, kernel_id: str) -> Chain:
    """Return the commits of a kernel."""
    return Chain(
        store=services.store, bucket=services.stack.state, scope=scope, kernel_id=kernel_id
    )


async def found(
    services: KernelServices, source: LambdaKernel, options: KernelOptions
) -> forking.Found:
    """Return the commit of a kernel that ``options`` name; raises as `forking.find`."""
    assert options.source is not None  # noqa: S101
    record = source.record
    chain = replace(chain_of(services, source.scope, record.kernel_id), origin=record.origin)
    return await forking.find(chain, options.source, record.floor_seq)


async def hold(services: KernelServices, record: KernelRecord, begins: forking.Found) -> None:
    """Make sure that the commit to begin with has not expired before the record named it.

    Raises:
        BadRequest: it has, and the record is deleted.
        StorageError: S3 does not answer.
    """
    scope, origin = record.options.scope_of(record.owner, record.kernel_id), begins.origin
    try:
        await chain_of(services, scope, origin.kernel_id).stored_at(origin.head.seq)
    except NotFound as gone:
        await services.records.delete(record.kernel_id)
        raise BadRequest(f"{FROM}: the cell has just expired") from gone
