"""The inputs of a session, for history_request: what is remembered, and what its commit holds.

Cells store ``In`` with the session. A gateway that has not seen all cells of a kernel, because it
was started later, reads it there when somebody asks; no cell costs a request more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.variables import (
    INDEX_BYTES,
    VariablesUnreadable,
    bytes_of,
    damage_told,
    described,
    parsed,
)
from kernel_gateway.messaging.replies import PastInput
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

MAX_PARTS = 128
"""As many as a cell stores."""
MAX_COUNT = 1 << 53
"""Of an input's number: what any client's JSON can hold."""


async def past_inputs(lineage: Lineage, services: KernelServices) -> list[PastInput]:
    """Return the inputs of a kernel, oldest first, as far as they are remembered or can be read.

    Those of before a restart are only remembered.
    """
    remembered = services.history.of(lineage.record.kernel_id)
    try:
        return await _completed(remembered, lineage, services)
    except GatewayError:
        logger.warning("stored inputs cannot be read", exc_info=True)
        return remembered


async def _completed(
    remembered: list[PastInput], lineage: Lineage, services: KernelServices
) -> list[PastInput]:
    session = lineage.session_number
    position = await lineage.look()
    known = {each.count for each in remembered if each.session == session}
    if known.issuperset(range(1, lineage.execution_count + 1)):
        return remembered
    commit = await lineage.commit_at(position)
    if commit is None:
        return remembered
    sources = await _inputs_of(commit, services.store, services.stack.state, lineage.scope)
    stored = [
        PastInput(session=session, count=count, source=source)
        for count, source in sources.items()
        if source and count not in known
    ]
    return sorted((*remembered, *stored), key=lambda each: (each.session, each.count))


async def _inputs_of(
    commit: Commit, store: ObjectStore, bucket: str, scope: Scope
) -> dict[int, str]:
    """Return ``In``: the inputs by number."""
    if not commit.namespace.index:
        return {}
    objects = {each.id: each for each in commit.namespace.objects}
    (index,) = described(objects, [commit.namespace.index])
    stored = await bytes_of(index, store, bucket, scope)
    with damage_told():
        refs = await asyncio.to_thread(_refs, stored)
    if sum(size for _, _, size in refs) > INDEX_BYTES:
        # Also where each part of it is the same one.
        raise VariablesUnreadable("the stored inputs are too large")
    found = described(objects, sorted({number for number, _, _ in refs}))
    bodies = await asyncio.gather(*(bytes_of(each, store, bucket, scope) for each in found))
    by_number = {each.id: body for each, body in zip(found, bodies, strict=True)}
    return await asyncio.to_thread(_joined, [by_number[n][at : at + size] for n, at, size in refs])


def _refs(stored: bytes) -> list[tuple[int, int, int]]:
    """Return object, place and size of each part (raises what `damage_told` takes)."""
    refs: list[Any] = parsed(stored)["history"][-MAX_PARTS:]
    return [(int(number), int(at), int(size)) for number, at, size in refs]


def _joined(parts: list[bytes]) -> dict[int, str]:
    """Return the inputs in ``parts``, of which a later one replaces all from its first number on.

    A child has written them: no number in them makes room for anything.
    """
    sources: dict[int, str] = {}
    with damage_told():
        for stored in parts:
            _add(sources, stored)
    return sources


def _add(sources: dict[int, str], stored: bytes) -> None:
    if stored[:1] != b"{":
        # A pickle, as earlier versions stored it: only a container opens those.
        return
    part = json.loads(stored)
    first, raw = int(part["first"]), [str(source) for source in part["raw"]]
    if not 0 <= first <= MAX_COUNT:
        raise ValueError(first)
    for count in [each for each in sources if each >= first]:
        del sources[count]
    sources |= enumerate(raw, first)
