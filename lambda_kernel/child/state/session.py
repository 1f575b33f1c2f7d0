"""A session's state over the end of its process: what is restored, what is stored."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

from lambda_kernel.child import cell_history, side_state
from lambda_kernel.child.invocations import KEPT, CellInvocation
from lambda_kernel.child.losses import tell
from lambda_kernel.child.randomness import Randomness
from lambda_kernel.child.state import entries, lazy
from lambda_kernel.child.state.definitions import Definitions
from lambda_kernel.child.state.index import Index, IndexUnreadable
from lambda_kernel.child.state.loading import Loader
from lambda_kernel.child.state.memory import Memory
from lambda_kernel.child.state.objects import StoredObjects
from lambda_kernel.child.state.output import ObjectWriter, secret_values
from lambda_kernel.child.state.packing import Packer
from lambda_kernel.child.state.recompiling import Recompiler
from lambda_kernel.child.state.storing import Storing
from lambda_kernel.child.state.threads import stop_threads
from lambda_kernel.contract.paging import PagerError
from lambda_kernel.contract.snapshot_report import SnapshotReport, summary

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MAX_HISTORY_PARTS = 128


class SnapshotTooLarge(Exception):
    """The session's variables take more bytes than a snapshot may have."""


class SnapshotUnreadable(Exception):
    """The bytes are not a snapshot that this version can read."""


class Session:
    """The state of one session in one process.

    Args:
        shell: of the process.
        baseline: the process before the session's own changes.
        limit_bytes: what the session may store.
        seeds: of the random number generators, where the session has not used them yet.
        pagemap: from ``memory.open_pagemap``.
    """

    def __init__(
        self,
        shell: Any,
        baseline: side_state.Baseline,
        limit_bytes: int,
        seeds: Mapping[str, int],
        pagemap: int | None,
    ) -> None:
        self._shell = shell
        self._baseline = baseline
        self._limit_bytes = limit_bytes
        self._seeds = seeds
        self._memory = Memory(pagemap)
        self._definitions = Definitions(shell.user_ns)
        self._randomness = Randomness({}, seeds)
        self._side: dict[str, Any] = {}
        self._history = cell_history.History()
        self._index = Index(python=PYTHON)
        self._before: tuple[dict[str, int], dict[int, list[Any]]] = {}, {}
        self._loader: Loader
        self._objects: StoredObjects

    @property
    def loader(self) -> Loader:
        """What of the session is stored and not loaded."""
        return self._loader

    def restore(self, snapshot_in: int, pager: int) -> None:
        """Make the process what the session left; its variables come when they are read.

        Raises:
            SnapshotUnreadable: nothing of it can be read.
        """
        try:
            self._objects = StoredObjects(self._memory, snapshot_in, pager)
            if self._objects.index_id:
                stored = self._objects.mapped(self._objects.index_id).view
                self._index = Index.from_bytes(stored)
                self._fetch_description()
                self._index.read_by(PYTHON)
            self._index.next_object = max(self._index.next_object, self._objects.highest_id + 1)
            self._restore_settings()
        except (ValueError, IndexUnreadable, PagerError) as error:
            raise SnapshotUnreadable(str(error)) from error

    def _fetch_description(self) -> None:
        """Bring in, with one question, all that is read in every cell."""
        index, objects = self._index, self._objects
        settings = () if index.settings is None else (index.settings,)
        ids = {ref.object_id for ref in (*settings, *index.history)}
        objects.fetch(ids | {number for number, _ in index.settled_ids})
        index.read_settled(lambda number: bytes(objects.mapped(number).view))

    def _restore_settings(self) -> None:
        shell, index = self._shell, self._index
        shell.lost_names.update(index.lost)
        self._loader = Loader(
            index,
            self._objects,
            self._definitions,
            shell.user_ns,
            self._bind,
            shell.lost_names,
            Recompiler(self._history, shell.user_ns),
        )
        shell.stored = self._loader
        self._before = dict(self._loader.table), dict(index.rows)
        settings: dict[str, Any] = {"randomness": {}}
        if index.settings is not None:
            settings = pickle.loads(self._objects.read(index.settings))
            for line in side_state.apply(self._baseline, settings["side"]):
                sys.stderr.write(f"{line}\n")
            shell.invocations[:] = [CellInvocation(*line) for line in settings["invocations"]]
        for ref in index.history:
            self._history.add(cell_history.part_from_bytes(self._objects.read(ref)))
        self._history.apply(shell)
        self._restore_objects(index.side_names())
        for name, own in index.aliases.items():
            shell.user_ns[name] = shell.user_ns if own is None else shell.user_ns[own]
        if self._loader.table:
            lazy.install(
                shell.user_ns,
                lazy.LazyBuiltins(self._loader.table.keys(), self._loader.load_variable),
            )
        self._randomness = Randomness(settings["randomness"], self._seeds)
        self._randomness.apply()

    def _restore_objects(self, names: list[str]) -> None:
        comms = self._baseline.comms
        prefix = f"({comms.name}:"
        self._loader.load_names(name for name in names if not name.startswith(prefix))
        side_state.apply_objects(self._baseline, self._side)
        keys = [name[len(prefix) : -1] for name in names if name.startswith(prefix)]
        if keys:
            comms.offer(keys, lambda key: self._side_object(f"{comms.name}:{key}"))

    def _side_object(self, key: str) -> Any:
        if key not in self._side:
            self._loader.load(f"({key})")
        return self._side.pop(key)

    def _bind(self, name: str, value: Any) -> None:
        if name.startswith("("):
            self._side[name[1:-1]] = value
        else:
            entries.bind(self._shell, name, value)

    def value(self, name: str) -> Any:
        """Return what is stored under a name (raises as ``Loader.load`` does)."""
        self._loader.load(name)
        return entries.lookup(self._shell, name)

    def save(self, snapshot_out: int) -> SnapshotReport:
        """Store what changed; tells the user on stderr what cannot be.

        Raises:
            SnapshotTooLarge: it would exceed its limit.
        """
        stop_threads()
        self._loader.close()
        gc.disable()
        shell, index = self._shell, self._index
        cell = shell.execution_count - 1
        secret_names = filter(side_state.is_secret, self._baseline.environment)
        secrets = secret_values(self._baseline.environment, secret_names)
        writer = ObjectWriter(snapshot_out, index.next_object, secrets)
        packer = Packer(index, self._objects, writer)
        self._loader.take_back()
        values, index.aliases = entries.collect(shell)
        for source in self._loader.sources:
            self._baseline.patches.note(source)
        side = side_state.collect_objects(self._baseline)
        values.update((f"({key})", value) for key, value in side.items())
        storing = Storing(
            index, self._loader, self._definitions, self._memory, packer, self._references(), cell
        )
        lost = storing.store(values, shell.user_ns)
        changes = index.changes_since(*self._before) | dict.fromkeys(lost, "lost")
        index.changed = {name: what for name, what in changes.items() if entries.variable(name)}
        self._check_size()
        for name, loss in lost.items():
            tell(name, loss)
        known = {n: k for n, k in shell.lost_names.items() if n not in shell.user_ns}
        index.lost = known | lost
        index.cell = cell
        self._store_settings(packer)
        used = packer.finish()
        told = self._loader.unread_on_arrival | lost
        wire = tuple(loss.to_wire(name) for name, loss in told.items())
        return writer.report(packer.write_index(), used, wire, index.changed)

    def _store_settings(self, packer: Packer) -> None:
        shell, index = self._shell, self._index
        settings = {
            "invocations": [astuple(line) for line in shell.invocations[-KEPT:]],
            "side": side_state.collect(self._baseline),
            "randomness": self._randomness.collect(),
        }
        body = pickle.dumps(settings, protocol=pickle.HIGHEST_PROTOCOL)
        index.settings = None
        packer.add(body, lambda ref: setattr(index, "settings", ref))
        new = self._history.new(shell)
        if len(index.history) >= MAX_HISTORY_PARTS:
            index.history, new = [], self._history.everything(shell)
        packer.add(cell_history.part_to_bytes(new), index.history.append)

    def _references(self) -> dict[int, Callable[[], Any]]:
        own = {id(self._shell): the_shell, id(os.environ): the_environment}
        return own | self._baseline.comms.references()

    def _check_size(self) -> None:
        size = self._index.size_bytes()
        if size <= self._limit_bytes:
            return
        largest = sorted(self._index.components(), key=lambda c: -c.size_bytes)[:5]
        listed = ", ".join(
            f"{'/'.join(component.names) or 'a definition'} ({component.size_bytes / 1e6:.1f} MB)"
            for component in largest
        )
        raise SnapshotTooLarge(
            f"the session's variables take {size / 1e6:.1f} MB, the limit is "
            f"{self._limit_bytes / 1e6:.1f} MB; the largest are {listed}. Delete one of them, or "
            f"write it to a file in the workspace; what the cell did to variables is lost: "
            f"{summary(self._index.changed)}"
        )


def the_shell() -> Any:
    """Return the shell of this process."""
    from IPython.core.getipython import get_ipython

    return get_ipython()


def the_environment() -> Any:
    """Return ``os.environ`` of this process."""
    return os.environ
