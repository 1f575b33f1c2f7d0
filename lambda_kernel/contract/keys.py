"""Buckets, keys, roles and functions: who writes what, as names (storage.md)."""

from __future__ import annotations

from dataclasses import dataclass

from lambda_kernel.contract import names
from lambda_kernel.contract.scope import Scope

SEQ_DIGITS = 10
JOURNAL_DIGITS = 8
SEGMENT_DIGITS = 6
TRAIL_INDEX_PREFIX = "trail-index/"
DAY_DIGITS = 6
AUDIT_PREFIX = "audit/"
"""Of all journals in the records bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One deployment: its name prefix, stack and AWS account.

    Attributes:
        prefix: begins every bucket, function, role and secret name.
        stack: ``local`` here, ``prod`` on AWS by default.
        account_id: 12 digits.
        governed_read_prefix: a prefix of the workspaces bucket that every cell may read and none
            write, with a trailing ``/``; None where not configured.
    """

    prefix: str = "lkg-"
    stack: str = "local"
    account_id: str = "000000000000"
    governed_read_prefix: str | None = None

    def __post_init__(self) -> None:
        if self.governed_read_prefix is not None:
            names.check_governed_prefix(self.governed_read_prefix)

    @property
    def workspaces(self) -> str:
        """The versioned bucket of the users' visible files."""
        return f"{self.prefix}workspaces"

    @property
    def state(self) -> str:
        """The bucket of HOMEs, snapshots and commits."""
        return f"{self.prefix}state"

    @property
    def records(self) -> str:
        """The gateway's own bucket, which neither role names."""
        return f"{self.prefix}records"

    @property
    def overflow(self) -> str:
        """The short-lived bucket: staged handler, large requests, control objects."""
        return f"{self.prefix}overflow"

    @property
    def buckets(self) -> tuple[str, str, str, str]:
        """All four buckets."""
        return (self.workspaces, self.state, self.records, self.overflow)

    @property
    def execution_role(self) -> str:
        """The name of the role that the function runs under."""
        return f"{self.prefix}{self.stack}-lambda-execution-role"

    @property
    def scoped_role(self) -> str:
        """The name of the role that is narrowed for each invocation."""
        return f"{self.prefix}{self.stack}-sandbox-scoped-role"

    def role_arn(self, role: str) -> str:
        """Return the ARN of ``role`` in this account."""
        return f"arn:aws:iam::{self.account_id}:role/{role}"

    def function_name(self, environment_id: str) -> str:
        """Return the Lambda function of an execution environment."""
        return f"{self.prefix}env-{environment_id}"

    def connector_secret(self, agent: str) -> str:
        """Return the name of the one secret that an agent's cells may read."""
        return f"{self.prefix}connector-creds-{agent}"


def connector_variable(connector: str, key: str) -> str:
    """Return the environment variable that holds a connector's value in a cell."""
    return f"CONN_{connector}_{key}"


def user_prefix(user: str) -> str:
    """Return the prefix of everything a user owns in the workspaces bucket, with ``/``."""
    return f"users/{user}/"


def workspace_prefix(user: str, workspace: str, run: str | None = None) -> str:
    """Return the prefix that the working directory mirrors, with ``/``."""
    base = f"users/{user}/{workspace}/"
    return base if run is None else f"{base}runs/{run}/"


def replay_prefix(user: str, replay_id: str) -> str:
    """Return the prefix of what a replay writes, and of its inputs, with ``/``."""
    return f"users/{user}/.replays/{replay_id}/"


def replay_inputs_prefix(user: str, replay_id: str, number: int) -> str:
    """Return the prefix of files that cells of a replay find and none writes, with ``/``."""
    return f"{replay_prefix(user, replay_id)}inputs/{number}/"


def scope_prefix(scope: Scope) -> str:
    """Return the prefix of a scope in the state bucket, with ``/``."""
    return f"users/{scope.user}/{scope.hash}/"


def home_head_key(scope: Scope) -> str:
    """Return the key of the object that names a scope's newest HOME manifest."""
    return f"{scope_prefix(scope)}home/head"


def home_manifest_key(scope: Scope, digest: str) -> str:
    """Return the key of a saved state of a HOME, which commits name."""
    return f"{scope_prefix(scope)}home/manifests/{digest}"


def home_pack_key(scope: Scope, digest: str) -> str:
    """Return the key of a pack of files of a HOME."""
    return f"{scope_prefix(scope)}home/packs/{digest}"


def blobs_prefix(scope: Scope) -> str:
    """Return the prefix of a scope's chunks, with ``/``."""
    return f"{scope_prefix(scope)}blobs/"


def blob_key(scope: Scope, digest: str, day: int) -> str:
    """Return the key of a chunk that was stored on ``day`` (since 1970, UTC).

    Nobody writes to a key of a day that is over: what is garbage then stays garbage, and
    it can be deleted although other cells commit meanwhile.
    """
    return f"{blobs_prefix(scope)}{day:0{DAY_DIGITS}d}/{digest}"


def commits_prefix(scope: Scope, kernel_id: str) -> str:
    """Return the prefix of a kernel's commits, with ``/``."""
    return f"{scope_prefix(scope)}kernels/{kernel_id}/"


def commit_key(scope: Scope, kernel_id: str, seq: int) -> str:
    """Return the key of commit ``seq``; keys sort as numbers do."""
    return f"{commits_prefix(scope, kernel_id)}{seq:0{SEQ_DIGITS}d}"


def deletions_prefix(scope: Scope, kernel_id: str) -> str:
    """Return the prefix of what cells of a kernel are about to delete, with ``/``."""
    return f"{scope_prefix(scope)}deletions/{kernel_id}/"


def deletions_key(scope: Scope, kernel_id: str, seq: int) -> str:
    """Return the key of the list of files that cell ``seq`` deletes, until it has committed."""
    return f"{deletions_prefix(scope, kernel_id)}{seq:0{SEQ_DIGITS}d}"


def output_key(scope: Scope, kernel_id: str, seq: int) -> str:
    """Return the key of all that cell ``seq`` said, where it was too much to be sent."""
    return f"{scope_prefix(scope)}outputs/{kernel_id}/{seq:0{SEQ_DIGITS}d}"


def kernel_record_key(kernel_id: str) -> str:
    """Return the key of a kernel record in the records bucket."""
    return f"kernels/{kernel_id}.json"


def journal_prefix(kernel_id: str) -> str:
    """Return the prefix of a kernel's journal in the records bucket, with ``/``."""
    return f"{AUDIT_PREFIX}{kernel_id}/j/"


def journal_key(kernel_id: str, number: int) -> str:
    """Return the key of entry ``number``, from 1, of a kernel's journal."""
    return f"{journal_prefix(kernel_id)}{number:0{JOURNAL_DIGITS}d}.json"


def rendered_trail_key(kernel_id: str) -> str:
    """Return the key of the notebook that shows a kernel's journal."""
    return f"{AUDIT_PREFIX}{kernel_id}/trail.ipynb"


def audit_blob_key(kernel_id: str, digest: str) -> str:
    """Return the key of recorded output that stands beside a journal's entries."""
    return f"{AUDIT_PREFIX}{kernel_id}/b/{digest}"


def tombstone_key(kernel_id: str, head: str) -> str:
    """Return the key of what is left of a journal that was deleted, by its last digest."""
    return f"{AUDIT_PREFIX}tombstones/{kernel_id}/{head}.json"


def trail_index_prefix(kernel_id: str) -> str:
    """Return the prefix of the index of a kernel's journal, with ``/``."""
    return f"{TRAIL_INDEX_PREFIX}{kernel_id}/"


def trail_index_key(kernel_id: str, segment: int) -> str:
    """Return the key of what is indexed of a segment, from 0, of a kernel's journal."""
    return f"{trail_index_prefix(kernel_id)}{segment:0{SEGMENT_DIGITS}d}.json"


def discarded_replay_key(replay_id: str | None = None) -> str:
    """Return where a replay is noted whose files are to go; without one, the prefix of all."""
    return "replays/" if replay_id is None else f"replays/{replay_id}.json"


def replica_lease_key(lease_id: str) -> str:
    """Return the key of the lease of a gateway in the records bucket."""
    return f"replicas/{lease_id}.json"


def handler_key(digest: str) -> str:
    """Return the key of a staged handler archive in the overflow bucket."""
    return f"handler/{digest}/handler.zip"


def frame_key_key(digest: str) -> str:
    """Return the key of the frame key that stands beside a staged handler."""
    return f"handler/{digest}/frame-key"


def request_key(request_id: str) -> str:
    """Return the key of a request that is too large to be sent inline."""
    return f"requests/{request_id}"


def control_prefix(request_id: str) -> str:
    """Return the prefix of an invocation's control objects, with ``/``."""
    return f"control/{request_id}/"
