"""What became of a cell: its own outcome, else what the commit point says (the void protocol)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.dispatch.failures import (
    MAY_HAVE_COMMITTED,
    Trouble,
    trouble_from,
    trouble_of,
)
from kernel_gateway.errors import (
    ForgedStream,
    InvokeError,
    NotFound,
    PreconditionFailed,
    Started,
    StorageError,
)
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.outcome import Outcome
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What stands at the commit point of a cell.

    Attributes:
        known: False where storage would not say.
        commit: the cell's own commit, or None where it has none and can have none any more.
        stored: the bytes of ``commit``.
        foreign: another writer's commit holds the place.
    """

    known: bool = True
    commit: Commit | None = None
    stored: bytes | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What of an invocation says where it commits; see Invocation's attributes."""

    kernel_id: str
    scope: Scope
    seq: int
    parent_head: Head | None
    parent_kernel_id: str | None
    request_id: str
    execution_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The end of a cell, as the gateway knows it.

    Attributes:
        outcome: authentic or adopted; None where there is none.
        trouble: what went wrong, or None where the cell simply ran (also when its code raised).
        reply: the body of the reply (``msg_type``, ``content``, ``metadata``), where there is one.
        head: the cell's commit, where it committed.
        stored: the bytes of that commit, where they are at hand.
        adopted: the outcome comes from the commit, not from the response.
        attached: what the outcome names and brought with it, by digest.
        seq_used: something stands at the cell's ``seq``: it must not be used again.
        position_known: False where the kernel must look for its head again.
    """

    outcome: Outcome | None = None
    trouble: Trouble | None = None
    reply: dict[str, Any] | None = None
    head: Head | None = None
    stored: bytes | None = None
    adopted: bool = False
    attached: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    seq_used: bool = False
    position_known: bool = True

    @property
    def committed(self) -> bool:
        """Whether the session advanced."""
        return self.head is not None


@dataclass(slots=True)
class Heard:
    """What authentic frames have said so far.

    Attributes:
        started: user code began.
        reply: the reply body.
        outcome: the last frame's.
        stored: the commit's bytes, where the outcome frame carries them.
        attached: what the outcome names and brought with it, by digest.
    """

    started: bool = False
    reply: dict[str, Any] | None = None
    outcome: Outcome | None = None
    stored: bytes | None = field(default=None, repr=False)
    attached: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPoint:
    """Where a cell commits, or has committed, or never will.

    Attributes:
        store: S3.
        bucket: the state bucket.
        pauses_s: between attempts to reach it; the store itself retries too.
    """

    store: ObjectStore
    bucket: str
    pauses_s: tuple[float, ...]


async def claim(invocation: Attempt | Invocation, point: CommitPoint) -> Claim:
    """Take the cell's commit point, or find what holds it.

    Puts a void commit at the cell's ``seq``. Success: the cell is lost, and no late writer can
    commit any more. Refused: what stands there is read.

    Source: storage.md, "The commit".
    """
    for pause_s in (*point.pauses_s, None):
        try:
            return await _claim_once(invocation, point.store, point.bucket)
        except (StorageError, NotFound):
            logger.warning("the commit point of a cell cannot be reached", exc_info=True)
            if pause_s is not None:
                await asyncio.sleep(pause_s)
    return Claim(known=False)


async def settle_outcome(
    invocation: Invocation, heard: Heard, outcome: Outcome, point: CommitPoint
) -> Settled:
    """Return the end of a cell whose outcome came."""
    if outcome.committed:
        reply = heard.reply
        if reply is None:
            found = await claim(invocation, point)
            reply = found.commit.reply if found.commit is not None else None
        return Settled(
            outcome=outcome,
            trouble=trouble_of(outcome),
            reply=reply,
            head=outcome.head,
            stored=heard.stored,
            attached=heard.attached,
            seq_used=True,
        )
    trouble = trouble_of(outcome, must_commit=invocation.commit)
    unsure = invocation.commit and outcome.started and outcome.status in MAY_HAVE_COMMITTED
    if not unsure:
        return Settled(outcome=outcome, trouble=trouble, reply=heard.reply, attached=heard.attached)
    found = await claim(invocation, point)
    return _from_claim(found, trouble, outcome)


async def settle_silence(
    invocation: Invocation, heard: Heard, problem: InvokeError, point: CommitPoint
) -> Settled:
    """Return the end of a cell whose outcome never came, or cannot be believed."""
    trouble = trouble_from(problem, seen_started=heard.started)
    if problem.started is Started.NO or not invocation.commit:
        return Settled(trouble=trouble)
    found = await claim(invocation, point)
    settled = _from_claim(found, trouble, None)
    if isinstance(problem, ForgedStream) and settled.adopted:
        # The session did advance, and the client must know; what the stream said stays unbelieved.
        return Settled(
            trouble=trouble, head=settled.head, stored=settled.stored, adopted=True, seq_used=True
        )
    return settled


async def settle_left(attempt: Attempt | Invocation, point: CommitPoint) -> Settled:
    """Return the end of a cell that nobody waits for any more (raises StorageError)."""
    found = await claim(attempt, point)
    if not found.known:
        raise StorageError(
            f"S3 does not say whether the cell at commit {attempt.seq} of kernel "
            f"{attempt.kernel_id} has committed; try again"
        )
    return _from_claim(found, None, None)


def _from_claim(found: Claim, trouble: Trouble | None, outcome: Outcome | None) -> Settled:
    if not found.known or found.foreign:
        return Settled(outcome=outcome, trouble=trouble, seq_used=True, position_known=False)
    if found.commit is None or found.stored is None:
        return Settled(outcome=outcome, trouble=trouble, seq_used=True)
    adopted = found.commit.adopt(found.stored)
    return Settled(
        outcome=adopted,
        trouble=trouble_of(adopted),
        reply=found.commit.reply or None,
        head=adopted.head,
        stored=found.stored,
        adopted=True,
        seq_used=True,
    )


async def _claim_once(invocation: Attempt | Invocation, store: ObjectStore, bucket: str) -> Claim:
    key = keys.commit_key(invocation.scope, invocation.kernel_id, invocation.seq)
    void = Commit(
        kernel_id=invocation.kernel_id,
        scope_hash=invocation.scope.hash,
        seq=invocation.seq,
        parent=invocation.parent_head,
        parent_kernel_id=invocation.parent_kernel_id,
        void=True,
        request_id=invocation.request_id,
        execution_count=invocation.execution_count,
    )
    try:
        await store.put(bucket, key, void.to_bytes(), if_absent=True)
    except PreconditionFailed:
        return _read_claim(invocation, (await store.get(bucket, key)).body)
    return Claim()


def _read_claim(invocation: Attempt | Invocation, stored: bytes) -> Claim:
    try:
        commit = Commit.from_bytes(stored)
    except InvalidField:
        logger.exception("a commit cannot be read")
        return Claim(foreign=True)
    ours = (commit.kernel_id, commit.scope_hash, commit.seq, commit.request_id) == (
        invocation.kernel_id,
        invocation.scope.hash,
        invocation.seq,
        invocation.request_id,
    )
    if not ours:
        return Claim(foreign=True)
    if commit.void:
        return Claim()
    return Claim(commit=commit, stored=stored)


def matching_stored(outcome: Outcome, buffers: tuple[bytes, ...]) -> bytes | None:
    """Return the commit's bytes if the outcome frame carries them, checked by digest."""
    if outcome.head is None or not buffers or digest_of(buffers[0]) != outcome.head.digest:
        return None
    return buffers[0]


def attached_to(outcome: Outcome, buffers: tuple[bytes, ...]) -> dict[str, bytes]:
    """Return what the outcome frame carries of the lists that the outcome names, by digest."""
    witness = outcome.witness
    if witness is None:
        return {}
    lists = (witness.inputs, witness.leaves)
    named = {witness.container.packages, *(each.digest for each in lists if each is not None)}
    return {digest: body for body in buffers if (digest := digest_of(body)) in named}
