"""Identity from the token alone, and what an identity may use at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jupyter_server.auth import Authorizer, IdentityProvider, User
from tornado import web
from traitlets import Instance, default

from kernel_gateway.kernels.identity import Identity
from kernel_gateway.web.base import JsonErrors
from kernel_gateway.web.identities import LOCAL_USER, IdentityTable

ADMIN_RESOURCES = frozenset({"garbage", "metrics", "trail-index"})
"""What is about all users together."""


@dataclass
class LambdaUser(User):
    """jupyter_server's user, with the identity that decides."""

    identity: Identity = field(default_factory=lambda: Identity(user=LOCAL_USER))

    @classmethod
    def of(cls, identity: Identity) -> LambdaUser:
        """Return the user that jupyter_server shows for ``identity``."""
        agent = f"/{identity.agent}" if identity.agent else ""
        return cls(username=f"{identity.user}{agent}", identity=identity)


class LambdaIdentityProvider(IdentityProvider):
    """Admits who holds a token: in the Authorization header, or in the query.

    No cookie is ever set or read. So there is no ambient authority that another site could use,
    and neither a login page nor an XSRF check is needed.
    """

    identities = Instance(IdentityTable)

    @default("identities")
    def _default_identities(self) -> IdentityTable:
        server: Any = self.parent
        found: IdentityTable = server.identities
        return found

    @default("token")
    def _token_default(self) -> str:
        # Never shown by jupyter_server's own pages and logs; the table decides.
        return ""

    @default("updatable_fields")
    def _nothing_can_be_changed(self) -> list[str]:
        return []

    async def _get_user(self, handler: web.RequestHandler) -> User | None:
        token = self.get_token(handler)
        identity = self.identities.identify(token) if token else None
        if isinstance(handler, JsonErrors):
            handler.is_unidentified = identity is None
        return None if identity is None else LambdaUser.of(identity)

    def get_token(self, handler: web.RequestHandler) -> str | None:
        """Return the token of the Authorization header, else of the query."""
        found = self.auth_header_pat.fullmatch(handler.request.headers.get("Authorization", ""))
        if found:
            header: str = found.group(2)
            return header.strip()
        return handler.get_query_argument("token", None)

    def is_token_authenticated(self, handler: web.RequestHandler) -> bool:
        """Return False: jupyter_server opens CORS to every origin for such requests.

        Other origins are admitted by ``ServerApp.allow_origin`` only.
        """
        return False

    def set_login_cookie(self, handler: web.RequestHandler, user: User) -> None:
        """Set nothing."""

    def get_user_cookie(self, handler: web.RequestHandler) -> None:
        """Return None: a cookie identifies nobody."""

    @property
    def auth_enabled(self) -> bool:
        """True: there is no way to run without tokens."""
        return True

    @property
    def login_available(self) -> bool:
        """False: there is no login page."""
        return False

    @property
    def logout_available(self) -> bool:
        """False: there is no session to leave."""
        return False


class LambdaAuthorizer(Authorizer):
    """Admits every identity to what is filtered by owner, and admins to the rest."""

    def is_authorized(
        self, handler: web.RequestHandler, user: User, action: str, resource: str
    ) -> bool:
        """Return whether ``user`` may use ``resource`` at all; ownership is checked in it."""
        if not isinstance(user, LambdaUser):
            return False
        return resource not in ADMIN_RESOURCES or user.identity.admin
