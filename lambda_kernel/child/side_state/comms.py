"""Comms, and with them widgets: registries that read an entry when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from lambda_kernel.child.rehydrators import widgets
from lambda_kernel.child.side_state.imports import when_imported

WIDGETS = "ipywidgets.widgets.widget"
_COMM, _TARGET = "comm:", "target:"


class Registry(dict[str, Any]):
    """A dict of which some entries are still stored.

    Args:
        present: what it holds.
        load: reads the entry of a key and returns it; KeyError where there is none.
        stored: the keys of entries that may be stored.
    """

    def __init__(
        self, present: Mapping[str, Any], load: Callable[[str], Any], stored: Iterable[str]
    ) -> None:
        super().__init__(present)
        self._load = load
        self._stored = dict.fromkeys(stored)

    def present(self) -> dict[str, Any]:
        """Return what is here without reading anything."""
        return dict(dict.items(self))

    def __missing__(self, key: str) -> Any:
        if key not in self._stored:
            raise KeyError(key)
        del self._stored[key]
        try:
            value = self._load(key)
        except KeyError:
            raise
        except BaseException:
            # It is stored, and cannot be had now.
            self._stored[key] = None
            raise
        # Reading it may have put it here.
        return dict.setdefault(self, key, value)

    def _read_all(self) -> None:
        for key in list(self._stored):
            self.get(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return an entry, read where it was not."""
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, *default: Any) -> Any:
        """Remove an entry."""
        self.get(key)
        return super().pop(key, *default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._read_all()
        return super().__len__()

    def keys(self) -> Any:
        """Return all keys."""
        self._read_all()
        return super().keys()

    def values(self) -> Any:
        """Return all entries."""
        self._read_all()
        return super().values()

    def items(self) -> Any:
        """Return all keys and entries."""
        self._read_all()
        return super().items()


class Comms:
    """What the comm manager and ipywidgets know: each comm is read when it is asked for."""

    name = "comms"

    def __init__(self, shell: Any) -> None:
        self._manager = shell.kernel.comm_manager
        self._targets_before = dict(self._manager.targets)
        self._comms: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        widgets.take_up()
        _settle_echo()

    def offer(self, keys: Iterable[str], load: Callable[[str], Any]) -> None:
        """Let the registries find what is stored.

        Args:
            keys: of ``collect_objects`` in earlier processes.
            load: returns the object of a key; KeyError where it cannot be read.
        """
        for key in keys:
            if key.startswith(_COMM):
                self._comms[comm_of(key)[0]] = key
            elif key.startswith(_TARGET):
                self._targets[unquote(key.removeprefix(_TARGET))] = key
        manager = self._manager
        if self._targets:
            manager.targets = Registry(
                manager.targets, lambda name: load(self._targets[name]), self._targets
            )
        if self._comms:
            manager.comms = Registry(
                manager.comms, lambda comm_id: load(self._comms[comm_id]), self._comms
            )
            _settle_echo()
            when_imported(WIDGETS, self._offer_widgets)

    def collect_objects(self) -> dict[str, Any]:
        """Return the open comms and the targets that this process has; nothing opens after this."""
        widgets.lay_down()
        found = {
            comm_key(comm_id, str(comm.target_name)): comm
            for comm_id, comm in _present(self._manager.comms).items()
            if not comm._closed
        }
        has_comms = bool(found or self._comms)
        for name, function in _present(self._manager.targets).items():
            if self._targets_before.get(name) is not function or (
                has_comms and name not in self._targets
            ):
                found[_TARGET + quote(name, safe="")] = function
        return found

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Do nothing: `offer` has."""

    def references(self) -> dict[int, Callable[[], Any]]:
        """Return what stands for the process's own objects in pickles, by id."""
        manager = self._manager
        found = {id(the_kernel()): the_kernel, id(manager): the_manager}
        found |= {id(manager.comms): the_comms, id(manager.targets): the_targets}
        instances = getattr(sys.modules.get(WIDGETS), "_instances", None)
        if instances is not None:
            found[id(instances)] = the_widgets
        return found

    def _offer_widgets(self, module: Any) -> None:
        if not hasattr(module, "_instances"):
            # ipywidgets 7: its widgets are found by their comms and by variables only.
            return

        def load(model_id: str) -> Any:
            self._manager.comms[model_id]
            # A comm that is no widget's has put nothing here.
            return _present(module._instances)[model_id]

        module._instances = Registry(module._instances, load, self._comms)


def _settle_echo() -> None:
    # It looks when it is imported, which the zygote may have done.
    module: Any = sys.modules.get(WIDGETS)
    if hasattr(module, "envset"):
        module.JUPYTER_WIDGETS_ECHO = module.envset("JUPYTER_WIDGETS_ECHO", default=True)


def comm_key(comm_id: str, target_name: str) -> str:
    """Return the key of a comm: the gateway reads it without opening what is stored."""
    return f"{_COMM}{quote(target_name, safe='')}:{quote(comm_id, safe='')}"


def comm_of(key: str) -> tuple[str, str]:
    """Return id and target name of the comm with this key."""
    _, target_name, comm_id = key.split(":")
    return unquote(comm_id), unquote(target_name)


def the_kernel() -> Any:
    """Return the kernel of this process."""
    from ipykernel.kernelbase import Kernel

    return Kernel.instance()


def the_manager() -> Any:
    """Return the comm manager of this process."""
    return the_kernel().comm_manager


def the_comms() -> Any:
    """Return the comms of this process, by id."""
    return the_manager().comms


def the_targets() -> Any:
    """Return the targets of this process, by name."""
    return the_manager().targets


def the_widgets() -> Any:
    """Return the widgets of this process, by id."""
    return importlib.import_module(WIDGETS)._instances


def _present(registry: dict[str, Any]) -> dict[str, Any]:
    return registry.present() if isinstance(registry, Registry) else registry
