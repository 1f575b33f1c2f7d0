"""The server extension, nothing started: what it sets, and when it leaves a server alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets.config import Config

import kernel_gateway
from kernel_gateway.extension import _link_jupyter_server_extension
from kernel_gateway.extension.embedded import EMBEDDED
from kernel_gateway.extension.managers import MixedKernelManager, MixedKernelSpecManager


class OtherKernelManager(AsyncMappingKernelManager):
    """Of somebody else."""


@pytest.fixture(autouse=True)
def _one_client_of_gateways_per_test() -> Iterator[None]:
    GatewayClient.clear_instance()
    yield
    GatewayClient.clear_instance()


def a_server(tmp_path: Path, **sections: dict[str, Any]) -> ServerApp:
    """Return a server that was configured, and not yet made anything."""
    own = {"state_dir": str(tmp_path / "state"), **sections.pop("KernelGateway", {})}
    server = ServerApp(config=Config({"KernelGateway": own, **sections}))
    server.log = logging.getLogger("a server")
    server.init_event_logger()
    return server


def test_the_package_names_its_extension() -> None:
    points = kernel_gateway._jupyter_server_extension_points()
    assert points == [{"module": "kernel_gateway.extension"}]


def test_a_plain_server_gets_managers_of_both_kinds_and_starts_nothing(tmp_path: Path) -> None:
    server = a_server(tmp_path)
    _link_jupyter_server_extension(server)
    assert server.kernel_manager_class is MixedKernelManager
    assert server.kernel_spec_manager_class is MixedKernelSpecManager
    assert server.tornado_settings[EMBEDDED].gateway is None
    assert not (tmp_path / "state").exists()


def test_specs_are_those_of_the_configuration_and_never_hide_a_local_one(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[environment]]\nid = "big"\nmemory_mb = 4096\n')
    server = a_server(tmp_path, KernelGateway={"config_file": str(file)})
    _link_jupyter_server_extension(server)
    specs = MixedKernelSpecManager(parent=server)
    assert {name for name in specs.get_all_specs() if specs.is_lambda(name)} == {
        "lambda-python",
        "lambda-big",
    }
    assert specs.get_kernel_spec("python3").argv[1:3] == ["-m", "ipykernel_launcher"]


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"GatewayClient": {"url": "http://127.0.0.1:1"}}, "with --gateway-url"),
        ({"ServerApp": {"kernel_manager_class": OtherKernelManager}}, "OtherKernelManager"),
        ({"KernelGateway": {"max_containers": 0}}, "max_containers"),
        ({"KernelGateway": {"config_file": "/nowhere/at.toml"}}, "/nowhere/at.toml"),
    ],
    ids=["gateway-url", "another manager", "a wrong value", "no such file"],
)
def test_a_server_is_left_as_it_is_and_its_log_says_why(
    sections: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = a_server(tmp_path, **sections)
    _link_jupyter_server_extension(server)
    assert EMBEDDED not in server.tornado_settings
    (line,) = caplog.messages
    assert line.startswith("no lambda kernels in this server: ")
    assert why in line
