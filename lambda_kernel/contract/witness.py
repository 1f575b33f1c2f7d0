"""What the serving process, in which no user code runs, has seen of an invocation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """Files of a workspace by reference: the bytes that have the digest name them.

    Attributes:
        count: how many.
        digest: SHA-256 (hex) of ``file_list_bytes``.
    """

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """What a container is; found when it started.

    Attributes:
        python: version of the interpreter that runs cells.
        architecture: of the machine, as ``uname`` says.
        function_arn: as Lambda named it with the invocation; "" where it did not.
        function_version: of the function's code.
        packages: SHA-256 (hex) of the list of the image's packages.
        variables: those that a replay needs: hash seed, time zone, locale, time of builds.
    """

    python: str
    architecture: str
    function_arn: str = ""
    function_version: str = ""
    packages: str
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVersion:
    """A secret that was read, never what it holds, nor a digest of that."""

    arn: str
    version_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What was seen of one invocation.

    Attributes:
        begun_ms, ended_ms: Unix time by the clock of the container, in milliseconds.
        container: where it ran.
        credentials_expire: of this invocation; ISO 8601; None where none were made.
        connectors: ids of those whose values the cell could read.
        secret: where these values came from.
        inputs: files in the working directory before the cell ran; None where it came to none.
        inputs_as_committed: they are those that the commit before it names.
        leaves: files when it committed, where they are many; else the commit names them.
        home: digest of the HOME that was brought in, None for an empty one.
    """

    begun_ms: int
    ended_ms: int
    container: ContainerFacts
    credentials_expire: str | None = None
    connectors: tuple[str, ...] = ()
    secret: SecretVersion | None = None
    inputs: FileList | None = None
    inputs_as_committed: bool = False
    leaves: FileList | None = None
    home: str | None = None


FileRow = tuple[str, str | None, str, int]
"""Key, version id, SHA-256 (hex) and size in bytes of a file."""


def file_list_bytes(rows: Iterable[FileRow]) -> bytes:
    """Return the one form that a list of files has, JSON in ASCII, whatever order they come in."""
    return json.dumps({"files": sorted(rows)}, separators=(",", ":")).encode("ascii")


def file_list_of(stored: bytes, count: int) -> FileList:
    """Return the reference to a list."""
    return FileList(count=count, digest=hashlib.sha256(stored).hexdigest())
