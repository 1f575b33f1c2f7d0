"""What a cell that is replayed from its own recorded state reads, and never writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

_INPUTS = re.compile(r"(users/([^/]+)/\.replays/[0-9a-f-]{36}/)inputs/[0-9]{1,9}/")
_PART = re.compile(r"[0-9]{1,9}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Where the recorded state is; cells that begin with the same share it.

    Attributes:
        inputs: prefix of the workspaces bucket, with ``/``; the working directory mirrors it in
            place of the write prefix.
        scope: whose chunks the variables are, None where they are the invocation's own.
        chunks: digest to day of chunks of that scope that the recorded cell has stored: what is
            equal is not stored again.
    """

    inputs: str
    scope: Scope | None = None
    chunks: dict[str, int] = field(default_factory=dict)

    def check(self, scope: Scope, write_prefix: str) -> None:
        """Raise InvalidField where it is not of the user, or not of the replay, that runs it."""
        found = _INPUTS.fullmatch(self.inputs)
        if found is None or found[2] != scope.user:
            raise InvalidField("invocation.pinned.inputs", "are not those of the user's replay")
        if not write_prefix.startswith(found[1]):
            raise InvalidField("invocation.pinned.inputs", "are those of another replay")
        # What one cell writes must not be what others read.
        if not _PART.fullmatch(write_prefix.removeprefix(found[1])):
            raise InvalidField("invocation.pinned", "the write prefix is not a folder of one cell")
        if self.scope is not None and self.scope.user != scope.user:
            raise InvalidField("invocation.pinned.scope", "is another user's")
        if self.chunks and self.scope is None:
            raise InvalidField("invocation.pinned.chunks", "are in no scope")

    def readable(self, stack: keys.Stack) -> list[str]:
        """Return the resources that may be read for it, as a policy names them."""
        found = [f"arn:aws:s3:::{stack.workspaces}/{self.inputs}*"]
        if self.scope is not None:
            found.append(f"arn:aws:s3:::{stack.state}/{keys.blobs_prefix(self.scope)}*")
        return found
