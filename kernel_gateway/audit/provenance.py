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
from kernel_gateway.audit.facts import HandlerFacts, Inputs, StartFacts
from kernel_gateway.audit.view import plain
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.schema import encode
from lambda_kernel.contract.witness import Witness

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:lambda-kernel:cell:v1"
BUILDER = "urn:lambda-kernel:gateway:v1:"
"""Followed by the isolation tier, which is what says how far a cell was kept from the platform."""


class Committed:
    """The files that the newest commit of a journal left, where entries name them."""

    def __init__(self) -> None:
        self._commit: str | None = None
        self._files: tuple[CommittedFile, ...] = ()

    def note(self, group: Sequence[SignedEntry]) -> None:
        """Take in what the entries about a cell say."""
        event = group[-1].entry.event
        if isinstance(event, CellFinished) and event.head is not None:
            there = None if event.handler is None else event.handler.workspace
            self._commit = event.head.digest
            self._files = () if there is None else there.files

    def inputs_of(self, started: CellStarted, inputs: Inputs) -> tuple[CommittedFile, ...]:
        """Return the files that a cell found; none where they are many, or not named here."""
        if not inputs.as_committed or inputs.files:
            return inputs.files
        is_next = started.parent is not None and started.parent.digest == self._commit
        return self._files if is_next else ()


def statement(
    group: Sequence[SignedEntry], workspaces: str, before: Committed | None = None
) -> dict[str, Any] | None:
    """Return what the entries about one cell (or comm message) state, None for other entries.

    Args:
        group: as `trail.groups` yields it.
        workspaces: the bucket of the users' files.
        before: what the entries before it have left; None = they are not known.
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
                    "resolvedDependencies": _inputs(
                        started, handler, workspaces, before or Committed()
                    ),
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
    started: CellStarted, handler: HandlerFacts | None, workspaces: str, before: Committed
) -> list[dict[str, Any]]:
    """Return what the cell began with, as far as entries name it."""
    found = []
    if started.gateway is not None:
        found.append(_resource("handler", started.gateway.environment.handler_digest))
        found += _forked(started.gateway)
    if started.parent is not None:
        kernel = f"/{started.parent_kernel_id}" if started.parent_kernel_id else ""
        found.append(_resource(f"variables{kernel}/{started.parent.seq}", started.parent.digest))
    if handler is None:
        return found
    if handler.witness is not None:
        found += _witnessed(handler.witness)
    inputs = handler.inputs
    if inputs is not None:
        # Where they are many, this list alone names them: it stands beside the journal.
        listed = _resource("files", inputs.digest)
        found.append(listed | {"annotations": {"count": inputs.count}})
        found += [
            _file(each.key, workspaces, each.key, each.version_id, each.digest)
            for each in before.inputs_of(started, inputs)
        ]
    return found


def _witnessed(seen: Witness) -> list[dict[str, Any]]:
    """Return what the serving process has seen beside files: never a value, nor its digest."""
    container, secret = seen.container, seen.secret
    found = [_resource("packages", container.packages)]
    if seen.home is not None:
        found.append(_resource("home", seen.home))
    if container.function_arn:
        version = {"version": container.function_version}
        found.append({"name": "function", "uri": container.function_arn, "annotations": version})
    if secret is not None:
        said = {"versionId": secret.version_id, "connectors": list(seen.connectors)}
        found.append({"name": "connectors", "uri": secret.arn, "annotations": said})
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
