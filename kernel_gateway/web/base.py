"""What every REST handler of ours shares: the caller's identity, errors in JSON, ownership."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Awaitable, Callable
from http.client import responses
from typing import Any, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from kernel_gateway.errors import Forbidden, GatewayError, HeldElsewhere, NotFound
from kernel_gateway.kernels.identity import Identity, may_execute, may_see
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.messaging.caller import Caller
from kernel_gateway.web.callers import caller_of
from kernel_gateway.web.forwarding import Forwarder

logger = logging.getLogger(__name__)

Method = Callable[..., Awaitable[None]]


def endpoint(method: Method) -> Method:
    """Return a handler's method that asks for a token and for the authorizer's consent first."""

    @functools.wraps(method)
    async def answer(self: GatewayHandler, *args: Any, **kwargs: Any) -> None:
        await method(self, *args, **kwargs)

    return cast("Method", web.authenticated(authorized(answer)))


class JsonErrors(web.RequestHandler):
    """What a handler says of errors: JSON to the caller, one line in the log.

    A GatewayError becomes its HTTP status with its message.

    Attributes:
        is_unidentified: a token was looked for, and admitted nobody.
    """

    is_unidentified = False

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error as JSON: ``message`` and ``reason``."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        message: str = responses.get(status_code, "Unknown HTTP Error")
        reason = None
        if isinstance(error, GatewayError):
            message = str(error)
            self.set_status(error.http_status)
            retry_after_s = getattr(error, "retry_after_s", None)
            if retry_after_s is not None:
                self.set_header("Retry-After", str(math.ceil(retry_after_s)))
        elif isinstance(error, web.HTTPError):
            reason = error.reason
            # tornado doubles the percent signs of a message that has no arguments.
            message = (error.log_message or message).replace("%%", "%")
            if message == "Forbidden" and self.is_unidentified:
                message = "the token is missing or wrong"
        if self.get_status() < 500:
            facts = {"status": self.get_status(), "reason": message}
            logger.info("a request was refused", extra=request_facts(self) | facts)
        if self.get_status() == 405:
            methods = [m for m in self.SUPPORTED_METHODS if _has(self, m)]
            self.set_header("Allow", ", ".join(methods))
        self.set_header("Content-Type", "application/json")
        facts_told = {"message": message, "reason": reason, **self.error_facts(error)}
        self.finish(json.dumps(facts_told))

    def error_facts(self, error: object) -> dict[str, str]:
        """Return what the answer says of ``error`` beside its message."""
        return {}

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log a traceback of what is not the caller's; the rest is one line of `write_error`."""
        status = value.http_status if isinstance(value, GatewayError) else 500
        if isinstance(value, web.HTTPError):
            status = value.status_code
        if status >= 500:
            super().log_exception(typ, value, tb)


def _has(handler: web.RequestHandler, method: str) -> bool:
    own = getattr(type(handler), method.lower())
    return own is not getattr(web.RequestHandler, method.lower())


def request_facts(handler: web.RequestHandler) -> dict[str, object]:
    """Return what a log line says of a request; never its query, which may hold the token."""
    return {"method": handler.request.method, "path": handler.request.path}


class GatewayHandler(JsonErrors, APIHandler):
    """Base of the REST handlers.

    A request whose path names a kernel is answered by the gateway that serves it; a kernel that
    none serves is taken over here, but for requests that only look.
    """

    async def prepare(self) -> None:  # type: ignore[override]
        """Ask for the token, and hand on what another gateway has to answer."""
        await super().prepare()
        kernel_id = self.path_kwargs.get("kernel_id")
        if kernel_id is None or self.current_user is None:
            return
        try:
            found = await self.registry.find(kernel_id)
            self.visible_kernel(kernel_id)
        except NotFound:
            return  # which the handler says
        try:
            takes = self.request.method not in {"GET", "HEAD", "OPTIONS"}
            await self.registry.reach(found, takes=takes)
        except HeldElsewhere as elsewhere:
            await self.forwarder.forward(self, elsewhere)

    @property
    def identity(self) -> Identity:
        """Who is calling, as the token says."""
        found: Identity = self.current_user.identity
        return found

    @property
    def caller(self) -> Caller:
        """Who is calling, as the journal names it."""
        return caller_of(self.identity, "rest", self.request.headers)

    @property
    def registry(self) -> KernelRegistry:
        """All kernels, of every owner."""
        found: KernelRegistry = self.settings["kernel_registry"]
        return found

    @property
    def forwarder(self) -> Forwarder:
        """The way to other gateways."""
        found: Forwarder = self.settings["forwarder"]
        return found

    def visible_kernel(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel if the caller may see it (raises NotFound)."""
        return visible_kernel(self.registry, self.identity, kernel_id)

    def own_kernel(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel if the caller may execute in it.

        Raises:
            NotFound: there is none, or none that the caller may see.
            Forbidden: an admin sees it, but it is another user's.
        """
        return own_kernel(self.registry, self.identity, kernel_id)

    def json_object(self) -> dict[str, Any]:
        """Return the body as an object, empty where there is none (raises HTTPError 400)."""
        if not self.request.body.strip():
            return {}
        try:
            body = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise web.HTTPError(400, "the body is not JSON") from None
        if not isinstance(body, dict):
            raise web.HTTPError(400, "the body must be a JSON object")
        return body


class NotFoundHandler(GatewayHandler):
    """Whatever no other handler takes."""

    auth_resource = "api"

    async def prepare(self) -> None:  # type: ignore[override]
        """Answer 403 without a token, else 404."""
        await super().prepare()
        raise web.HTTPError(404, "there is no such resource here")


def visible_kernel(registry: KernelRegistry, identity: Identity, kernel_id: str) -> LambdaKernel:
    """Return the kernel if the caller may see it.

    Raises:
        NotFound: there is none, or it is another's: a caller cannot tell these apart.
    """
    try:
        kernel = registry.get(kernel_id)
    except NotFound:
        kernel = None
        ended = registry.ended.find(kernel_id)
        if ended is not None and may_see(identity, ended.owner):
            raise NotFound(str(ended)) from None
    if kernel is None or not may_see(identity, kernel.owner):
        raise NotFound(f"Kernel does not exist: {kernel_id}")
    return kernel


def own_kernel(registry: KernelRegistry, identity: Identity, kernel_id: str) -> LambdaKernel:
    """Return the kernel if the caller may execute in it (raises NotFound, Forbidden)."""
    kernel = visible_kernel(registry, identity, kernel_id)
    if not may_execute(identity, kernel.owner):
        raise Forbidden("an admin lists and shuts down, but does not execute in others' kernels")
    if kernel.record.options.replay is not None:
        # Else the report would be of more than the trail.
        raise Forbidden("a replay's kernel runs the cells of its trail and nothing else")
    return kernel
