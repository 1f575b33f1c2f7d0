"""What a client may choose for a kernel when it starts one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from kernel_gateway.audit.facts import DerivedFrom
from kernel_gateway.errors import BadRequest
from kernel_gateway.kernels.identity import Identity
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

WORKSPACE = "LAMBDA_KERNEL_WORKSPACE"
PROJECTS = "LAMBDA_KERNEL_PROJECTS"
RUN = "LAMBDA_KERNEL_RUN"
SCOPE = "LAMBDA_KERNEL_SCOPE"
FROM = "LAMBDA_KERNEL_FROM"
ENV_NAMES = (WORKSPACE, PROJECTS, RUN, SCOPE, FROM)

DEFAULT_WORKSPACE = "default"
MAX_PROJECTS = 100
MAX_CELL_DIGITS = 9
_SCOPES = ("agent", "execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSource:
    """A kernel to begin from, as the client names it.

    Attributes:
        kernel_id: which kernel.
        cell: as it was after this cell; None = as it is.
    """

    kernel_id: str
    cell: int | None = None

    @classmethod
    def parse(cls, text: str) -> ForkSource:
        """Return what ``<kernel id>[@<cell>]`` names (raises InvalidField)."""
        kernel_id, at, cell = text.partition("@")
        names.check_kernel_id(kernel_id, FROM)
        if not at:
            return cls(kernel_id=kernel_id)
        if not (cell.isascii() and cell.isdigit() and len(cell) <= MAX_CELL_DIGITS):
            raise InvalidField(FROM, "must be <kernel id> or <kernel id>@<number of a cell>")
        return cls(kernel_id=kernel_id, cell=int(cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What makes a kernel a replay; only the gateway itself chooses it.

    Attributes:
        replay_id: a lower-case UUID; names its part of the user's prefix, and its scope.
        part: a folder of it, for cells that each have a workspace of their own; 0 = all of it.
        derived_from: what is replayed.
        has_connectors: whether cells get the values of the agent's connectors.
        pinned: what its one cell reads, None where it is not replayed from its own state.
    """

    replay_id: str
    part: int = 0
    derived_from: DerivedFrom
    has_connectors: bool = False
    pinned: Pinned | None = None

    def __post_init__(self) -> None:
        names.check_kernel_id(self.replay_id, "replay.replay_id")

    def prefix(self, owner: Identity) -> str:
        """Return the only prefix of the workspaces bucket that its cells reach."""
        base = keys.replay_prefix(owner.user, self.replay_id)
        return f"{base}{self.part}/" if self.part else base

    def scope_of(self, owner: Identity) -> Scope:
        """Return whose state its cells see: nobody else's, and HOME is never saved."""
        agent = owner.agent if self.has_connectors else None
        return Scope(user=owner.user, agent=agent, execution=self.replay_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """The choices of one kernel; checked when made.

    Attributes:
        workspace: which workspace of the owner.
        projects: folders of it to mirror; none = all of it.
        run: the run prefix it works in, or None.
        scope: ``agent`` (the agent's HOME, else the user's) or ``execution`` (an empty HOME for
            every cell).
        source: the kernel whose session it goes on with, or None.
        replay: what it replays, None for every kernel that a client starts.
    """

    workspace: str = DEFAULT_WORKSPACE
    projects: tuple[str, ...] = ()
    run: str | None = None
    scope: Literal["agent", "execution"] = "agent"
    source: ForkSource | None = None
    replay: ReplayOptions | None = None

    def __post_init__(self) -> None:
        names.check_workspace(self.workspace, WORKSPACE)
        for project in self.projects:
            names.check_project(project, PROJECTS)
        if len(self.projects) > MAX_PROJECTS:
            raise InvalidField(PROJECTS, f"must not name more than {MAX_PROJECTS} folders")
        if self.run is not None:
            names.check_run(self.run, RUN)
        if self.scope not in _SCOPES:
            raise InvalidField(SCOPE, f"must be one of {', '.join(_SCOPES)}")
        if self.source is not None and self.scope == "execution":
            raise InvalidField(FROM, f"needs the scope agent: {SCOPE} is execution")

    @classmethod
    def from_env(cls, env: Mapping[str, Any]) -> tuple[KernelOptions, tuple[str, ...]]:
        """Return the options in ``env`` of POST /api/kernels and the names that are ignored.

        An empty value counts as not given.

        Raises:
            BadRequest: naming the variable and the rule it breaks.
        """
        chosen: dict[str, str] = {}
        for name in ENV_NAMES:
            value = env.get(name)
            if not isinstance(value, str | None):
                raise BadRequest(f"{name}: must be text")
            if value:
                chosen[name] = value
        ignored = tuple(sorted(name for name in env if name not in ENV_NAMES))
        projects = [part.strip() for part in chosen.get(PROJECTS, "").split(",")]
        if PROJECTS in chosen and "" in projects:
            raise BadRequest(f"{PROJECTS}: has an empty item; write folders as a,b/c")
        try:
            options = cls(
                workspace=chosen.get(WORKSPACE, DEFAULT_WORKSPACE),
                projects=tuple(dict.fromkeys(projects)) if PROJECTS in chosen else (),
                run=chosen.get(RUN),
                scope=cast("Literal['agent', 'execution']", chosen.get(SCOPE, "agent")),
                source=ForkSource.parse(chosen[FROM]) if FROM in chosen else None,
            )
        except InvalidField as problem:
            raise BadRequest(str(problem)) from problem
        return options, ignored

    def inherited(self, source: KernelOptions) -> KernelOptions:
        """Return these options with what the client left open as ``source`` has it."""
        if (self.workspace, self.projects, self.run) != (DEFAULT_WORKSPACE, (), None):
            return self
        return replace(self, workspace=source.workspace, projects=source.projects, run=source.run)

    def scope_of(self, owner: Identity, kernel_id: str) -> Scope:
        """Return whose HOME and state the kernel's cells see.

        Source: storage.md, "Scope".
        """
        if self.replay is not None:
            return self.replay.scope_of(owner)
        execution = kernel_id if self.scope == "execution" else None
        return Scope(user=owner.user, agent=owner.agent, execution=execution)

    def prefix(self, owner: Identity) -> str:
        """Return the prefix of the workspaces bucket that the working directory mirrors."""
        if self.replay is not None:
            return self.replay.prefix(owner)
        return keys.workspace_prefix(owner.user, self.workspace, self.run)
