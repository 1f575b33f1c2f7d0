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
from kernel_gateway.kernels.variables import bytes_of, damage_told, described, parsed
from kernel_gateway.messaging.replies import PastInput
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

MAX_PARTS = 128
"""As many as a cell stores."""
MAX_GAP = 1_000_000
"""Cells that left no trace, between two that did."""


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
        for count, source in enumerate(sources)
        if source and count not in known
    ]
    return sorted((*remembered, *stored), key=lambda each: (each.session, each.count))


async def _inputs_of(commit: Commit, store: ObjectStore, bucket: str, scope: Scope) -> list[str]:
    """Return ``In``: the inputs by number, "" where there is none."""
    if not commit.namespace.index:
        return []
    objects = {each.id: each for each in commit.namespace.objects}
    (index,) = described(objects, [commit.namespace.index])
    stored = await bytes_of(index, store, bucket, scope)
    with damage_told():
        refs = [(int(number), int(at), int(size)) for number, at, size in _refs(stored)]
    found = described(objects, sorted({number for number, _, _ in refs}))
    bodies = await asyncio.gather(*(bytes_of(each, store, bucket, scope) for each in found))
    by_number = {each.id: body for each, body in zip(found, bodies, strict=True)}
    sources: list[str] = []
    with damage_told():
        for number, at, size in refs:
            _add(sources, by_number[number][at : at + size])
    return sources


def _refs(stored: bytes) -> list[Any]:
    refs: list[Any] = parsed(stored)["history"]
    return refs[-MAX_PARTS:]


def _add(sources: list[str], stored: bytes) -> None:
    if stored[:1] != b"{":
        # A pickle, as earlier versions stored it: only a container opens those.
        return
    part = json.loads(stored)
    first, raw = int(part["first"]), [str(source) for source in part["raw"]]
    if not 0 <= first <= len(sources) + len(raw) + MAX_GAP:
        raise ValueError(first)
    sources += [""] * (first - len(sources))
    sources[first:] = raw
