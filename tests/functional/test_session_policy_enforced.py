"""The session policy of one invocation against a real S3: what its credentials cannot do."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambda_kernel.contract import keys
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope
from tests.functional.conftest import GOVERNED, invocation_of, refused

STACK = Stack(governed_read_prefix=GOVERNED)
FILES, STATE, RECORDS, OVERFLOW = STACK.buckets
MINE = Scope(user="u1", agent="a1")
OTHERS = [Scope(user="u1", agent="a1-x"), Scope(user="u1"), Scope(user="u10", agent="a1")]
OTHER_REQUEST = "cd" * 16
OWN = "users/u1/default/own"

PLACES = [
    (FILES, "users/u10/default/other"),
    (FILES, "users/u2/default/other"),
    (FILES, "users/u1"),
    (FILES, "users/"),
    (FILES, "other"),
    *((STATE, f"{keys.scope_prefix(scope)}home/head") for scope in OTHERS),
    (STATE, "users/u1/x"),
    (RECORDS, "kernels/k.json"),
    (RECORDS, keys.journal_key("k", 1)),
    (RECORDS, keys.journal_key("k", 2)),
    (RECORDS, keys.audit_blob_key("k", "0" * 64)),
    (RECORDS, keys.tombstone_key("k", "0" * 64)),
    (RECORDS, keys.rendered_trail_key("k")),
    (RECORDS, OWN),
    (OVERFLOW, f"{keys.control_prefix(OTHER_REQUEST)}interrupt"),
    (OVERFLOW, "handler/x/frame-key"),
    (OVERFLOW, "requests/r1"),
]
TRAVERSALS = [
    "users/u1/../u10/default/other",
    "users/u1/default/../../u10/default/other",
    "users/u1/./../u10/default/other",
    "users/u1//../u10/default/other",
    "users/u1/%2e%2e/u10/default/other",
    "users/u1/..%2fu10/default/other",
    "users/u1/\\../u10/default/other",
    "/users/u10/default/other",
    "./users/u10/default/other",
    "//users/u10/default/other",
]


@pytest.fixture(scope="module")
def planted(s3_client: Any) -> None:
    for bucket, key in PLACES:
        if not key.endswith("/") and key != "users/u1":
            s3_client.put_object(Bucket=bucket, Key=key, Body=b"secret of somebody else")
    for key in (OWN, f"{GOVERNED}table.csv"):
        s3_client.put_object(Bucket=FILES, Key=key, Body=b"data")


@pytest.fixture(scope="module")
def scoped(planted: None, client_of: Any, session_of: Any) -> Any:
    return client_of("s3", **session_of(invocation_of(MINE), STACK))


@pytest.mark.parametrize(("bucket", "key"), PLACES)
def test_other_places_are_out_of_reach_by_every_call(scoped: Any, bucket: str, key: str) -> None:
    target = {"Bucket": bucket, "Key": key}
    own = {"Bucket": FILES, "Key": OWN}
    calls = {
        "get": partial(scoped.get_object, **target),
        "head": partial(scoped.head_object, **target),
        "attributes": partial(scoped.get_object_tagging, **target),
        "acl": partial(scoped.get_object_acl, **target),
        "put": partial(scoped.put_object, **target, Body=b"planted"),
        "put tagged": partial(scoped.put_object, **target, Body=b"planted", Tagging="a=b"),
        "tag": partial(scoped.put_object_tagging, **target, Tagging={"TagSet": []}),
        "untag": partial(scoped.delete_object_tagging, **target),
        "delete": partial(scoped.delete_object, **target),
        "copy out": partial(scoped.copy_object, **own, CopySource=target),
        "copy in": partial(scoped.copy_object, **target, CopySource=own),
        "multipart": partial(scoped.create_multipart_upload, **target),
        "part": partial(scoped.upload_part, **target, UploadId="x", PartNumber=1, Body=b"x"),
        "abort": partial(scoped.abort_multipart_upload, **target, UploadId="x"),
    }
    assert [name for name, call in calls.items() if not refused(call)] == []


@pytest.mark.parametrize("key", TRAVERSALS)
def test_no_spelling_of_a_key_leads_elsewhere(scoped: Any, s3_client: Any, key: str) -> None:
    theirs = {"Bucket": FILES, "Key": "users/u10/default/other"}
    before = s3_client.get_object(**theirs)["Body"].read()
    for call in (
        partial(scoped.get_object, Bucket=FILES, Key=key),
        partial(scoped.put_object, Bucket=FILES, Key=key, Body=b"planted"),
        partial(scoped.copy_object, Bucket=FILES, Key=OWN, CopySource={**theirs, "Key": key}),
        partial(scoped.delete_object, Bucket=FILES, Key=key),
    ):
        try:
            answer = call()
        except ClientError:
            continue
        if "Body" in answer:
            assert b"somebody else" not in answer["Body"].read()
    assert s3_client.get_object(**theirs)["Body"].read() == before
    # A percent sign or backslash may make a file of one's own, which then can be copied.
    assert s3_client.get_object(Bucket=FILES, Key=OWN)["Body"].read() != before


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "/",
        "users",
        "users/",
        "users/u1",
        "users/u10/",
        "users/u2/",
        "users/u1/../u10/",
        "users/u1/../",
        "users/u1/./../u10/",
        "shared/",
        "shared/other/",
    ],
)
def test_no_listing_shows_what_is_somebody_elses(scoped: Any, prefix: str) -> None:
    for bucket in STACK.buckets:
        for call in (scoped.list_objects_v2, scoped.list_objects, scoped.list_object_versions):
            for more in ({}, {"Delimiter": "/"}):
                try:
                    answer = call(Bucket=bucket, Prefix=prefix, **more)
                except ClientError:
                    continue
                seen = str([answer.get(n) for n in ("Contents", "CommonPrefixes", "Versions")])
                assert "u10" not in seen
                assert "other" not in seen
        assert refused(partial(scoped.list_multipart_uploads, Bucket=bucket, Prefix=prefix))


def test_a_listing_cannot_be_led_on_by_where_it_starts(scoped: Any) -> None:
    for start in ("users/u10/", "users/u1/../u10/", "users/u0"):
        answer = scoped.list_objects_v2(Bucket=FILES, Prefix="users/u1/", StartAfter=start)
        keys_seen = [entry["Key"] for entry in answer.get("Contents", [])]
        assert all(key.startswith("users/u1/") for key in keys_seen)


def test_buckets_are_not_the_sessions_business(scoped: Any) -> None:
    for bucket in STACK.buckets:
        place = {"Bucket": bucket}
        calls = {
            "versioning": partial(
                scoped.put_bucket_versioning,
                **place,
                VersioningConfiguration={"Status": "Suspended"},
            ),
            "policy": partial(scoped.put_bucket_policy, **place, Policy="{}"),
            "read policy": partial(scoped.get_bucket_policy, **place),
            "tags": partial(scoped.put_bucket_tagging, **place, Tagging={"TagSet": []}),
            "delete": partial(scoped.delete_bucket, **place),
        }
        assert [name for name, call in calls.items() if not refused(call)] == []
    assert refused(partial(scoped.create_bucket, Bucket="lkg-mine"))


def test_own_files_in_parts_with_tags_and_by_version(scoped: Any) -> None:
    place = {"Bucket": FILES, "Key": f"users/u1/default/{uuid.uuid4()}"}
    upload = scoped.create_multipart_upload(**place, Tagging="run=r1")["UploadId"]
    part = scoped.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"old")
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    done = scoped.complete_multipart_upload(**place, UploadId=upload, MultipartUpload=parts)
    scoped.put_object(**place, Body=b"new", Tagging="run=r1")
    old = scoped.get_object(**place, VersionId=done["VersionId"])["Body"].read()
    source = {**place, "VersionId": done["VersionId"]}
    scoped.copy_object(**place, CopySource=source, TaggingDirective="REPLACE", Tagging="run=r1")
    assert old == scoped.get_object(**place)["Body"].read() == b"old"
    other = scoped.create_multipart_upload(**place)["UploadId"]
    scoped.abort_multipart_upload(**place, UploadId=other)


def test_the_governed_prefix_is_read_and_nothing_else(scoped: Any, s3_client: Any) -> None:
    table = {"Bucket": FILES, "Key": f"{GOVERNED}table.csv"}
    own = {"Bucket": FILES, "Key": OWN}
    assert scoped.get_object(**table)["Body"].read() == b"data"
    listed = scoped.list_objects_v2(Bucket=FILES, Prefix=GOVERNED)["Contents"]
    assert [entry["Key"] for entry in listed] == [table["Key"]]
    for call in (
        partial(scoped.put_object, **table, Body=b"planted"),
        partial(scoped.put_object, Bucket=FILES, Key=f"{GOVERNED}new", Body=b"planted"),
        partial(scoped.delete_object, **table),
        partial(scoped.copy_object, **table, CopySource=own),
        partial(scoped.put_object_tagging, **table, Tagging={"TagSet": []}),
        partial(scoped.create_multipart_upload, **table),
    ):
        assert refused(call)
    assert s3_client.get_object(**table)["Body"].read() == b"data"


def test_a_session_becomes_nobody_else(client_of: Any, session_of: Any) -> None:
    sts = client_of("sts", **session_of(invocation_of(MINE), STACK))
    for role in (STACK.scoped_role, STACK.execution_role):
        assert refused(
            partial(sts.assume_role, RoleArn=STACK.role_arn(role), RoleSessionName="more")
        )


def test_a_replay_writes_and_reads_only_its_own_prefix(
    planted: None, client_of: Any, session_of: Any
) -> None:
    replay = invocation_of(MINE, write_prefix="users/u1/.replays/r1/")
    client = client_of("s3", **session_of(replay, STACK))
    client.put_object(Bucket=FILES, Key="users/u1/.replays/r1/x", Body=b"1")
    for key in (OWN, "users/u1/.replays/r10/x"):
        assert refused(partial(client.get_object, Bucket=FILES, Key=key))
        assert refused(partial(client.put_object, Bucket=FILES, Key=key, Body=b"1"))


def test_a_pinned_cell_reads_its_recorded_state_and_cannot_change_it(
    planted: None, client_of: Any, session_of: Any, s3_client: Any
) -> None:
    replay_id, recorded = str(uuid.uuid4()), Scope(user="u1", agent="a9")
    replay = keys.replay_prefix("u1", replay_id)
    inputs = keys.replay_inputs_prefix("u1", replay_id, 1)
    chunk = keys.blob_key(recorded, "0" * 64, 1)
    shared = [(FILES, f"{inputs}in.csv"), (STATE, chunk)]
    others = [
        (FILES, OWN),
        (FILES, f"{replay}2/x"),
        (FILES, keys.replay_inputs_prefix("u1", replay_id, 11) + "x"),
        (STATE, keys.home_head_key(recorded)),
        (STATE, keys.commit_key(recorded, replay_id, 1)),
        (STATE, keys.blob_key(Scope(user="u1"), "0" * 64, 1)),
    ]
    for bucket, key in (*shared, *others):
        s3_client.put_object(Bucket=bucket, Key=key, Body=b"recorded")
    cell = invocation_of(
        Scope(user="u1", execution=replay_id),
        write_prefix=f"{replay}1/",
        pinned=Pinned(inputs=inputs, scope=recorded),
    )
    client = client_of("s3", **session_of(cell, STACK))

    client.put_object(Bucket=FILES, Key=f"{replay}1/x", Body=b"1")
    listed = client.list_objects_v2(Bucket=FILES, Prefix=inputs)["Contents"]
    assert [each["Key"] for each in listed] == [f"{inputs}in.csv"]
    for bucket, key in shared:
        assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == b"recorded"
    for bucket, key in (*shared, *others):
        target = {"Bucket": bucket, "Key": key}
        assert refused(partial(client.put_object, **target, Body=b"attacked"))
        assert refused(partial(client.delete_object, **target))
        assert refused(partial(client.put_object_tagging, **target, Tagging={"TagSet": []}))
    for bucket, key in others:
        assert refused(partial(client.get_object, Bucket=bucket, Key=key))
    for bucket, prefix in (
        (STATE, keys.blobs_prefix(recorded)),
        (STATE, keys.scope_prefix(recorded)),
        (FILES, replay),
        (FILES, f"{replay}2/"),
    ):
        assert refused(partial(client.list_objects_v2, Bucket=bucket, Prefix=prefix))


@pytest.mark.parametrize("name", ["*", "u*", "u?", "${aws:username}", "ü1", "u1/", "u1/../u10", ""])
def test_a_name_that_a_policy_would_not_take_literally_is_refused(name: str) -> None:
    with pytest.raises(InvalidField):
        Scope(user=name)
    if name:
        with pytest.raises(InvalidField):
            Scope(user="u1", agent=name)
    for field in ({"workspace": name}, {"run": name}, {"connectors": (name,)}):
        with pytest.raises(InvalidField):
            invocation_of(MINE, **field)
