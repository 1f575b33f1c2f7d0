import fnmatch
import json
import re

import pytest

from lambda_kernel.contract import keys
from lambda_kernel.contract.invocation import CellMessage, Invocation
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope
from lambda_kernel.contract.session_policy import MAX_CHARACTERS, duration_s, session_policy

STACK = keys.Stack()
KERNEL_ID = "01234567-89ab-cdef-0123-456789abcdef"


def policy_of(
    scope: Scope,
    stack: keys.Stack = STACK,
    write_prefix: str | None = None,
    *,
    commit: bool = True,
    pinned: Pinned | None = None,
) -> str:
    invocation = Invocation(
        request_id="a" * 32,
        kernel_id=KERNEL_ID,
        seq=1,
        commit=commit,
        scope=scope,
        workdir_name="b" * 32,
        msg=CellMessage(header={}, content={}),
        execution_count=1,
        write_prefix=write_prefix or keys.workspace_prefix(scope.user, "default"),
        pinned=pinned,
        nonce="c" * 32,
    )
    return session_policy(invocation, stack)


def allows(policy: str, action: str, resource: str, prefix: str = "") -> bool:
    """Evaluate the policy as IAM would for the statements it consists of."""
    for statement in json.loads(policy)["Statement"]:
        if action not in statement["Action"]:
            continue
        if not any(fnmatch.fnmatchcase(resource, arn) for arn in statement["Resource"]):
            continue
        patterns = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
        if patterns is None or any(fnmatch.fnmatchcase(prefix, p) for p in patterns):
            return True
    return False


U1 = Scope(user="u1", agent="a1")
FILES = "arn:aws:s3:::lkg-workspaces/"
STATE = "arn:aws:s3:::lkg-state/"
OVERFLOW = "arn:aws:s3:::lkg-overflow/"


def test_a_question_may_read_and_not_write() -> None:
    policy = policy_of(U1, commit=False)
    path = FILES + "users/u1/default/x"

    assert allows(policy, "s3:GetObject", path)
    for action in ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject"):
        assert not allows(policy, action, path)


@pytest.mark.parametrize(
    ("action", "resource", "expected"),
    [
        ("s3:GetObject", FILES + "users/u1/default/x", True),
        ("s3:PutObject", FILES + "users/u1/default/x", True),
        ("s3:DeleteObject", FILES + "users/u1/default/x", True),
        ("s3:DeleteObjectVersion", FILES + "users/u1/default/x", False),
        ("s3:GetObject", FILES + "users/u10/default/x", False),
        ("s3:PutObject", FILES + "users/u/x", False),
        ("s3:GetObject", FILES + "governed/x", False),
        ("s3:PutObject", STATE + keys.scope_prefix(U1) + "blobs/1", True),
        ("s3:GetObject", STATE + keys.scope_prefix(Scope(user="u1")) + "home/head", False),
        ("s3:GetObject", STATE + keys.scope_prefix(Scope(user="u1", agent="a1-x")) + "x", False),
        ("s3:GetObject", "arn:aws:s3:::lkg-records/kernels/x.json", False),
        ("s3:GetObject", OVERFLOW + "control/" + "a" * 32 + "/interrupt", True),
        ("s3:PutObject", OVERFLOW + "control/" + "a" * 32 + "/interrupt", False),
        ("s3:GetObject", OVERFLOW + "control/" + "b" * 32 + "/interrupt", False),
        ("s3:GetObject", OVERFLOW + "handler/x/handler.zip", False),
        ("s3:GetObject", OVERFLOW + "requests/x", False),
    ],
)
def test_a_session_may_do_exactly_this(action: str, resource: str, expected: bool) -> None:
    assert allows(policy_of(U1), action, resource) is expected


@pytest.mark.parametrize(
    ("bucket", "prefix", "expected"),
    [
        ("lkg-workspaces", "users/u1/default/", True),
        ("lkg-workspaces", "users/u10/", False),
        ("lkg-workspaces", "users/", False),
        ("lkg-workspaces", "", False),
        ("lkg-state", keys.scope_prefix(U1), True),
        ("lkg-state", "users/u1/", False),
        ("lkg-records", "", False),
    ],
)
def test_a_session_may_list_only_its_own(bucket: str, prefix: str, expected: bool) -> None:
    assert allows(policy_of(U1), "s3:ListBucket", f"arn:aws:s3:::{bucket}", prefix) is expected


def test_the_secret_is_the_one_of_the_invoking_agent() -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:000000000000:secret:lkg-connector-creds-"
    policy = policy_of(U1)
    assert allows(policy, "secretsmanager:GetSecretValue", arn + "a1-AbCdEf")
    assert not allows(policy, "secretsmanager:GetSecretValue", arn + "a1-x-AbCdEf")
    assert not allows(policy, "secretsmanager:GetSecretValue", arn + "a10-AbCdEf")
    assert "secretsmanager" not in policy_of(Scope(user="u1"))


def test_the_governed_prefix_is_read_only() -> None:
    policy = policy_of(U1, keys.Stack(governed_read_prefix="governed/shared/"))
    assert allows(policy, "s3:GetObject", FILES + "governed/shared/x")
    assert not allows(policy, "s3:PutObject", FILES + "governed/shared/x")
    assert not allows(policy, "s3:GetObject", FILES + "governed/other/x")
    assert allows(policy, "s3:ListBucket", FILES.rstrip("/"), "governed/shared/")


def test_a_replay_writes_only_under_its_own_prefix() -> None:
    policy = policy_of(U1, write_prefix="users/u1/.replays/r1/")
    assert allows(policy, "s3:PutObject", FILES + "users/u1/.replays/r1/x")
    assert not allows(policy, "s3:PutObject", FILES + "users/u1/default/x")
    assert not allows(policy, "s3:GetObject", FILES + "users/u1/default/x")


def test_a_pinned_cell_reads_its_recorded_state_and_writes_none_of_it() -> None:
    recorded, own = Scope(user="u1", agent="a2"), Scope(user="u1", execution=KERNEL_ID)
    replay = keys.replay_prefix("u1", KERNEL_ID)
    pinned = Pinned(inputs=keys.replay_inputs_prefix("u1", KERNEL_ID, 2), scope=recorded)

    policy = policy_of(own, write_prefix=f"{replay}3/", pinned=pinned)

    inputs, chunk = FILES + f"{replay}inputs/2/x", STATE + keys.blob_key(recorded, "d", 1)
    for resource in (inputs, chunk):
        assert allows(policy, "s3:GetObject", resource)
        for action in ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject"):
            assert not allows(policy, action, resource)
    assert allows(policy, "s3:ListBucket", FILES.rstrip("/"), f"{replay}inputs/2/")
    for resource in (
        FILES + f"{replay}inputs/20/x",
        FILES + f"{replay}4/x",
        FILES + "users/u1/default/x",
        STATE + keys.home_head_key(recorded),
        STATE + keys.commit_key(recorded, KERNEL_ID, 1),
        STATE + keys.blob_key(Scope(user="u1", agent="a3"), "d", 1),
    ):
        assert not allows(policy, "s3:GetObject", resource)
    assert not allows(policy, "s3:ListBucket", STATE.rstrip("/"), keys.blobs_prefix(recorded))


@pytest.mark.parametrize(
    ("inputs", "scope", "chunks"),
    [
        ("users/u1/default/", None, {}),
        ("users/u1/.replays/", None, {}),
        (f"users/u1/.replays/{KERNEL_ID}/inputs/*/", None, {}),
        (f"users/u1/.replays/{KERNEL_ID}/inputs/1/../", None, {}),
        (f"users/u10/.replays/{KERNEL_ID}/inputs/1/", None, {}),
        (f"users/u1/.replays/{KERNEL_ID.replace('1', '2')}/inputs/1/", None, {}),
        (f"users/u1/.replays/{KERNEL_ID}/inputs/1/", Scope(user="u10"), {}),
        (f"users/u1/.replays/{KERNEL_ID}/inputs/1/", None, {"d": 1}),
    ],
)
def test_a_recorded_state_of_another_user_or_replay_is_no_invocation(
    inputs: str, scope: Scope | None, chunks: dict[str, int]
) -> None:
    pinned = Pinned(inputs=inputs, scope=scope, chunks=chunks)
    with pytest.raises(InvalidField, match=r"invocation\.pinned"):
        policy_of(U1, write_prefix=f"{keys.replay_prefix('u1', KERNEL_ID)}1/", pinned=pinned)


@pytest.mark.parametrize("folder", ["", "inputs/1/", "inputs/2/"])
def test_what_pinned_cells_read_is_no_place_to_write_to(folder: str) -> None:
    replay = keys.replay_prefix("u1", KERNEL_ID)
    pinned = Pinned(inputs=f"{replay}inputs/1/")
    with pytest.raises(InvalidField, match=r"another replay|not a folder"):
        policy_of(U1, write_prefix=f"{replay}{folder}", pinned=pinned)


def test_long_names_fit_into_what_sts_allows() -> None:
    scope = Scope(user="u" * 64, agent="a" * 64, execution=KERNEL_ID)
    stack = keys.Stack(prefix="p" * 20, governed_read_prefix="g" * 255 + "/")
    assert len(policy_of(scope, stack)) <= MAX_CHARACTERS
    stack = keys.Stack(governed_read_prefix="g" * 60 + "/")
    pinned = Pinned(inputs=keys.replay_inputs_prefix(scope.user, KERNEL_ID, 10**8), scope=scope)
    own = f"{keys.replay_prefix(scope.user, KERNEL_ID)}100000000/"
    assert len(policy_of(scope, stack, own, pinned=pinned)) <= MAX_CHARACTERS


def test_a_policy_that_sts_would_not_take_is_refused_clearly() -> None:
    with pytest.raises(InvalidField, match="STS allows 2048"):
        policy_of(U1, keys.Stack(prefix="p" * 300))


def test_the_session_is_named_after_its_cell_in_the_alphabet_of_sts() -> None:
    longest = Invocation(
        request_id="a" * 32,
        kernel_id=KERNEL_ID,
        seq=10**10,
        scope=U1,
        workdir_name="b" * 32,
        msg=CellMessage(header={}, content={}),
        execution_count=1,
        write_prefix=keys.workspace_prefix("u1", "default"),
        nonce="c" * 32,
    )
    assert re.fullmatch(r"[\w+=,.@-]{2,64}", longest.role_session_name, re.ASCII)
    assert longest.role_session_name == f"lkg-01234567-{10**10}-{'a' * 16}"


@pytest.mark.parametrize(
    ("timeout_s", "expected"),
    [(1, 900), (780, 900), (781, 901), (900, 1020), (1800, 1920), (9999, 3600)],
)
def test_credentials_live_as_long_as_the_cell_may(timeout_s: float, expected: int) -> None:
    assert duration_s(timeout_s) == expected
