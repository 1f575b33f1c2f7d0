"""A writer that is killed between the head of a request and its body leaves the older object."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from kernel_gateway.config import Deployment
from kernel_gateway.errors import GatewayError
from kernel_gateway.objects import S3ObjectStore as GatewayStore
from lambda_kernel.contract.keys import Stack
from lambda_kernel.serving import credentials
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.objects import S3ObjectStore as ServingStore

BUCKET, KEY = Stack().workspaces, "users/u1/default/cut"


@pytest.fixture
def cutting(deployment: Deployment) -> Iterator[str]:
    """A way to storage on which every request ends behind its head."""
    endpoint = urlsplit(deployment.s3_endpoint or "")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                with near, socket.create_connection((endpoint.hostname, endpoint.port)) as far:
                    received = b""
                    while b"\r\n\r\n" not in received:
                        received += near.recv(65536)
                    far.sendall(received.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                    far.shutdown(socket.SHUT_WR)
                    # It has decided what to do once it answers, or hangs up.
                    far.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "body", [lambda: b"new", lambda: io.BytesIO(b"new")], ids=["bytes", "a file"]
)
def test_a_cut_write_of_a_container_stores_nothing(
    deployment: Deployment, s3_client: Any, cutting: str, body: Callable[[], Any]
) -> None:
    s3_client.put_object(Bucket=BUCKET, Key=KEY, Body=b"old")
    names = {
        "AWS_ACCESS_KEY_ID": deployment.access_key_id or "",
        "AWS_SECRET_ACCESS_KEY": deployment.secret_access_key or "",
        "AWS_REGION": deployment.region,
        "AWS_ENDPOINT_URL_S3": cutting,
    }
    clients = credentials.open_clients(names, lambda **_: None)
    clients.swappable.swap(credentials.execution_role(names))
    store = ServingStore(clients.s3, clients.requests)

    with pytest.raises(StorageUnavailable):
        store.put(BUCKET, KEY, body(), size_bytes=3)

    assert s3_client.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"old"
    clients.requests.close()


async def test_a_cut_write_of_the_gateway_stores_nothing(
    deployment: Deployment, s3_client: Any, cutting: str
) -> None:
    s3_client.put_object(Bucket=BUCKET, Key=KEY, Body=b"old")
    store = GatewayStore.create(replace(deployment, s3_endpoint=cutting))

    with pytest.raises(GatewayError):
        await store.put(BUCKET, KEY, b"new")

    assert s3_client.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"old"
    store.close()
