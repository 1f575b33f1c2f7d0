"""What S3 is asked, and what its refusals mean."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.objects import S3ObjectStore

TAGS = {"run": "r1", "kernel": "k"}
PLACE = {"Bucket": "lkg-workspaces", "Key": "users/u1/default/runs/r1/x"}


@pytest.fixture
def stub() -> Iterator[Stubber]:
    client = boto3.client(
        "s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    with Stubber(client) as stubber:
        yield stubber


def put(stub: Stubber, tags: dict[str, str] | None) -> None:
    S3ObjectStore(stub.client).put(PLACE["Bucket"], PLACE["Key"], b"x", tags=tags)


def test_a_refused_tag_names_the_permission(stub: Stubber) -> None:
    stub.add_client_error("put_object", "AccessDenied", http_status_code=403)
    with pytest.raises(StorageUnavailable, match="s3:PutObjectTagging") as refused:
        put(stub, TAGS)
    assert PLACE["Key"] in str(refused.value)


def test_a_refused_tag_of_a_large_file_names_it_too(
    stub: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambda_kernel.serving.objects.MULTIPART_BYTES", 1)
    stub.add_client_error("create_multipart_upload", "AccessDenied", http_status_code=403)
    with pytest.raises(StorageUnavailable, match="s3:PutObjectTagging"):
        S3ObjectStore(stub.client).put(
            PLACE["Bucket"], PLACE["Key"], io.BytesIO(b"xx"), size_bytes=2, tags=TAGS
        )


@pytest.mark.parametrize(
    ("code", "tags"), [("AccessDenied", None), ("SlowDown", TAGS), ("NoSuchBucket", TAGS)]
)
def test_other_refusals_do_not(stub: Stubber, code: str, tags: dict[str, str] | None) -> None:
    stub.add_client_error("put_object", code)
    with pytest.raises(StorageUnavailable) as refused:
        put(stub, tags)
    assert "Tagging" not in str(refused.value)


def test_an_older_version_comes_back_with_the_runs_tags_and_no_right_to_read_them(
    stub: Stubber,
) -> None:
    expected: dict[str, Any] = {
        **PLACE,
        "CopySource": {**PLACE, "VersionId": "v1"},
        "TaggingDirective": "REPLACE",
        "Tagging": "run=r1&kernel=k",
    }
    stub.add_response("copy_object", {}, expected)
    S3ObjectStore(stub.client).restore(PLACE["Bucket"], PLACE["Key"], "v1", tags=TAGS)
    stub.assert_no_pending_responses()
