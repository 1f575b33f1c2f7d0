"""What an entry says beside request and outputs, each group by the name of who vouches for it.

``gateway``: the gateway itself saw or computed it. ``handler``: the serving process says so, in
which no user code runs. What comes from a child, untrusted code, is ``reply``, ``outputs`` and
`HandlerFacts.lost`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernel_gateway.messaging.caller import Caller
from kernel_gateway.messaging.idempotency import Idempotency
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import FileChange, LostName, Probe
from lambda_kernel.contract.witness import Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose the kernel is, and as whom its cells run."""

    user: str
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedFrom:
    """The entry of another kernel's journal up to which a replay runs that kernel's cells again.

    Attributes:
        kernel_id: whose journal it is.
        number, digest: of the entry.
        is_proven: the gateway found it in that journal; False = a caller brought the trail along,
            and whether there is such a kernel is its word; None = an earlier version did not say.
    """

    kernel_id: str
    number: int
    digest: str
    is_proven: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the kernel is.

    Attributes:
        owner: whose it is.
        spec_name, workspace, projects, run, scope: what was chosen when it was started.
        created: when; ISO 8601, UTC.
        restarts: how often it was restarted.
        forked_from, forked_at: the kernel and commit that it began with, None for none.
        prefix: of the workspaces bucket, which the working directory mirrors.
        workdir_name: what the working directory is called.
        derived_from: what it replays, None where it is no replay.
    """

    owner: Owner
    spec_name: str
    workspace: str
    projects: tuple[str, ...] = ()
    run: str | None = None
    scope: str
    created: str
    restarts: int = 0
    forked_from: str | None = None
    forked_at: Head | None = None
    prefix: str | None = None
    workdir_name: str | None = None
    derived_from: DerivedFrom | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsIn:
    """The execution environment.

    Attributes:
        id: of the environment.
        function: name of the Lambda function.
        handler_digest: SHA-256 (hex) of the archive that the serving process came from.
        python: version of its Python.
        memory_mb, tier: what the environment asks for.
    """

    id: str
    function: str
    handler_digest: str
    python: str
    memory_mb: int
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What the cell's credentials are, never a value.

    Attributes:
        role_arn: the role that is assumed for this cell alone.
        role_session_name: as CloudTrail shows it.
        policy_digest: SHA-256 (hex) of the session policy's text.
        policy_template: SHA-256 (hex) of the object that holds this text, in which
            ``{request_id}`` stands for the cell's: it is the same for every cell.
        duration_s: how long they live.
        connector_secret: the one secret they may read, None for none.
        connectors: ids that were asked for; none = all in the secret.
    """

    role_arn: str
    role_session_name: str
    policy_digest: str
    policy_template: str | None = None
    duration_s: int
    connector_secret: str | None = None
    connectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What the gateway knows when it sends a cell.

    Attributes:
        caller: who asked; None where no client did, or an earlier version wrote it.
        source_digest: SHA-256 (hex) of the source in UTF-8, as the entry has it; None for a comm
            message.
        received_mac: HMAC-SHA256 (hex) of the source as it was received, where the entry's is
            redacted. Its key stays with the gateway: from a plain digest a short secret could be
            guessed.
        network: what the cell may reach.
        idempotency: by what the request is known when it is sent again, None where it has no key.
        seeds: what the random number generators of the session began with, by name; none where
            they are not recorded, and in a fork, which goes on with those of its source.
        gateway_version: of the program that writes this; None in what an earlier one wrote.
        queued_ms: so long before the entry's time the request had come; None in what an earlier
            version wrote.
    """

    session: Session
    caller: Caller | None = None
    source_digest: str | None = None
    received_mac: str | None = None
    environment: RunsIn
    credentials: Credentials
    network: Literal["none"] = "none"
    idempotency: Idempotency | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    gateway_version: str | None = None
    queued_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFacts:
    """What the gateway knows when a cell has ended.

    Attributes:
        code_started: whether the cell's code began to run: ``yes``, ``no`` or ``unknown``.
        timings_ms: duration per step that the gateway has measured.
    """

    code_started: str
    timings_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """What the working directory was when the cell committed.

    Attributes:
        count: of files.
        files: they, with version and digest; empty where they are more than an entry holds: then
            the commit, whose digest the entry has, names them, and ``blob``.
        blob: SHA-256 (hex) of the object that lists them, see `file_list_bytes`; None = none does.
            Names in it are redacted as those in entries are.
    """

    count: int
    files: tuple[CommittedFile, ...] = ()
    blob: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the working directory held before the cell ran.

    Attributes:
        count: of files.
        digest: SHA-256 (hex) of their list, see `file_list_bytes`.
        as_committed: they are those that the commit before it left, and so its entry names them.
        files: they, where they are others and few.
        blob: SHA-256 (hex) of the object that lists them, where they are many: as ``digest`` says,
            but for names that are redacted.
    """

    count: int
    digest: str
    as_committed: bool = False
    files: tuple[CommittedFile, ...] = ()
    blob: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFacts:
    """What the serving process says of a cell; see Outcome's attributes.

    Attributes:
        workspace: None where the commit was not at hand.
        inputs: None where they were not brought in.
        packages: SHA-256 (hex) of the object that lists the image's packages.
        witness: what else it saw; None in what an earlier version wrote.
    """

    status: str
    files: tuple[FileChange, ...] = ()
    workspace: Workspace | None = None
    home_head: str | None = None
    lost: tuple[LostName, ...] = ()
    probe: Probe | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    container_id: str = ""
    aws_request_id: str = ""
    message: str = ""
    inputs: Inputs | None = None
    packages: str | None = None
    witness: Witness | None = None
