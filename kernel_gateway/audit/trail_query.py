"""Which cells of all journals somebody looks for, and what of a cell answers that. Pure values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kernel_gateway.audit.index_rows import EndRow, StartRow
from kernel_gateway.errors import BadRequest
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
INCOMPLETE = "incomplete"
STATUSES = ("ok", "error", "lost", INCOMPLETE)
FILTERS = (
    "user", "agent", "since", "until", "status", "contains_digest", "connector", "path", "limit",
    "before",
)  # fmt: skip
"""Names of query parameters; those of the command line are spelled alike."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CURSOR = re.compile(r"([^/]{1,40})/([0-9a-f-]{36})/([0-9]{1,8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCell:
    """A cell (or comm message) that answers a query.

    Attributes:
        kernel_id: whose journal it is in.
        start, end: its rows; no end = nothing is recorded of how it ended.
        matched: what of it was looked for, for people.
    """

    kernel_id: str
    start: StartRow
    end: EndRow | None = None
    matched: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, str, int]:
        """Where it stands among all: they are listed from the highest place down."""
        return self.start.time, self.kernel_id, self.start.number

    @property
    def cursor(self) -> str:
        """What `TrailQuery.before` takes to go on after this one."""
        return "/".join(map(str, self.place))

    @property
    def status(self) -> str:
        """How it ended; ``incomplete`` where no end is recorded."""
        return INCOMPLETE if self.end is None else self.end.status


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailQuery:
    """What is looked for; None = that does not matter.

    Attributes:
        user, agent: whose kernel the cell ran in.
        since, until: it started then or later, and before that; ISO 8601 as entries have it.
        status: one of STATUSES.
        digest: SHA-256 (hex) of its source, of something that it wrote or published, or its commit.
        connector: it got the connector of this id; it asked for it, where no end says what it got.
        path: it changed this file of its workspace, or one below this folder (``folder/``).
        limit: at most so many, the newest.
        before: only what stands behind this place.
    """

    user: str | None = None
    agent: str | None = None
    since: str | None = None
    until: str | None = None
    status: str | None = None
    digest: str | None = None
    connector: str | None = None
    path: str | None = None
    limit: int = DEFAULT_LIMIT
    before: tuple[str, str, int] | None = None

    @classmethod
    def of_text(cls, given: Mapping[str, str]) -> TrailQuery:
        """Return the query that parameters named as FILTERS state.

        Raises:
            BadRequest: one is unknown or wrong; the message names it and what may stand there.
        """
        for name in given:
            if name not in FILTERS:
                raise BadRequest(f"{name}: is no filter; there are {', '.join(FILTERS)}")
        try:
            return cls(
                user=_checked(given, "user", names.check_user),
                agent=_checked(given, "agent", names.check_agent),
                since=_checked(given, "since", lambda text, name: _moment(text, name)),
                until=_checked(given, "until", lambda text, name: _moment(text, name, days=1)),
                status=_checked(given, "status", _status),
                digest=_checked(given, "contains_digest", _digest),
                connector=_checked(given, "connector", names.check_connector),
                path=_checked(given, "path", _path),
                limit=_limit(given.get("limit")),
                before=None if "before" not in given else _before(given["before"]),
            )
        except InvalidField as problem:
            raise BadRequest(str(problem)) from problem

    def match(self, cell: FoundCell) -> tuple[str, ...] | None:
        """Return what of a cell was looked for, None where the cell is not."""
        start = cell.start
        if (
            (self.user is not None and start.user != self.user)
            or (self.agent is not None and start.agent != self.agent)
            or (self.since is not None and start.time < self.since)
            or (self.until is not None and start.time >= self.until)
            or (self.status is not None and cell.status != self.status)
            or (self.before is not None and cell.place >= self.before)
        ):
            return None
        found: list[str] = []
        for wanted, reasons in (
            (self.digest, self._of_digest),
            (self.path, self._of_path),
            (self.connector, self._of_connector),
        ):
            if wanted is not None:
                reason = reasons(start, cell.end)
                if not reason:
                    return None
                found += reason
        return tuple(found)

    def _of_digest(self, start: StartRow, end: EndRow | None) -> list[str]:
        found = ["source"] if start.source_digest == self.digest else []
        if end is not None:
            found += [
                f"{each.change} {each.path}" for each in end.files if each.digest == self.digest
            ]
            found += ["output"] if self.digest in end.outputs else []
            found += ["commit"] if end.commit == self.digest else []
        return found

    def _of_path(self, start: StartRow, end: EndRow | None) -> list[str]:
        path = self.path or ""
        return [
            f"{each.change} {each.path}"
            for each in (() if end is None else end.files)
            if each.path == path or (path.endswith("/") and each.path.startswith(path))
        ]

    def _of_connector(self, start: StartRow, end: EndRow | None) -> list[str]:
        if end is not None and end.got_connectors is not None:
            got = self.connector in end.got_connectors
            return [f"connector {self.connector}"] if got else []
        if self.connector in start.connectors:
            return [f"asked for connector {self.connector}"]
        if start.connector_secret is not None and not start.connectors:
            return [f"asked for every connector of {start.connector_secret}"]
        return []


def _checked(given: Mapping[str, str], name: str, check: object) -> str | None:
    text = given.get(name)
    if text is None:
        return None
    assert callable(check)  # noqa: S101
    found: str = check(text, name)
    return found


def _moment(text: str, name: str, *, days: int = 0) -> str:
    """Return a time as entries have it: of a day alone its begin, or that ``days`` later."""
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2026-01-31"):
            moment += timedelta(days=days)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidField(
            name,
            f"{text!r:.60} is no time; write 2026-01-31 (UTC), 2026-01-31T18:00 or "
            "2026-01-31T18:00:00+01:00",
        ) from None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _status(text: str, name: str) -> str:
    if text not in STATUSES:
        raise InvalidField(name, f"must be one of {', '.join(STATUSES)}")
    return text


def _digest(text: str, name: str) -> str:
    digest = text.removeprefix("sha256:").lower()
    if not _DIGEST.fullmatch(digest):
        raise InvalidField(name, "must be a SHA-256, 64 hex digits, as `sha256sum FILE` prints it")
    return digest


def _path(text: str, name: str) -> str:
    names.check_file_key(text.removesuffix("/"), name, is_folder=text.endswith("/"))
    return text


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= MAX_LIMIT):
        raise InvalidField("limit", f"must be a number from 1 to {MAX_LIMIT:,}")
    return int(text)


def _before(text: str) -> tuple[str, str, int]:
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidField("before", "must be what an answer gave as next")
    return found[1], found[2], int(found[3])
