"""The gateway and kernels that the integration tests share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.integration.driver import Gateway, NotebookClient, a_gateway


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway as a laptop user starts it: one user, default environment."""
    with a_gateway(tmp_path_factory.mktemp("gateway") / "state") as running:
        yield running


@pytest.fixture
def kernel(gateway: Gateway) -> Iterator[NotebookClient]:
    """A fresh kernel in a workspace of its own."""
    workspace = f"w{uuid.uuid4().hex[:12]}"
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    yield client
    client.close()
    gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}")
