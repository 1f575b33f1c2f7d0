"""What S3 is asked by boto3, and what its refusals mean."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.credentials import Credentials
from botocore.stub import Stubber

from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.objects import ERRORS, S3ObjectStore
from lambda_kernel.storage.s3_requests import S3Requests

TAGS = {"run": "r1", "kernel": "k"}
PLACE = {"Bucket": "lkg-workspaces", "Key": "users/u1/default/runs/r1/x"}


@pytest.fixture
def stub() -> Iterator[Stubber]:
    client = boto3.client(
        "s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    with Stubber(client) as stubber:
        yield stubber


def store_of(stub: Stubber) -> S3ObjectStore:
    requests = S3Requests(stub.client, Credentials("x", "x"), errors=ERRORS)
    return S3ObjectStore(stub.client, requests)


def test_a_refused_tag_of_a_large_file_names_it_too(
    stub: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambda_kernel.serving.objects.MULTIPART_BYTES", 1)
    stub.add_client_error("create_multipart_upload", "AccessDenied", http_status_code=403)
    with pytest.raises(StorageUnavailable, match="s3:PutObjectTagging"):
        store_of(stub).put(
            PLACE["Bucket"], PLACE["Key"], io.BytesIO(b"xx"), size_bytes=2, tags=TAGS
        )


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
    store_of(stub).restore(PLACE["Bucket"], PLACE["Key"], "v1", tags=TAGS)
    stub.assert_no_pending_responses()
