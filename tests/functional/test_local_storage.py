"""SeaweedFS as S3 and STS: who may read and write what, for real."""

from __future__ import annotations

import json
import os
import signal
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from kernel_gateway.config import Deployment
from kernel_gateway.local.buckets import sweep_overflow
from kernel_gateway.objects import MemoryObjectStore, S3ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from tests.functional.conftest import invocation_of, refused, wait_until
from tests.functional.test_local_lambda import run_inside

STACK = keys.Stack()
SCOPE = Scope(user="u1", agent="a1")
REQUEST_ID = "ab" * 16
NOTHING = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Deny", "Action": ["s3:*"], "Resource": ["*"]}],
    }
)


@pytest.fixture(scope="module")
def scoped(client_of: Any, session_of: Any, s3_client: Any) -> Any:
    """An S3 client whose session policy is that of one invocation of u1's agent a1."""
    for key in ("users/u1/default/own", "users/u2/default/other", "users/u10/default/other"):
        s3_client.put_object(Bucket=STACK.workspaces, Key=key, Body=b"data")
    for request_id in (REQUEST_ID, "cd" * 16):
        s3_client.put_object(
            Bucket=STACK.overflow, Key=f"{keys.control_prefix(request_id)}interrupt", Body=b"x"
        )
    invocation = invocation_of(SCOPE, REQUEST_ID)
    return client_of("s3", **session_of(invocation, STACK))


def test_the_buckets_are_there_and_workspaces_are_versioned(s3_client: Any) -> None:
    names = {bucket["Name"] for bucket in s3_client.list_buckets()["Buckets"]}

    assert set(STACK.buckets) <= names
    assert s3_client.get_bucket_versioning(Bucket=STACK.workspaces)["Status"] == "Enabled"
    assert "Status" not in s3_client.get_bucket_versioning(Bucket=STACK.state)


def test_a_conditional_write_has_one_winner(s3_client: Any) -> None:
    key = f"users/u1/{SCOPE.hash}/kernels/{uuid.uuid4()}/0000000001"
    s3_client.put_object(Bucket=STACK.state, Key=key, Body=b"1", IfNoneMatch="*")

    with pytest.raises(ClientError) as second:
        s3_client.put_object(Bucket=STACK.state, Key=key, Body=b"2", IfNoneMatch="*")

    assert second.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412


def test_a_large_object_passes_the_relay_unchanged(s3_client: Any) -> None:
    body = os.urandom(1 << 20) * 24
    s3_client.put_object(Bucket=STACK.workspaces, Key="users/u1/default/large", Body=body)

    answer = s3_client.get_object(Bucket=STACK.workspaces, Key="users/u1/default/large")

    assert answer["Body"].read() == body


async def test_the_gateway_stores_a_file_of_any_size(
    deployment: Deployment, s3_client: Any, tmp_path: Path
) -> None:
    file, body = tmp_path / "file", os.urandom(1 << 20) * 24
    file.write_bytes(body)
    store = S3ObjectStore.create(deployment)

    await store.put_file(STACK.records, "audit/k/trail.ipynb", file)
    store.close()

    answer = s3_client.get_object(Bucket=STACK.records, Key="audit/k/trail.ipynb")
    assert answer["Body"].read() == body


async def test_the_gateway_lists_folders_and_what_stands_behind_a_key(
    deployment: Deployment,
) -> None:
    store = S3ObjectStore.create(deployment)
    memory = MemoryObjectStore()
    names = [f"listed/{folder}/{number}" for folder in ("a", "b.c", "b") for number in range(3)]
    listed = []
    for each in (store, memory):
        for name in [*names, "listed/file", "other/d/1"]:
            await each.put(STACK.records, name, b"x")
        folders = [name async for name in each.folders(STACK.records, "listed/")]
        behind = [
            entry.key
            async for entry in each.entries(STACK.records, "listed/b/", after="listed/b/0")
        ]
        listed.append((sorted(folders), behind))
    store.close()

    assert listed[0] == listed[1] == (["a", "b", "b.c"], ["listed/b/1", "listed/b/2"])


@pytest.mark.parametrize("bucket", STACK.buckets)
def test_the_lambda_services_identity_has_no_right_in_s3(
    client_of: Any, lambda_identity: dict[str, str], bucket: str
) -> None:
    client = client_of("s3", **lambda_identity)

    assert refused(lambda: client.list_objects_v2(Bucket=bucket))
    assert refused(lambda: client.get_object(Bucket=bucket, Key="users/u1/default/own"))
    assert refused(lambda: client.put_object(Bucket=bucket, Key="x", Body=b""))


@pytest.mark.parametrize("bucket", STACK.buckets)
def test_the_execution_role_can_read_and_write_no_data(
    client_of: Any, execution: dict[str, str], scoped: Any, bucket: str
) -> None:
    client = client_of("s3", **execution)

    assert refused(lambda: client.list_objects_v2(Bucket=bucket))
    for key in ("users/u1/default/own", "kernels/k.json", keys.control_prefix(REQUEST_ID) + "x"):
        target = {"Bucket": bucket, "Key": key}
        assert refused(partial(client.get_object, **target))
        assert refused(partial(client.put_object, **target, Body=b""))
        assert refused(partial(client.delete_object, **target))


def test_the_execution_role_reads_handler_and_requests_only(
    client_of: Any, execution: dict[str, str], s3_client: Any, deployment: Deployment
) -> None:
    client = client_of("s3", **execution)
    s3_client.put_object(Bucket=STACK.overflow, Key="requests/r1", Body=b"request")
    frame_key = keys.frame_key_key(deployment.handler_digest)

    assert client.get_object(Bucket=STACK.overflow, Key="requests/r1")["Body"].read() == b"request"
    assert len(client.get_object(Bucket=STACK.overflow, Key=frame_key)["Body"].read()) == 32
    assert refused(lambda: client.put_object(Bucket=STACK.overflow, Key=frame_key, Body=b"mine"))
    assert refused(lambda: client.put_object(Bucket=STACK.overflow, Key="requests/x", Body=b""))


def test_only_the_lambda_service_may_become_the_execution_role(
    client_of: Any, deployment: Deployment, execution: dict[str, str]
) -> None:
    arguments = {"RoleArn": STACK.role_arn(STACK.execution_role), "RoleSessionName": "test"}
    gateway = {
        name: value
        for name, value in deployment.client_arguments("lambda").items()
        if name.startswith("aws_")
    }

    assert refused(lambda: client_of("sts", **gateway).assume_role(**arguments))
    assert refused(lambda: client_of("sts", **execution).assume_role(**arguments))


def test_only_the_execution_role_may_become_the_scoped_role(
    client_of: Any, lambda_identity: dict[str, str]
) -> None:
    client = client_of("sts", **lambda_identity)

    assert refused(
        lambda: client.assume_role(
            RoleArn=STACK.role_arn(STACK.scoped_role), RoleSessionName="test"
        )
    )


def test_a_scoped_session_works_on_its_own_prefixes(scoped: Any) -> None:
    own = f"users/u1/{SCOPE.hash}/home/head"
    interrupt = f"{keys.control_prefix(REQUEST_ID)}interrupt"
    scoped.put_object(Bucket=STACK.workspaces, Key="users/u1/default/new", Body=b"1")
    scoped.put_object(Bucket=STACK.state, Key=own, Body=b"2", IfNoneMatch="*")
    listed = scoped.list_objects_v2(Bucket=STACK.workspaces, Prefix="users/u1/default/")

    assert {"users/u1/default/new", "users/u1/default/own"} <= {
        entry["Key"] for entry in listed["Contents"]
    }
    assert scoped.get_object(Bucket=STACK.state, Key=own)["Body"].read() == b"2"
    assert scoped.get_object(Bucket=STACK.overflow, Key=interrupt)["Body"].read() == b"x"
    scoped.delete_object(Bucket=STACK.overflow, Key=interrupt)
    scoped.delete_object(Bucket=STACK.workspaces, Key="users/u1/default/new")


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        (STACK.workspaces, "users/u2/default/other"),
        (STACK.workspaces, "users/u10/default/other"),
        (STACK.workspaces, "users/u1/../u2/default/other"),
        (STACK.state, f"users/u1/{Scope(user='u1').hash}/home/head"),
        (STACK.state, "users/u2/x"),
        (STACK.records, "kernels/k.json"),
        (STACK.records, keys.trail_index_key("k", 0)),
        (STACK.records, "users/u1/default/x"),
        (STACK.overflow, f"{keys.control_prefix('cd' * 16)}interrupt"),
        (STACK.overflow, "requests/r1"),
        ("lkg-other", "users/u1/default/x"),
    ],
)
def test_a_scoped_session_is_confined(scoped: Any, bucket: str, key: str) -> None:
    own = {"Bucket": STACK.workspaces, "Key": "users/u1/default/own"}

    assert refused(lambda: scoped.get_object(Bucket=bucket, Key=key))
    assert refused(lambda: scoped.head_object(Bucket=bucket, Key=key))
    assert refused(lambda: scoped.put_object(Bucket=bucket, Key=key, Body=b"planted"))
    assert refused(lambda: scoped.delete_object(Bucket=bucket, Key=key))
    assert refused(lambda: scoped.copy_object(Bucket=bucket, Key=key, CopySource=own))
    assert refused(lambda: scoped.create_multipart_upload(Bucket=bucket, Key=key))


def test_a_scoped_session_copies_nothing_in(scoped: Any) -> None:
    source = {"Bucket": STACK.workspaces, "Key": "users/u2/default/other"}

    assert refused(
        lambda: scoped.copy_object(
            Bucket=STACK.workspaces, Key="users/u1/default/stolen", CopySource=source
        )
    )


@pytest.mark.parametrize("prefix", ["", "users/", "users/u2/", "users/u10/", "users/u1"])
def test_a_scoped_session_lists_nothing_else(scoped: Any, prefix: str) -> None:
    for bucket in STACK.buckets:
        assert refused(partial(scoped.list_objects_v2, Bucket=bucket, Prefix=prefix))
        assert refused(partial(scoped.list_object_versions, Bucket=bucket, Prefix=prefix))


def test_a_scoped_session_never_removes_a_version(scoped: Any, s3_client: Any) -> None:
    version = s3_client.put_object(
        Bucket=STACK.workspaces, Key="users/u1/default/kept", Body=b"old"
    )["VersionId"]

    assert refused(
        lambda: scoped.delete_object(
            Bucket=STACK.workspaces, Key="users/u1/default/kept", VersionId=version
        )
    )


def test_every_assume_role_is_on_record(scoped: Any, lambda_client: Any, state_dir: Path) -> None:
    code = f"""
import boto3
answer = boto3.client("sts").assume_role(
    RoleArn={STACK.role_arn(STACK.scoped_role)!r}, RoleSessionName="from-inside",
    DurationSeconds=900, Policy={NOTHING!r})
result = answer["Credentials"]["AccessKeyId"][:4]
"""
    assert run_inside(lambda_client, code) == "ASIA"

    text = (state_dir / "logs" / "aws" / "sts" / "assume-role.jsonl").read_text()
    (line,) = [
        record
        for record in map(json.loads, text.splitlines())
        if record["role_session_name"] == "from-inside"
    ]
    assert line["role_arn"] == STACK.role_arn(STACK.scoped_role)
    assert line["duration_s"] == 900
    assert line["policy"] == NOTHING
    assert line["source"].startswith("lkg-env-default/")
    assert line["status"] == 200
    assert "SecretAccessKey" not in text


def test_keys_are_readable_by_their_owner_only(state_dir: Path, deployment: Deployment) -> None:
    assert (state_dir / "keys.json").stat().st_mode & 0o777 == 0o600


def test_old_overflow_objects_are_swept_and_the_handler_in_use_stays(
    s3_client: Any, deployment: Deployment
) -> None:
    for key in ("requests/old", "control/r/interrupt", "handler/before/handler.zip"):
        s3_client.put_object(Bucket=STACK.overflow, Key=key, Body=b"x")
    tomorrow = datetime.now(UTC) + timedelta(days=1, minutes=1)

    now = datetime.now(UTC)
    digest = deployment.handler_digest
    assert sweep_overflow(s3_client, STACK, handler_digest=digest, now=now) == 0
    sweep_overflow(s3_client, STACK, handler_digest=digest, now=tomorrow)

    left = [e["Key"] for e in s3_client.list_objects_v2(Bucket=STACK.overflow)["Contents"]]
    assert sorted(left) == [keys.frame_key_key(digest), keys.handler_key(digest)]


def weed_pids(parent: int) -> list[int]:
    """Return the pids of SeaweedFS under the service process ``parent``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                arguments = (folder / "cmdline").read_bytes()
                status = (folder / "status").read_text()
                above = (Path("/proc") / status.split("PPid:")[1].split()[0] / "status").read_text()
            except (OSError, IndexError):
                continue
            if arguments.startswith(b"/weed\0") and f"PPid:\t{parent}\n" in above:
                found.append(int(folder.name))
    return found


def test_storage_that_dies_is_restarted_with_its_data(
    local_service: Any, s3_client: Any, lambda_client: Any
) -> None:
    s3_client.put_object(Bucket=STACK.state, Key="users/u1/kept", Body=b"still here")
    (pid,) = weed_pids(local_service.pid)

    os.kill(pid, signal.SIGKILL)

    def read() -> bytes:
        try:
            answer = s3_client.get_object(Bucket=STACK.state, Key="users/u1/kept")
            body: bytes = answer["Body"].read()
        except (ClientError, BotoCoreError):
            return b""
        return body

    assert wait_until(read) == b"still here"
    assert weed_pids(local_service.pid) != [pid]
    assert run_inside(lambda_client, "result = 1") == 1


async def test_erasing_leaves_no_version_and_nothing_of_others(
    s3_client: Any, deployment: Deployment
) -> None:
    key = f"users/u1/default/{uuid.uuid4()}"
    for body in (b"1", b"2"):
        s3_client.put_object(Bucket=STACK.workspaces, Key=key, Body=body)
    s3_client.delete_object(Bucket=STACK.workspaces, Key=key)
    s3_client.put_object(Bucket=STACK.workspaces, Key=f"{key}-other", Body=b"3")
    s3_client.put_object(Bucket=STACK.state, Key=key, Body=b"4")
    store = S3ObjectStore.create(deployment)

    await store.erase(STACK.workspaces, key)
    await store.erase(STACK.state, key)
    await store.erase(STACK.state, "there/is/none")

    left = s3_client.list_object_versions(Bucket=STACK.workspaces, Prefix=key)
    assert [each["Key"] for each in left["Versions"]] == [f"{key}-other"]
    assert "DeleteMarkers" not in left
    assert "Contents" not in s3_client.list_objects_v2(Bucket=STACK.state, Prefix=key)
    assert not await store.can_lock(STACK.state)
    assert await store.locked_until(STACK.workspaces, f"{key}-other") is None
    assert await store.locked_until(STACK.workspaces, "there/is/none") is None
    store.close()
