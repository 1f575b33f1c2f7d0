"""A session's variables, from one process to the next.

``SessionState`` is the interface; ``WholeNamespace`` carries everything in every cell.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from lambda_kernel.child import cell_history, randomness, side_state
from lambda_kernel.child.invocations import KEPT, CellInvocation
from lambda_kernel.child.losses import Loss, loss_of, tell, type_name
from lambda_kernel.child.pickling import SessionPickler, SessionUnpickler, read_around
from lambda_kernel.child.snapshot_file import (
    SnapshotReader,
    SnapshotTooLarge,
    SnapshotUnreadable,
    SnapshotWriter,
    secret_values,
)
from lambda_kernel.contract.cell_protocol import SnapshotReport

VERSION = 1
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_UNDERS = ("_", "__", "___")
_NUMBERED = re.compile(r"_i{1,3}|_i\d+")
_MODULE_NAMES = frozenset(
    {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtin__", "__builtins__"}
)


class SessionState(Protocol):
    """Carries a session over the end of its process."""

    def restore(self, shell: Any, snapshot_in: int) -> None:
        """Make ``shell`` what the snapshot holds; tells the user on stderr what it cannot.

        Raises:
            SnapshotUnreadable: nothing of it can be read.
        """
        ...

    def save(self, shell: Any, snapshot_out: int) -> SnapshotReport:
        """Write a snapshot of ``shell``; tells the user on stderr what is not in it.

        Raises:
            SnapshotTooLarge: it would exceed its limit.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    """One value of the session: a variable, or one that IPython keeps for the user."""

    kind: str
    key: Any
    value: Any

    @property
    def label(self) -> str | None:
        """What the user knows it as; None for another name of something that has one."""
        if self.kind == "variable":
            return str(self.key)
        if self.kind == "side":
            return f"({self.key})"
        return f"Out[{self.key}]" if self.kind == "out" else None


class _EntryFailed(Exception):
    def __init__(self, position: int, cause: BaseException) -> None:
        super().__init__(position)
        self.position = position
        self.cause = cause


class WholeNamespace:
    """Every variable, every cell: one pickle each, with one memo.

    Args:
        baseline: the process before the session's own changes.
        limit_bytes: what a snapshot may hold.
        seeds: of the random number generators, where the session has not used them yet.
    """

    def __init__(
        self, baseline: side_state.Baseline, limit_bytes: int, seeds: Mapping[str, int]
    ) -> None:
        self._seeds = seeds
        self._baseline = baseline
        self._limit_bytes = limit_bytes
        self._randomness: dict[str, Any] = {}
        self._sources: dict[str, tuple[int, str]] = {}
        self._unread: dict[str, Loss] = {}
        self._side: dict[str, Any] = {}

    def restore(self, shell: Any, snapshot_in: int) -> None:
        """Bring back the session (see SessionState)."""
        reader = SnapshotReader(snapshot_in)
        if reader.size_bytes == 0:
            randomness.apply({}, self._seeds)
            return
        settings = reader.settings()
        if (settings["version"], settings["python"]) != (VERSION, PYTHON):
            raise SnapshotUnreadable(
                f"the variables were stored by Python {settings['python']}, this is {PYTHON}"
            )
        self._randomness, self._sources = settings["randomness"], settings["history"]["sources"]
        for line in side_state.apply(self._baseline, settings["side"]):
            sys.stderr.write(f"{line}\n")
        cell_history.apply(shell, settings["history"])
        shell.invocations[:] = [CellInvocation(*line) for line in settings["invocations"]]
        shell.lost_names.update({name: Loss(**loss) for name, loss in settings["lost"].items()})
        self._load(shell, reader, settings)
        side_state.apply_objects(self._baseline, self._side)
        for name, own in settings["aliases"].items():
            shell.user_ns[name] = shell.user_ns if own is None else shell.user_ns[own]
        randomness.apply(self._randomness, self._seeds)

    def save(self, shell: Any, snapshot_out: int) -> SnapshotReport:
        """Store the session (see SessionState)."""
        cell = shell.execution_count - 1
        entries, aliases = _entries(shell)
        side = side_state.collect_objects(self._baseline)
        entries += [_Entry("side", key, value) for key, value in side.items()]
        written, lengths, lost, writer = self._write(shell, entries, snapshot_out, cell)
        for name, loss in lost.items():
            tell(name, loss)
        names = {e.key: type_name(e.value) for e in written if e.kind == "variable"}
        known = {n: k for n, k in shell.lost_names.items() if n not in shell.user_ns}
        settings = {
            "version": VERSION,
            "python": PYTHON,
            "cell": cell,
            "index": [(e.kind, e.key, n) for e, n in zip(written, lengths, strict=True)],
            "names": names,
            "aliases": aliases,
            "lost": {name: loss.to_dict() for name, loss in (known | lost).items()},
            "history": cell_history.collect(shell, self._sources),
            "invocations": [astuple(line) for line in shell.invocations[-KEPT:]],
            "side": side_state.collect(self._baseline),
            "randomness": randomness.collect(self._randomness),
        }
        told = {n: k for n, k in self._unread.items() if n not in names} | lost
        return SnapshotReport(
            size_bytes=writer.finish(settings),
            names=names,
            lost=tuple(loss.to_wire(name) for name, loss in told.items()),
        )

    def _load(self, shell: Any, reader: SnapshotReader, settings: dict[str, Any]) -> None:
        index = settings["index"]
        unpickler = SessionUnpickler(reader.buffered(), shell.user_ns)
        try:
            values = [unpickler.load() for _ in index]
        except BaseException:  # noqa: BLE001  (user classes may raise anything)
            self._load_around(shell, reader, settings)
            return
        for (kind, key, _), value in zip(index, values, strict=True):
            self._put(shell, _Entry(kind, key, value))

    def _put(self, shell: Any, entry: _Entry) -> None:
        if entry.kind == "side":
            self._side[entry.key] = entry.value
        else:
            _put(shell, entry)

    def _load_around(self, shell: Any, reader: SnapshotReader, settings: dict[str, Any]) -> None:
        segments, offset = [], 0
        for _, _, length in settings["index"]:
            segments.append(reader.read_at(offset, length))
            offset += length
        results = read_around(segments, shell.user_ns)
        for (kind, key, _), (is_read, value) in zip(settings["index"], results, strict=True):
            entry = _Entry(kind, key, value)
            if is_read:
                self._put(shell, entry)
            elif entry.label is not None:
                made = loss_of(entry.label, None, value, settings["cell"])
                loss = Loss(type=settings["names"].get(key, "object"), cell=made.cell, why=made.why)
                self._unread[entry.label] = shell.lost_names[entry.label] = loss
                tell(entry.label, loss)

    def _write(
        self, shell: Any, entries: list[_Entry], descriptor: int, cell: int
    ) -> tuple[list[_Entry], list[int], dict[str, Loss], SnapshotWriter]:
        lost: dict[str, Loss] = {}
        while True:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            writer = self._writer(descriptor)
            try:
                lengths = _dump_all(entries, writer, shell)
            except _EntryFailed as failure:
                entries = self._without_culprits(shell, entries, failure, cell, lost)
            else:
                return entries, lengths, lost, writer

    def _without_culprits(
        self,
        shell: Any,
        entries: list[_Entry],
        failure: _EntryFailed,
        cell: int,
        lost: dict[str, Loss],
    ) -> list[_Entry]:
        kept = entries[: failure.position]
        for position, entry in enumerate(entries[failure.position :], failure.position):
            cause: BaseException | None = failure.cause
            if position > failure.position:
                cause = self._trial(shell, entry)
            if cause is None:
                kept.append(entry)
            elif entry.label is not None:
                lost[entry.label] = loss_of(entry.label, entry.value, cause, cell)
        return kept

    def _trial(self, shell: Any, entry: _Entry) -> BaseException | None:
        try:
            _dump_all([entry], self._writer(None), shell)
        except _EntryFailed as failure:
            return failure.cause
        return None

    def _writer(self, descriptor: int | None) -> SnapshotWriter:
        secret_names = filter(side_state.is_secret, self._baseline.environment)
        secrets = secret_values(self._baseline.environment, secret_names)
        return SnapshotWriter(descriptor, self._limit_bytes, secrets)


def the_shell() -> Any:
    """Return the shell of this process."""
    from IPython.core.getipython import get_ipython

    return get_ipython()


def the_environment() -> Any:
    """Return ``os.environ`` of this process."""
    return os.environ


def _dump_all(entries: list[_Entry], writer: SnapshotWriter, shell: Any) -> list[int]:
    by_reference: dict[int, Callable[[], Any]] = {
        id(shell): the_shell,
        id(os.environ): the_environment,
    }
    pickler = SessionPickler(writer, shell.user_ns, by_reference)
    lengths = []
    for position, entry in enumerate(entries):
        before = writer.size_bytes
        try:
            pickler.dump(entry.value)
        except SnapshotTooLarge:
            raise
        except BaseException as error:
            raise _EntryFailed(position, error) from error
        lengths.append(writer.size_bytes - before)
    return lengths


def _entries(shell: Any) -> tuple[list[_Entry], dict[str, str | None]]:
    namespace, hidden = shell.user_ns, shell.user_ns_hidden
    own = {id(namespace): None} | {id(namespace[n]): n for n in ("In", "Out") if n in namespace}
    outputs = namespace.get("_oh", {})
    entries, aliases = [], {}
    for name, value in list(namespace.items()):
        if not isinstance(name, str) or name in _MODULE_NAMES or _NUMBERED.fullmatch(name):
            continue
        if name in _UNDERS:
            entries.append(_Entry("under", name, value))
        elif name in hidden and value is hidden[name]:
            continue
        elif id(value) in own:
            aliases[name] = own[id(value)]
        else:
            entries.append(_Entry("variable", name, value))
    entries += [_Entry("out", n, value) for n, value in list(outputs.items())]
    entries += [_Entry("hook", name, getattr(shell.displayhook, name)) for name in _UNDERS]
    return entries, aliases


def _put(shell: Any, entry: _Entry) -> None:
    if entry.kind == "variable":
        shell.user_ns[entry.key] = entry.value
    elif entry.kind == "hook":
        setattr(shell.displayhook, entry.key, entry.value)
    elif entry.kind == "under":
        shell.push({entry.key: entry.value}, interactive=False)
    else:
        shell.user_ns["_oh"][entry.key] = entry.value
        shell.push({f"_{entry.key}": entry.value}, interactive=False)
