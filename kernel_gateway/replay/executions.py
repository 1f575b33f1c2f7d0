"""An execution as entries say it: how it ended, what it showed, its files and variables."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kernel_gateway.audit.chain import CellFinished, RecordedMessage
from kernel_gateway.audit.view import shown_outputs
from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.variables import (
    HIDDEN_NAMES,
    damage_told,
    description_of,
    parsed,
)
from kernel_gateway.objects import ObjectStore
from kernel_gateway.replay.cells import Execution
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, StoredObject, digest_of
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)


def execution_of(
    finished: CellFinished,
    messages: Sequence[RecordedMessage],
    times: tuple[str, str | None] = ("", None),
) -> Execution:
    """Return an execution without its variables.

    Args:
        finished: how it ended.
        messages: all that it published.
        times: when it began and ended; ISO 8601.
    """
    content = {} if finished.reply is None else finished.reply.content
    ename = content.get("ename") if finished.status != "ok" else None
    changes = () if finished.handler is None else finished.handler.files
    return Execution(
        status=finished.status,
        ename=finished.failure or (ename if isinstance(ename, str) else None),
        outputs=tuple(shown_outputs(messages, None)),
        files={change.path: change.digest for change in changes},
        duration_s=_duration_s(finished, times),
    )


def _duration_s(finished: CellFinished, times: tuple[str, str | None]) -> float | None:
    timings_ms: Mapping[str, float] = (
        {} if finished.gateway is None else finished.gateway.timings_ms
    )
    if timings_ms:
        return sum(timings_ms.values()) / 1000
    if times[1] is None:
        return None
    try:
        begin, end = (datetime.fromisoformat(text) for text in (times[0], times[1]))
    except ValueError:
        return None
    return (end - begin).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Whose commit says which variables there are.

    Attributes:
        finished: the cell's end.
        kernel_id, scope: whose commit it is.
    """

    finished: CellFinished
    kernel_id: str
    scope: Scope


async def with_state(
    execution: Execution, recorded: Recorded, store: ObjectStore, bucket: str
) -> Execution:
    """Return an execution with digests of its variables, where its commit is still there."""
    head = recorded.finished.head
    if head is None:
        return execution
    try:
        key = keys.commit_key(recorded.scope, recorded.kernel_id, head.seq)
        stored = (await store.get(bucket, key)).body
        if digest_of(stored) != head.digest:
            return execution
        commit = Commit.from_bytes(stored)
        described = await description_of(commit, store, bucket, recorded.scope)
        if described is None:
            return replace(execution, state={})
        objects = {each.id: each for each in commit.namespace.objects}
        return replace(execution, state=_digests(*described, objects))
    except (GatewayError, InvalidField):
        logger.info("the variables of a cell are not known any more", exc_info=True)
        return execution


def _digests(
    stored: bytes, parts: Mapping[int, bytes], objects: Mapping[int, StoredObject]
) -> dict[str, str]:
    """Return the digest of what each variable is stored in (raises VariablesUnreadable)."""
    found: dict[str, str] = {}
    with damage_told():
        data = parsed(stored)
        for names, pickle, buffers in _rows(data, parts):
            digest = _digest_of(pickle, buffers, objects)
            found |= {name: digest for name in names if _is_shown(name)}
    return found


def _rows(
    data: dict[str, Any], parts: Mapping[int, bytes]
) -> Iterator[tuple[Sequence[str], Any, Any]]:
    for number, gone in data.get("settled", ()):
        part = json.loads(parts[number])
        numbers = [start + i for start, count in part["numbers"] for i in range(count)]
        rows = zip(*json.loads(part["rest"]), strict=True)
        for name, own, (_, *pickle, _) in zip(part["names"].split(" "), numbers, rows, strict=True):
            if own not in set(gone):
                yield [name], pickle, []
    for _, names, _, _, _, pickle, buffers, _, _ in data["components"]:
        yield list(names), pickle, buffers


def _digest_of(pickle: Any, buffers: Any, objects: Mapping[int, StoredObject]) -> str:
    object_id, offset, size_bytes = pickle
    chunks = [[chunk.digest for chunk in objects[n].chunks] for n in (object_id, *buffers)]
    text = json.dumps([chunks, offset, size_bytes])
    return hashlib.sha256(text.encode()).hexdigest()


def _is_shown(name: str) -> bool:
    return name not in HIDDEN_NAMES and name[:1] not in "<("
