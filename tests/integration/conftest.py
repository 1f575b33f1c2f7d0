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


@pytest.fixture(scope="session")
def process_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose cells get no namespaces of their own, as on AWS Lambda."""
    folder = tmp_path_factory.mktemp("process-gateway")
    config = folder / "config.toml"
    config.write_text('[[environment]]\nid = "default"\ntier = "process"\n')
    with a_gateway(folder / "state", "--config", str(config)) as running:
        yield running


@pytest.fixture
def kernel(gateway: Gateway) -> Iterator[NotebookClient]:
    """A fresh kernel in a workspace of its own."""
    yield from a_kernel(gateway)


@pytest.fixture(params=["gateway", "process_gateway"], ids=["namespaces", "process"])
def kernel_of_each_tier(request: pytest.FixtureRequest) -> Iterator[NotebookClient]:
    """A fresh kernel in a workspace of its own, in each isolation tier."""
    yield from a_kernel(request.getfixturevalue(request.param))


def a_kernel(gateway: Gateway) -> Iterator[NotebookClient]:
    workspace = f"w{uuid.uuid4().hex[:12]}"
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    yield client
    client.close()
    gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}")
