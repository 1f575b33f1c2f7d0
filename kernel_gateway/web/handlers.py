"""Every route of the gateway. What is not here does not exist: the last line takes the rest.

jupyter_server loads ``default_handlers`` as an extra service, ahead of its own base handlers.
"""

from __future__ import annotations

from importlib import resources

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIVersionHandler
from jupyter_server.kernelspecs.handlers import KernelSpecResourceHandler
from jupyter_server.services.api.handlers import IdentityHandler as JupyterIdentityHandler
from jupyter_server.services.kernelspecs.handlers import (
    KernelSpecHandler,
    MainKernelSpecHandler,
    kernel_name_regex,
)
from tornado import web

from kernel_gateway.web.base import GatewayHandler, JsonErrors, NotFoundHandler
from kernel_gateway.web.cells_api import CellsHandler
from kernel_gateway.web.channels import KernelChannelsHandler
from kernel_gateway.web.execute_api import ExecuteHandler
from kernel_gateway.web.garbage_api import GarbageHandler
from kernel_gateway.web.kernels_api import KernelActionHandler, KernelHandler, KernelsHandler
from kernel_gateway.web.outputs_api import OutputHandler
from kernel_gateway.web.replay_api import ReplaysHandler
from kernel_gateway.web.sessions_api import SessionHandler, SessionsHandler
from kernel_gateway.web.status_api import EventsHandler, MetricsHandler, StatusHandler
from kernel_gateway.web.trail_api import (
    StatementsHandler,
    TrailBlobHandler,
    TrailContentHandler,
    TrailHandler,
    TrailHeadHandler,
)
from kernel_gateway.web.trails_api import TrailsHandler, TrailsIndexHandler
from kernel_gateway.web.variables_api import VariablesHandler
from kernel_gateway.web.workspaces_api import WorkspaceFilesHandler

KERNEL_ID = r"(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)"
ROOT_TEXT = """\
This is kernel-gateway, a Jupyter gateway: every cell runs as one isolated Lambda invocation.
There is no page here. Connect with the token that you were given, or that the gateway printed
when it started:

  JupyterLab: jupyter lab --gateway-url={url} --GatewayClient.auth_token=TOKEN
  Notebook:   kernel-gateway run NOTEBOOK.ipynb --gateway-url {url} --token TOKEN
  REST:       curl -H 'Authorization: token TOKEN' {url}/api/kernels
  OpenAPI:    {url}/api/spec.yaml
"""

SESSION_ID = r"(?P<session_id>\w+-\w+-\w+-\w+-\w+)"


class RootHandler(GatewayHandler):
    """What somebody sees who opens the gateway's URL in a browser."""

    _track_activity = False

    @allow_unauthenticated
    async def get(self) -> None:
        """Say what this is and how to connect; no more than anybody may know."""
        request = self.request
        url = f"{request.protocol}://{request.host}{self.base_url}".rstrip("/")
        self.finish(ROOT_TEXT.format(url=url), set_content_type="text/plain; charset=utf-8")


class SpecHandler(GatewayHandler):
    """What there is: the OpenAPI document, which tells nothing of anybody."""

    _track_activity = False

    @allow_unauthenticated
    async def get(self) -> None:
        """Return it."""
        text = resources.files("kernel_gateway.web").joinpath("openapi.yaml").read_bytes()
        self.finish(text, set_content_type="application/yaml")


class IdentityHandler(JsonErrors, JupyterIdentityHandler):
    """Who the caller is; the token alone says so, and nothing of it can be changed here."""

    patch = web.RequestHandler.patch


class KernelSpecsHandler(JsonErrors, MainKernelSpecHandler):
    """All kernelspecs."""


class OneKernelSpecHandler(JsonErrors, KernelSpecHandler):
    """One kernelspec."""


class LogoHandler(JsonErrors, KernelSpecResourceHandler):
    """A kernelspec's logo; jupyter_server's handler would show a login page and HTML errors."""

    def get_login_url(self) -> str:
        """Refuse (403): there is no login page."""
        raise web.HTTPError(403)


default_handlers = [
    (r"/", RootHandler),
    (r"/api/?", APIVersionHandler),
    (r"/api/spec.yaml", SpecHandler),
    (r"/api/me", IdentityHandler),
    (r"/api/status", StatusHandler),
    (r"/api/events/subscribe", EventsHandler),
    (r"/api/kernelspecs", KernelSpecsHandler),
    (rf"/api/kernelspecs/{kernel_name_regex}", OneKernelSpecHandler),
    (rf"/kernelspecs/{kernel_name_regex}/(?P<path>.*)", LogoHandler),
    (r"/api/kernels", KernelsHandler),
    (rf"/api/kernels/{KERNEL_ID}", KernelHandler),
    (rf"/api/kernels/{KERNEL_ID}/(?P<action>interrupt|restart)", KernelActionHandler),
    (rf"/api/kernels/{KERNEL_ID}/execute", ExecuteHandler),
    (rf"/api/kernels/{KERNEL_ID}/variables", VariablesHandler),
    (rf"/api/kernels/{KERNEL_ID}/outputs/(?P<seq>[0-9]{{1,9}})", OutputHandler),
    (rf"/api/kernels/{KERNEL_ID}/cells", CellsHandler),
    (rf"/api/kernels/{KERNEL_ID}/trail.ipynb", TrailHandler),
    (rf"/api/kernels/{KERNEL_ID}/trail.intoto.jsonl", StatementsHandler),
    (rf"/api/kernels/{KERNEL_ID}/trail/head", TrailHeadHandler),
    (rf"/api/kernels/{KERNEL_ID}/trail/content-removals", TrailContentHandler),
    (rf"/api/kernels/{KERNEL_ID}/trail/blobs/(?P<number>[0-9]{{1,8}})", TrailBlobHandler),
    (r"/api/trails", TrailsHandler),
    (r"/api/trails/index", TrailsIndexHandler),
    (rf"/api/kernels/{KERNEL_ID}/channels", KernelChannelsHandler),
    (r"/api/sessions", SessionsHandler),
    (rf"/api/sessions/{SESSION_ID}", SessionHandler),
    (r"/api/workspaces/(?P<workspace>[^/]+)/files/(?P<path>.*)", WorkspaceFilesHandler),
    (r"/api/replays", ReplaysHandler),
    (r"/api/garbage", GarbageHandler),
    (r"/metrics", MetricsHandler),
    (r"/.*", NotFoundHandler),
]
