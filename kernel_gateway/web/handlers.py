"""Every route of the gateway. What is not here does not exist: the last line takes the rest.

jupyter_server loads ``default_handlers`` as an extra service, ahead of its own base handlers.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.base.handlers import APIVersionHandler
from jupyter_server.kernelspecs.handlers import KernelSpecResourceHandler
from jupyter_server.services.api.handlers import IdentityHandler
from jupyter_server.services.kernelspecs.handlers import (
    KernelSpecHandler,
    MainKernelSpecHandler,
    kernel_name_regex,
)
from tornado import web

from kernel_gateway.web.base import NotFoundHandler, write_json_error
from kernel_gateway.web.channels import KernelChannelsHandler
from kernel_gateway.web.kernels_api import KernelActionHandler, KernelHandler, KernelsHandler
from kernel_gateway.web.sessions_api import SessionHandler, SessionsHandler
from kernel_gateway.web.status_api import EventsHandler, MetricsHandler, StatusHandler
from kernel_gateway.web.workspaces_api import WorkspaceFilesHandler

KERNEL_ID = r"(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)"
SESSION_ID = r"(?P<session_id>\w+-\w+-\w+-\w+-\w+)"


class LogoHandler(KernelSpecResourceHandler):
    """A kernelspec's logo; jupyter_server's handler would show a login page and HTML errors."""

    def get_login_url(self) -> str:
        """Refuse (403): there is no login page."""
        raise web.HTTPError(403)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error as JSON."""
        write_json_error(self, status_code, kwargs.get("exc_info"))


default_handlers = [
    (r"/api/?", APIVersionHandler),
    (r"/api/me", IdentityHandler),
    (r"/api/status", StatusHandler),
    (r"/api/events/subscribe", EventsHandler),
    (r"/api/kernelspecs", MainKernelSpecHandler),
    (rf"/api/kernelspecs/{kernel_name_regex}", KernelSpecHandler),
    (rf"/kernelspecs/{kernel_name_regex}/(?P<path>.*)", LogoHandler),
    (r"/api/kernels", KernelsHandler),
    (rf"/api/kernels/{KERNEL_ID}", KernelHandler),
    (rf"/api/kernels/{KERNEL_ID}/(?P<action>interrupt|restart)", KernelActionHandler),
    (rf"/api/kernels/{KERNEL_ID}/channels", KernelChannelsHandler),
    (r"/api/sessions", SessionsHandler),
    (rf"/api/sessions/{SESSION_ID}", SessionHandler),
    (r"/api/workspaces/(?P<workspace>[^/]+)/files/(?P<path>.*)", WorkspaceFilesHandler),
    (r"/metrics", MetricsHandler),
    (r"/.*", NotFoundHandler),
]
