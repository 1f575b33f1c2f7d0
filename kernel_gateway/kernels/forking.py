"""Where a fork begins: a commit of another kernel, found by the number of its cell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from kernel_gateway.audit.events import SessionForked
from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.kernels.options import FROM, ForkSource
from kernel_gateway.kernels.position import Chain, Origin
from kernel_gateway.messaging.caller import GATEWAY, Actor
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

READ_AT_ONCE = 16
SHOWN_RANGES_COUNT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A commit to start from.

    Attributes:
        origin: which one.
        stored: its bytes.
    """

    origin: Origin
    stored: bytes


async def find(chain: Chain, source: ForkSource, floor_seq: int) -> Found:
    """Return the commit that ``source`` names.

    Numbers of cells begin again with a restart: of several cells the newest counts. Cells that the
    source itself was forked from count as its own.

    Args:
        chain: of the source kernel; its ``origin`` is where that one was forked, if it was.
        source: what the client asked for.
        floor_seq: commits of the source up to this number belong to before its last restart.

    Raises:
        BadRequest: there is no such commit; the text says which there are.
        StorageError: S3 does not answer.
    """
    counts: set[int] = set()
    async for found in _newest_first(chain):
        origin = found.origin
        if source.cell is None:
            is_own = origin.kernel_id == chain.kernel_id
            is_wanted = origin.head.seq > floor_seq if is_own else chain.origin is not None
        else:
            is_wanted = origin.execution_count == source.cell
        if is_wanted:
            return found
        counts.add(origin.execution_count)
    what = "no committed cell" if source.cell is None else f"no state of cell {source.cell}"
    raise BadRequest(f"{FROM}: kernel {source.kernel_id} has {what}; {kept_text(counts)}")


def told(found: Found, kernel_id: str, actor: Actor | None) -> SessionForked:
    """Return what the journal of a source says of its fork ``kernel_id``."""
    origin = found.origin
    return SessionForked(
        kernel_id=kernel_id,
        at=origin.head,
        at_kernel_id=origin.kernel_id,
        execution_count=origin.execution_count,
        actor=actor or GATEWAY,
    )


def kept_text(counts: Iterable[int]) -> str:
    """Return which cells there are, for people: ``cells 1-3, 5 are kept``."""
    ranges: list[list[int]] = []
    for count in sorted(set(counts)):
        if ranges and ranges[-1][-1] == count - 1:
            ranges[-1][-1] = count
        else:
            ranges.append([count, count])
    if not ranges:
        return "no cell is kept"
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    if len(shown) > SHOWN_RANGES_COUNT:
        shown = ["…", *shown[-SHOWN_RANGES_COUNT:]]
    is_one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"cell {shown[0]} is kept" if is_one else f"cells {', '.join(shown)} are kept"


async def _newest_first(chain: Chain) -> AsyncIterator[Found]:
    """Yield the commits of a kernel that are no void ones, then those it was forked from."""
    highest: int | None = None
    seen: set[str] = set()
    while chain.kernel_id not in seen:
        seen.add(chain.kernel_id)
        begins = chain.origin
        async for found, commit in _commits(chain, highest):
            if commit.parent_kernel_id is not None and commit.parent is not None:
                begins = begins or Origin(
                    kernel_id=commit.parent_kernel_id, head=commit.parent, execution_count=0
                )
            if found is not None:
                yield found
        if begins is None:
            return
        chain, highest = replace(chain, kernel_id=begins.kernel_id, origin=None), begins.head.seq


async def _commits(chain: Chain, highest: int | None) -> AsyncIterator[tuple[Found | None, Commit]]:
    seqs = [seq for seq in await chain.seqs() if highest is None or seq <= highest]
    seqs.sort(reverse=True)
    for first in range(0, len(seqs), READ_AT_ONCE):
        batch = seqs[first : first + READ_AT_ONCE]
        for found in await asyncio.gather(*(_read(chain, seq) for seq in batch)):
            if found is not None:
                yield found


async def _read(chain: Chain, seq: int) -> tuple[Found | None, Commit] | None:
    try:
        stored = await chain.stored_at(seq)
        commit = Commit.from_bytes(stored)
    except NotFound:
        return None
    except InvalidField:
        logger.warning("a commit cannot be read", exc_info=True)
        return None
    if commit.void:
        return None, commit
    head = Head(seq=seq, digest=digest_of(stored))
    origin = Origin(kernel_id=chain.kernel_id, head=head, execution_count=commit.execution_count)
    return Found(origin=origin, stored=stored), commit
