"""What the gateway asks of one Lambda invocation."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Literal

from lambda_kernel.contract import names
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.schema import InvalidField, decode, encode
from lambda_kernel.contract.scope import Scope

SCHEMA = 1
ACCEPTED_SCHEMAS = (1,)
"""N and N-1, once there is an N-1."""

INLINE_REQUEST_BYTES = 6 * 1024 * 1024
"""A larger request goes through the overflow bucket. Source: AWS Lambda quota, 6 MB synchronous."""

INLINE_MANIFEST_BYTES = 200_000
"""A smaller commit rides inside the invocation, so that a warm container needs no GET for it."""

INLINE_PACK_BYTES = 256_000
"""A smaller snapshot pack rides inside the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest commit of a kernel: its number and the SHA-256 (hex) of its stored bytes."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one cell may use.

    Attributes:
        timeout_s: how long the function may run.
        commit_grace_s: how long before that the cell is interrupted, so that what it has done can
            be committed. A cell that goes on for half of this is killed.
        output_bytes: output kept; the rest is cut with a notice.
        snapshot_bytes: the session's variables, stored.
        memory_bytes: what the cell's processes may hold together.
        input_timeout_s: how long a question of the cell waits for the user's answer.
    """

    timeout_s: float = 900.0
    commit_grace_s: float = 5.0
    output_bytes: int = 10 * 1024 * 1024
    snapshot_bytes: int = 5 * 1024**3
    memory_bytes: int = 2048 * 1024**2
    input_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name in (
            "timeout_s",
            "output_bytes",
            "snapshot_bytes",
            "memory_bytes",
            "input_timeout_s",
        ):
            if getattr(self, name) <= 0:
                raise InvalidField(f"invocation.limits.{name}", "must be greater than 0")
        if not 0 <= self.commit_grace_s < self.timeout_s:
            raise InvalidField("invocation.limits.commit_grace_s", "must be below timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMessage:
    """The Jupyter message that the child gets.

    Attributes:
        header: as received.
        content: likewise.
        metadata: likewise.
        buffers: its binary parts, base64.
    """

    header: dict[str, Any]
    content: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()

    def buffer_bytes(self) -> list[bytes]:
        """Return the binary parts (raises InvalidField)."""
        try:
            return [base64.b64decode(part, validate=True) for part in self.buffers]
        except (binascii.Error, ValueError):
            raise InvalidField("msg.buffers", "is not base64") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One request to the function.

    Attributes:
        schema: version of this form.
        request_id: drawn by the gateway (32 hex digits); names the control prefix and, with
            ``nonce``, the key of the frames.
        kind: what the child does with ``msg``.
        commit: False for requests that must change nothing (complete, inspect).
        kernel_id, epoch: the kernel and the fencing epoch of its lease.
        seq: the number under which this cell commits; never reused.
        parent_head: the commit it starts from, or None for an empty session.
        parent_kernel_id: the kernel that this commit is of, where it is another: the session was
            forked there.
        manifest: the parent commit's stored bytes, base64, where small; else None and the serving
            process reads it from the state bucket.
        scope: whose HOME and state.
        workspace, projects, run: what the working directory mirrors; no projects = all of it.
        workdir_name: 32 hex digits, drawn once per kernel.
        msg: the Jupyter request.
        execution_count: the number the cell shows.
        limits: what it may use.
        network_policy_digest: SHA-256 of the egress rules, or None (no egress).
        connectors: ids of the connectors whose values the cell gets; none named = all of the
            agent's.
        write_prefix: where changed files go; the mirror's own prefix unless it is a replay.
        seeds: what the random number generators of a new session begin with, by name; none where
            they are not recorded, and in a fork, which goes on with those of its source.
        pinned: what a cell reads that is replayed from its own recorded state, None of all others.
        nonce: 32 hex digits, echoed in the outcome.
    """

    schema: int = SCHEMA
    request_id: str
    kind: Literal["execute", "complete", "inspect", "comm", "variables"] = "execute"
    commit: bool = True
    kernel_id: str
    epoch: int = 0
    seq: int
    parent_head: Head | None = None
    parent_kernel_id: str | None = None
    manifest: str | None = None
    scope: Scope
    workspace: str = "default"
    projects: tuple[str, ...] = ()
    run: str | None = None
    workdir_name: str
    msg: CellMessage
    execution_count: int
    limits: Limits = field(default_factory=Limits)
    network_policy_digest: str | None = None
    connectors: tuple[str, ...] = ()
    write_prefix: str
    seeds: dict[str, int] = field(default_factory=dict)
    pinned: Pinned | None = None
    nonce: str

    def __post_init__(self) -> None:
        if self.schema not in ACCEPTED_SCHEMAS:
            raise InvalidField("invocation.schema", f"must be one of {ACCEPTED_SCHEMAS}")
        for name in ("request_id", "workdir_name", "nonce"):
            _check_hex(getattr(self, name), 32, f"invocation.{name}")
        names.check_kernel_id(self.kernel_id, "invocation.kernel_id")
        names.check_workspace(self.workspace, "invocation.workspace")
        for i, project in enumerate(self.projects):
            names.check_project(project, f"invocation.projects[{i}]")
        for i, connector in enumerate(self.connectors):
            names.check_connector(connector, f"invocation.connectors[{i}]")
        if self.run is not None:
            names.check_run(self.run, "invocation.run")
        for name in ("seq", "execution_count", "epoch"):
            if getattr(self, name) < 0:
                raise InvalidField(f"invocation.{name}", "must not be negative")
        self._check_parent()
        if not self.write_prefix.startswith(f"users/{self.scope.user}/"):
            raise InvalidField("invocation.write_prefix", "must lie under the user's prefix")
        if self.pinned is not None:
            self.pinned.check(self.scope, self.write_prefix)

    def _check_parent(self) -> None:
        if self.parent_head is not None and self.parent_head.seq >= self.seq:
            raise InvalidField("invocation.parent_head.seq", "must be below seq")
        if self.parent_kernel_id is not None:
            names.check_kernel_id(self.parent_kernel_id, "invocation.parent_kernel_id")
            if self.parent_head is None:
                raise InvalidField("invocation.parent_kernel_id", "has no parent_head")

    @property
    def workdir(self) -> str:
        """The absolute path of the working directory inside a container."""
        return f"/tmp/.aa-work-{self.workdir_name}"  # noqa: S108  (product.md 1 names this path)

    @property
    def role_session_name(self) -> str:
        """The STS session name: kernel, cell and request, in STS's alphabet, at most 64 long."""
        return f"lkg-{self.kernel_id[:8]}-{self.seq}-{self.request_id[:16]}"

    def manifest_bytes(self) -> bytes | None:
        """Return the parent commit that rides inside, if one does (raises InvalidField)."""
        if self.manifest is None:
            return None
        try:
            return base64.b64decode(self.manifest, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidField("invocation.manifest", "is not base64") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        result: dict[str, Any] = encode(self)
        return result

    @classmethod
    def from_dict(cls, data: object) -> Invocation:
        """Return the invocation that ``data`` describes.

        Raises:
            InvalidField: naming the field and the rule it breaks.
        """
        return decode(cls, data, "invocation")


def _check_hex(value: str, digits: int, path: str) -> None:
    if len(value) != digits or any(c not in "0123456789abcdef" for c in value):
        raise InvalidField(path, f"must be {digits} lower-case hex digits")
