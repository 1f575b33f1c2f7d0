"""Which names users, agents, workspaces, projects, runs and files may have: checked here only."""

from __future__ import annotations

import re

from lambda_kernel.contract.schema import InvalidField

SEGMENT_BYTES = 255
FILE_BYTES = 246
"""Of a file's own name: storage keeps its versions in a folder of this name and ``.versions``."""

KEY_BYTES = 900
"""S3 allows 1,024 bytes for a key; what our prefixes add is kept free."""

# One alphabet that S3 keys, IAM policy text, STS session names and Secrets Manager names all take
# literally: no wildcard (`*`, `?`), no policy variable (`$`), no separator.
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_KERNEL_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ENVIRONMENT_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_CONNECTOR = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_CONNECTOR_RULE = "must be 1 to 64 characters of A-Z a-z 0-9 _ and begin with a letter"
GOVERNED_CHARACTERS = 256
_GOVERNED = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*/)+")
_IDENTITY_RULE = (
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ @ - and begin with a letter or digit"
)
_FOLDER_RULE = (
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ - and begin with a letter, digit or underscore"
)


def check_user(value: str, path: str = "user") -> str:
    """Return ``value`` if it may name a user.

    Raises:
        InvalidField: it may not; the message states the rule.
    """
    return _match(_IDENTITY, value, path, _IDENTITY_RULE)


def check_agent(value: str, path: str = "agent") -> str:
    """Return ``value`` if it may name an agent (raises InvalidField)."""
    return _match(_IDENTITY, value, path, _IDENTITY_RULE)


def check_workspace(value: str, path: str = "workspace") -> str:
    """Return ``value`` if it may name a workspace (raises InvalidField)."""
    return _match(_FOLDER, value, path, _FOLDER_RULE)


def check_run(value: str, path: str = "run") -> str:
    """Return ``value`` if it may be a run id (raises InvalidField)."""
    return _match(_FOLDER, value, path, _FOLDER_RULE)


def check_kernel_id(value: str, path: str = "kernel_id") -> str:
    """Return ``value`` if it is a lower-case UUID (raises InvalidField)."""
    return _match(_KERNEL_ID, value, path, "must be a lower-case UUID")


def is_kernel_id(value: str) -> bool:
    """Return whether ``value`` is a lower-case UUID."""
    return _KERNEL_ID.fullmatch(value) is not None


def check_environment_id(value: str, path: str = "environment.id") -> str:
    """Return ``value`` if it may name an execution environment (raises InvalidField)."""
    rule = "must be 1 to 32 characters of a-z 0-9 - and neither begin nor end with -"
    return _match(_ENVIRONMENT_ID, value, path, rule)


def check_connector(value: str, path: str = "connector") -> str:
    """Return ``value`` if it may be the id of a connector or one of its keys.

    Both are parts of the name of an environment variable.

    Raises:
        InvalidField: it may not; the message states the rule, never the value.
    """
    return _match(_CONNECTOR, value, path, _CONNECTOR_RULE)


def check_governed_prefix(value: str, path: str = "governed_read_prefix") -> str:
    """Return ``value`` if it may be the prefix that every cell may read and none may write.

    Raises:
        InvalidField: the message says which rule it breaks.
    """
    rule = "must be folders of A-Z a-z 0-9 . _ - and end with /, such as shared/reference/"
    _match(_GOVERNED, value, path, rule)
    if len(value) > GOVERNED_CHARACTERS:
        raise InvalidField(path, f"must not be longer than {GOVERNED_CHARACTERS} characters")
    if value.startswith("users/"):
        raise InvalidField(path, "must not lie under users/, which users may write to")
    return value


def check_project(value: str, path: str = "project") -> str:
    """Return ``value`` if it may name a folder of the workspace to mirror.

    A project is a relative folder path; no segment begins with a dot.

    Raises:
        InvalidField: it may not; the message says which rule it breaks.
    """
    check_file_key(value, path, is_folder=True)
    if any(segment.startswith(".") for segment in value.split("/")):
        raise InvalidField(path, "must not have a part that begins with a dot")
    return value


def check_file_key(value: str, path: str = "file", *, is_folder: bool = False) -> str:
    """Return ``value`` if it may be the key of a file (or folder), relative to the workspace.

    Raises:
        InvalidField: the message says which rule it breaks.

    Source: storage.md; SeaweedFS collapses ``//`` and refuses segments over 255 bytes, and names of
    files over 246 in a versioned bucket.
    """
    problem = file_key_problem(value, is_folder=is_folder)
    if problem:
        raise InvalidField(path, problem)
    return value


def file_key_problem(value: str, *, is_folder: bool = False) -> str | None:
    """Return what is wrong with ``value`` as the key of a file (or folder), or None."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if not value:
        return "must not be empty"
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value):
        return "must not contain control characters"
    if "\\" in value:
        return "must not contain a backslash: storage would read it as /"
    if len(raw) > KEY_BYTES:
        return f"must not be longer than {KEY_BYTES} bytes"
    segments = value.split("/")
    if "" in segments:
        return "must not begin or end with / nor contain //"
    if any(segment == ".uploads" or segment.endswith(".versions") for segment in segments):
        return "must not have a part .uploads or *.versions, names that storage keeps for itself"
    if "." in segments or ".." in segments:
        return "must not contain . or .. as a part"
    return _size_problem([len(segment.encode()) for segment in segments], is_folder=is_folder)


def _size_problem(sizes: list[int], *, is_folder: bool) -> str | None:
    if max(sizes) > SEGMENT_BYTES:
        return f"must not have a part longer than {SEGMENT_BYTES} bytes"
    if not is_folder and sizes[-1] > FILE_BYTES:
        return f"must not have a last part longer than {FILE_BYTES} bytes"
    return None


def _match(pattern: re.Pattern[str], value: str, path: str, rule: str) -> str:
    if not pattern.fullmatch(value):
        raise InvalidField(path, rule)
    return value
