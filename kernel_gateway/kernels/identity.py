"""Who is calling, whose a kernel is, and what the one may do with the other's."""

from __future__ import annotations

from dataclasses import dataclass

from lambda_kernel.contract import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller as its token says, or the owner of a kernel.

    Attributes:
        user: the owning user.
        agent: the agent of that user, or None for the user itself.
        admin: may list every kernel, read trails and shut kernels down.
    """

    user: str
    agent: str | None = None
    admin: bool = False

    def __post_init__(self) -> None:
        names.check_user(self.user, "identity.user")
        if self.agent is not None:
            names.check_agent(self.agent, "identity.agent")

    @property
    def as_owner(self) -> Identity:
        """The (user, agent) pair that owns what this caller creates."""
        return Identity(user=self.user, agent=self.agent) if self.admin else self


def may_execute(identity: Identity, owner: Identity) -> bool:
    """Return whether the caller may run code in, interrupt and restart the owner's kernels.

    A user without agent reaches the kernels of its own agents; an agent only its own; an admin
    no more than the same token without ``admin``.

    Source: storage.md, "Owner".
    """
    return identity.user == owner.user and identity.agent in {None, owner.agent}


def may_see(identity: Identity, owner: Identity) -> bool:
    """Return whether the caller may list the owner's kernels and read about them.

    Source: storage.md, "Owner".
    """
    return identity.admin or may_execute(identity, owner)


def may_shut_down(identity: Identity, owner: Identity) -> bool:
    """Return whether the caller may end the owner's kernels.

    Source: storage.md, "Owner".
    """
    return may_see(identity, owner)
