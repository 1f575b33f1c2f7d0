"""A cell as others' tools read it: an in-toto Statement with a SLSA Provenance predicate. Pure.

Source: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md,
https://slsa.dev/spec/v1.1/provenance
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from kernel_gateway.audit import chain
from kernel_gateway.audit.chain import CellFinished, CellStarted, SignedEntry
from kernel_gateway.audit.facts import HandlerFacts, StartFacts
from kernel_gateway.audit.view import plain
from lambda_kernel.contract.schema import encode

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:lambda-kernel:cell:v1"
BUILDER = "urn:lambda-kernel:gateway:v1:"
"""Followed by the isolation tier, which is what says how far a cell was kept from the platform."""


def statement(group: Sequence[SignedEntry], workspaces: str) -> dict[str, Any] | None:
    """Return what the entries about one cell (or comm message) state, None for other entries.

    Args:
        group: as `trail.groups` yields it.
        workspaces: the bucket of the users' files.
    """
    first, last = group[0], group[-1]
    started = first.entry.event
    if not isinstance(started, CellStarted):
        return None
    finished = last.entry.event if isinstance(last.entry.event, CellFinished) else None
    handler = None if finished is None else finished.handler
    tier = "unknown"
    if started.gateway is not None:
        tier = started.gateway.environment.tier
    if handler is not None and handler.probe is not None:
        tier = handler.probe.tier
    metadata = {"invocationId": started.request_id, "startedOn": first.entry.time}
    if finished is not None:
        metadata["finishedOn"] = last.entry.time
    made: dict[str, Any] = plain(
        {
            "_type": STATEMENT_TYPE,
            "subject": _subjects(last, finished, workspaces),
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": _asked(started),
                    "internalParameters": _chosen(started, first.entry.epoch),
                    "resolvedDependencies": _inputs(started, handler, workspaces),
                },
                "runDetails": {
                    "builder": {"id": BUILDER + tier},
                    "metadata": metadata,
                    "byproducts": _byproducts(finished),
                },
            },
        }
    )
    return made


def _subjects(
    last: SignedEntry, finished: CellFinished | None, workspaces: str
) -> list[dict[str, Any]]:
    """Return the files that the cell wrote, what it published, and the entry that says so."""
    entry = f"kernels/{last.entry.kernel_id}/entries/{last.entry.number}"
    found = [_resource(entry, last.digest)]
    if finished is None:
        return found
    outputs = finished.outputs
    said = outputs.blob or chain.digest_of(chain.messages_to_bytes(outputs.messages))
    found.append(_resource(f"{entry}/outputs", said))
    files = () if finished.handler is None else finished.handler.files
    return found + [
        _file(each.path, workspaces, each.key, each.version_id, each.digest)
        for each in files
        if each.digest is not None
    ]


def _asked(started: CellStarted) -> dict[str, Any]:
    """Return what who asked could choose."""
    asked: dict[str, Any] = {
        "kind": "cell" if started.is_cell else "comm",
        "source": started.source,
        "messageId": started.msg_id,
        "executionCount": started.execution_count,
        "timeoutS": started.timeout_s,
    }
    if started.cell_id is not None:
        asked["cellId"] = started.cell_id
    known = started.gateway
    if known is not None:
        session = known.session
        asked |= {
            "sourceDigest": {"sha256": known.source_digest} if known.source_digest else {},
            "owner": encode(session.owner),
            "caller": encode(known.caller),
            "workspace": session.workspace,
            "projects": list(session.projects),
            "run": session.run,
            "scope": session.scope,
            "connectors": list(known.credentials.connectors),
        }
    return asked


def _chosen(started: CellStarted, epoch: int) -> dict[str, Any]:
    """Return what the gateway chose."""
    chosen: dict[str, Any] = {"seq": started.seq, "epoch": epoch}
    known = started.gateway
    if known is not None:
        chosen |= {
            "environment": encode(known.environment),
            "credentials": encode(known.credentials),
            "network": known.network,
        }
    return chosen


def _inputs(
    started: CellStarted, handler: HandlerFacts | None, workspaces: str
) -> list[dict[str, Any]]:
    """Return what the cell began with, as far as its entries name it.

    Of the workspace these are the files that it left as they were; a file that it changed, or
    deleted, was there in a version that its entries do not name.
    """
    found = []
    if started.gateway is not None:
        found.append(_resource("handler", started.gateway.environment.handler_digest))
        found += _forked(started.gateway)
    if started.parent is not None:
        kernel = f"/{started.parent_kernel_id}" if started.parent_kernel_id else ""
        found.append(_resource(f"variables{kernel}/{started.parent.seq}", started.parent.digest))
    if handler is not None and handler.workspace is not None:
        changed = {each.key for each in handler.files}
        found += [
            _file(each.key, workspaces, each.key, each.version_id, each.digest)
            for each in handler.workspace.files
            if each.key not in changed
        ]
    return found


def _forked(known: StartFacts) -> list[dict[str, Any]]:
    session = known.session
    if session.forked_from is None or session.forked_at is None:
        return []
    return [_resource(f"fork of kernels/{session.forked_from}", session.forked_at.digest)]


def _byproducts(finished: CellFinished | None) -> list[dict[str, Any]]:
    if finished is None:
        return [{"name": "result", "annotations": {"status": "incomplete"}}]
    result = {"status": finished.status, "failure": finished.failure or ""}
    found: list[dict[str, Any]] = [{"name": "result", "annotations": result}]
    if finished.head is not None:
        found.append(_resource(f"commit/{finished.head.seq}", finished.head.digest))
    handler = finished.handler
    if handler is not None:
        if handler.home_head is not None:
            found.append(_resource("home", handler.home_head))
        found += [
            {"name": each.path, "annotations": {"change": each.change}}
            for each in handler.files
            if each.digest is None
        ]
    return found


def _resource(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest}}


def _file(name: str, bucket: str, key: str, version_id: str | None, digest: str) -> dict[str, Any]:
    version = f"?versionId={quote(version_id, safe='')}" if version_id else ""
    return _resource(name, digest) | {"uri": f"s3://{bucket}/{quote(key)}{version}"}
