"""``/api/sessions``, limited to the caller's own sessions and kernels."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from tornado import web

from kernel_gateway.errors import BadRequest, HeldElsewhere, NotFound
from kernel_gateway.kernels.identity import may_execute, may_see
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.web.base import GatewayHandler, endpoint
from kernel_gateway.web.kernel_manager import LambdaKernelManager, kernel_model
from kernel_gateway.web.sessions import NotebookSession, NotebookSessions

PATCHED = ("path", "name", "type")


class SessionsAPIHandler(GatewayHandler):
    """Base of the session handlers."""

    auth_resource = "sessions"

    @property
    def sessions(self) -> NotebookSessions:
        """All sessions, of every owner."""
        found: NotebookSessions = self.settings["notebook_sessions"]
        return found

    @property
    def manager(self) -> LambdaKernelManager:
        """The kernel manager, which asks no one who calls."""
        found: LambdaKernelManager = self.settings["kernel_manager"]
        return found

    def visible_session(self, session_id: str) -> NotebookSession:
        """Return the session if the caller may see it (raises NotFound)."""
        session = self.sessions.get(session_id)
        if not may_see(self.identity, session.owner):
            raise NotFound(f"Session not found: {session_id}")
        return session

    def model(self, session: NotebookSession) -> dict[str, Any]:
        """Return the REST model (raises NotFound where the kernel is gone)."""
        kernel = self.visible_kernel(session.kernel_id)
        model: dict[str, Any] = {
            "id": session.session_id,
            "path": session.path,
            "name": session.name,
            "type": session.type,
            "kernel": kernel_model(kernel),
        }
        if session.type == "notebook":
            model["notebook"] = {"path": session.path, "name": session.name}
        return model

    async def chosen_kernel(self, kernel: dict[str, Any]) -> str:
        """Return the id of the caller's kernel that ``kernel`` names, or of a new one.

        Raises:
            NotFound: the id is none of the caller's, or there is no such kernelspec.
        """
        kernel_id, name = kernel.get("id"), kernel.get("name")
        if isinstance(kernel_id, str) and kernel_id:
            with suppress(NotFound):
                await self.registry.find(kernel_id)
            return self.own_kernel(kernel_id).kernel_id
        if name is not None and not isinstance(name, str):
            raise BadRequest("kernel.name: must be text")
        env = kernel.get("env") or {}
        if not isinstance(env, dict):
            raise BadRequest("kernel.env: must be an object")
        options, _ = KernelOptions.from_env(env)
        return await self.manager.start_kernel(
            owner=self.identity.as_owner,
            kernel_name=name or None,
            options=options,
            actor=Actor.of(self.caller),
        )


class SessionsHandler(SessionsAPIHandler):
    """All sessions that the caller may see."""

    @endpoint
    async def get(self) -> None:
        """List them; those whose kernel is gone are forgotten."""
        models = []
        for session in self.sessions.all():
            if not may_see(self.identity, session.owner):
                continue
            try:
                models.append(self.model(session))
            except NotFound:
                self.sessions.remove(session.session_id)
        self.finish(json.dumps(models))

    @endpoint
    async def post(self) -> None:
        """Make one, with a kernel, or return the one that the path has."""
        body = self.json_object()
        path, kind = _text(body, "path"), _text(body, "type")
        kernel = body.get("kernel") or {}
        if not isinstance(kernel, dict):
            raise BadRequest("kernel: must be an object")
        session = self._living(path) or self.sessions.add(
            NotebookSession(
                owner=self.identity.as_owner,
                path=path,
                name=str(body.get("name") or ""),
                type=kind,
                kernel_id=await self.chosen_kernel(kernel),
            )
        )
        self.set_header("Location", f"{self.base_url}api/sessions/{session.session_id}")
        self.set_status(201)
        self.finish(json.dumps(self.model(session)))

    def _living(self, path: str) -> NotebookSession | None:
        session = self.sessions.find(self.identity.as_owner, path)
        if session is not None and session.kernel_id not in self.manager:
            self.sessions.remove(session.session_id)
            return None
        return session


class SessionHandler(SessionsAPIHandler):
    """One session."""

    @endpoint
    async def get(self, session_id: str) -> None:
        """Say how it is."""
        self.finish(json.dumps(self.model(self.visible_session(session_id))))

    @endpoint
    async def patch(self, session_id: str) -> None:
        """Change path, name, type or kernel; a kernel that no session has any more is ended."""
        before = self._own(session_id)
        body = self.json_object()
        changes = {name: _text(body, name) for name in PATCHED if body.get(name) is not None}
        kernel = body.get("kernel")
        if isinstance(kernel, dict) and (kernel.get("id") or kernel.get("name")):
            changes["kernel_id"] = await self.chosen_kernel(kernel)
        after = self.sessions.update(session_id, **changes)
        if not self.sessions.uses(before.kernel_id) and before.kernel_id in self.manager:
            await self.manager.shutdown_kernel(before.kernel_id, actor=Actor.of(self.caller))
        self.finish(json.dumps(self.model(after)))

    @endpoint
    async def delete(self, session_id: str) -> None:
        """Forget it and end its kernel."""
        session = self.visible_session(session_id)
        try:
            self.visible_kernel(session.kernel_id)
            await self.manager.shutdown_kernel(session.kernel_id, actor=Actor.of(self.caller))
        except HeldElsewhere as elsewhere:
            await self.forwarder.delete(self, elsewhere, session.kernel_id)
        except (NotFound, web.HTTPError) as problem:
            if isinstance(problem, web.HTTPError) and problem.status_code != 404:
                raise
        self.sessions.remove(session_id)
        self.set_status(204)
        self.finish()

    def _own(self, session_id: str) -> NotebookSession:
        session = self.visible_session(session_id)
        if not may_execute(self.identity, session.owner):
            raise web.HTTPError(403, "an admin does not change others' sessions")
        return session


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name}: must be given, as text")
    return value
