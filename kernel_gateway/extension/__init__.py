"""A Jupyter server extension: lambda kernels beside the local ones of one JupyterLab.

jupyter_server looks these functions up by name.
"""

from __future__ import annotations

from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets.config import Config

from kernel_gateway.errors import ConfigError
from kernel_gateway.extension.embedded import EMBEDDED, EmbeddedGateway
from kernel_gateway.extension.managers import MixedKernelManager, MixedKernelSpecManager
from kernel_gateway.extension.websocket import MixedWebsocketConnection
from kernel_gateway.settings import KernelGateway, Settings
from kernel_gateway.web import cell_events


def _link_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Set the server's classes; its managers are made after this."""
    try:
        _check(serverapp)
        gateway = EmbeddedGateway(_settings(serverapp))
    except ConfigError as problem:
        serverapp.log.warning("no lambda kernels in this server: %s", problem)
        return
    cell_events.register(serverapp)
    serverapp.tornado_settings = {**serverapp.tornado_settings, EMBEDDED: gateway}
    serverapp.kernel_manager_class = MixedKernelManager
    serverapp.kernel_spec_manager_class = MixedKernelSpecManager
    serverapp.kernel_websocket_connection_class = MixedWebsocketConnection  # type: ignore[assignment]


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Do nothing more: no route is added, no part is started before the first lambda kernel."""


def _check(serverapp: ServerApp) -> None:
    """Return if the server's classes can be ours.

    Raises:
        ConfigError: something else is configured.
    """
    if GatewayClient.instance(parent=serverapp).gateway_enabled:
        raise ConfigError("with --gateway-url all its kernels are the gateway's")
    # Its default cannot be asked for yet.
    if serverapp.trait_has_value("kernel_manager_class"):
        found = serverapp.kernel_manager_class
        if found is not AsyncMappingKernelManager:
            raise ConfigError(f"ServerApp.kernel_manager_class is {found.__name__}")


def _settings(serverapp: ServerApp) -> Settings:
    """Return the gateway's settings: its configuration files, then the server's configuration.

    Raises:
        ConfigError: a file or value is wrong; the message names it.
    """
    own = serverapp.config[KernelGateway.__name__].copy()
    config_file = own.pop("config_file", None)
    # Only commands of this machine connect there: they find it by its run file.
    listening = {"ip": "127.0.0.1", "port": 0}
    given = Config({KernelGateway.__name__: own, "ServerApp": listening})
    return KernelGateway().load(given, config_file)
