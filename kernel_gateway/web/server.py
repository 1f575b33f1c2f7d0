"""jupyter_server with our managers, our routes and nothing else."""

from __future__ import annotations

import errno
import logging
import secrets
import socket
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from jupyter_server.extension.manager import ExtensionManager
from jupyter_server.prometheus.log_functions import prometheus_log_method
from jupyter_server.serverapp import ServerApp, random_ports
from tornado.httpserver import HTTPServer
from tornado.log import app_log
from tornado.netutil import bind_sockets
from tornado.web import RequestHandler
from traitlets import Dict as DictTrait
from traitlets import Instance, default
from traitlets.config import Config

from kernel_gateway.errors import StartError
from kernel_gateway.garbage import GarbageCollector
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.web import cell_events
from kernel_gateway.web.base import request_facts
from kernel_gateway.web.connection import LambdaWebsocketConnection
from kernel_gateway.web.contents import NoContentsManager
from kernel_gateway.web.forwarded_connection import ForwardedConnection
from kernel_gateway.web.forwarding import Forwarder
from kernel_gateway.web.identities import IdentityTable
from kernel_gateway.web.identity_provider import LambdaAuthorizer, LambdaIdentityProvider
from kernel_gateway.web.kernel_manager import LambdaKernelManager
from kernel_gateway.web.kernelspecs import LambdaKernelSpecManager
from kernel_gateway.web.sessions import NotebookSessions
from kernel_gateway.web.workspace_files import FileStore

logger = logging.getLogger(__name__)

WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104


class GatewayServer(ServerApp):
    """The web server of one gateway, inside a running event loop."""

    name = "kernel-gateway"

    registry = Instance(KernelRegistry)
    identities = Instance(IdentityTable)
    environments = DictTrait()

    @default("default_services")
    def _no_services(self) -> tuple[str, ...]:
        return ()

    @default("extra_services")
    def _own_routes(self) -> list[str]:
        return ["kernel_gateway.web.handlers"]

    @default("ip")
    def _loopback(self) -> str:
        return "127.0.0.1"

    @default("allow_root")
    def _root_is_fine(self) -> bool:
        # No user's code runs in this process.
        return True

    @default("allow_unauthenticated_access")
    def _only_with_a_token(self) -> bool:
        return False

    @default("cookie_secret")
    def _no_cookies(self) -> bytes:
        # Nothing is signed with it; jupyter_server's own default would write a file.
        return secrets.token_bytes(32)

    @classmethod
    def create(
        cls,
        *,
        config: Config,
        registry: KernelRegistry,
        identities: IdentityTable,
        environments: dict[str, Any],
        files: FileStore,
        spool_dir: Path,
        collector: GarbageCollector | None = None,
        log: logging.Logger | None = None,
    ) -> GatewayServer:
        """Return a server that listens.

        Args:
            config: of ServerApp and the other classes of jupyter_server.
            registry: the kernels, opened.
            identities: whose token is whose.
            environments: by kernelspec name.
            files: the workspaces' files.
            spool_dir: where uploads wait; on disk, not in memory.
            collector: of garbage, for admins; None = nobody can ask for a collection.
            log: jupyter_server's logger, the gateway's own where None.

        Raises:
            StartError: no port could be had.
        """
        server = cls(
            config=_with_our_classes(config),
            registry=registry,
            identities=identities,
            environments=environments,
            log=log or logging.getLogger("kernel_gateway.jupyter_server"),
        )
        app_log.addFilter(_is_news)
        server.tornado_settings = {
            **server.tornado_settings,
            "kernel_registry": registry,
            "forwarder": Forwarder(registry.services.replica),
            "notebook_sessions": NotebookSessions(),
            "workspace_files": files,
            "log_function": _note_request,
            "spool_dir": spool_dir,
            "idempotency_keys": WeakKeyDictionary(),
            "garbage_collector": collector,
            # No file of this machine is served, jupyter_server's own pages included.
            "static_path": None,
            # A token has to be sent on purpose: a page of another site cannot do that, and there
            # is no cookie that would go with its requests.
            "disable_check_xsrf": True,
        }
        registry.on_moved = LambdaWebsocketConnection.close_of
        server.initialize(argv=[], find_extensions=False)
        cast("LambdaKernelManager", server.kernel_manager).begin()
        cell_events.publish(registry.services.recorder, server)
        return server

    @property
    def url(self) -> str:
        """The URL of this server for a client on this machine, with a trailing ``/``."""
        host = WILDCARDS.get(self.ip, self.ip)
        host = f"[{host}]" if ":" in host else host
        scheme = "https" if self.certfile else "http"
        return f"{scheme}://{host}:{self.port}{self.base_url}"

    async def aclose(self) -> None:
        """Close the port and every connection."""
        cast("LambdaKernelManager", self.kernel_manager).stop_culling()
        self.http_server.stop()
        LambdaWebsocketConnection.close_all()
        ForwardedConnection.close_all()
        self.tornado_settings["forwarder"].close()
        await self.http_server.close_all_connections()

    def load_config_file(self, suppress_errors: bool = True) -> None:  # type: ignore[override]
        """Do nothing: the settings have been read."""

    def migrate_config(self) -> None:
        """Do nothing: there is no IPython 3 configuration to carry over."""

    def init_event_logger(self) -> None:
        """Make the bus of events, which knows ours."""
        super().init_event_logger()
        cell_events.register(self)

    def init_server_extensions(self) -> None:
        """Link none: there are none here, even where this is part of a server that has some."""
        self.extension_manager = ExtensionManager(log=self.log, serverapp=self)

    def load_server_extensions(self) -> None:
        """Do nothing: there are none."""

    def init_signal(self) -> None:
        """Do nothing: the application handles signals."""

    def init_logging(self) -> None:
        """Do nothing: the application sets up logging."""

    def init_httpserver(self) -> None:
        """Listen on the port, or as Jupyter does on one of those after it.

        Raises:
            StartError: none of them is free.
        """
        self._http_server = HTTPServer(
            self.web_app,
            ssl_options=self.ssl_options,
            xheaders=self.trust_xheaders,
            max_body_size=self.max_body_size,
            max_buffer_size=self.max_buffer_size,
        )
        sockets = self._bind()
        self.port = sockets[0].getsockname()[1]
        self._http_server.add_sockets(sockets)

    def _bind(self) -> list[socket.socket]:
        for port in random_ports(self.port, self.port_retries + 1):
            try:
                return bind_sockets(port, self.ip)
            except OSError as problem:
                if problem.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise StartError(f"cannot listen on {self.ip}:{port}: {problem}") from problem
                self.log.warning("port %d: %s", port, problem.strerror)
        raise StartError(
            f"port {self.port} of {self.ip} is not free; choose another with --port, or --port 0 "
            "for any"
        )


def _note_request(handler: RequestHandler) -> None:
    prometheus_log_method(handler)
    # What was refused has one line already, by `JsonErrors`.
    if handler.get_status() < 400:
        logger.debug("a request was answered", extra=request_facts(handler))


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of jupyter_server's says what no line of ours does."""
    return not str(record.msg).startswith("Couldn't authenticate")


def _with_our_classes(config: Config) -> Config:
    ours = Config(
        {
            "ServerApp": {
                "kernel_manager_class": LambdaKernelManager,
                "kernel_websocket_connection_class": LambdaWebsocketConnection,
                "kernel_spec_manager_class": LambdaKernelSpecManager,
                "contents_manager_class": NoContentsManager,
                "identity_provider_class": LambdaIdentityProvider,
                "authorizer_class": LambdaAuthorizer,
                "jpserver_extensions": {},
                "open_browser": False,
            }
        }
    )
    merged = Config()
    merged.merge(config)
    merged.merge(ours)
    return merged
