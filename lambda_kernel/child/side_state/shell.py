"""What a session tells IPython: extensions, aliases, magics, ``%config``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from IPython.core.extensions import BUILTINS_EXTS
from traitlets.config import Config

_PLAIN = (str, int, float, bool, type(None))
_config_names: dict[type, frozenset[str]] = {}
_NOT_YET = "not yet "
"""Before the class of settings that wait in the shell's ``config`` for an object of it."""
_AUTORELOAD = ("enabled", "check_all", "autoload_obj", "modules", "skip_modules")


class Extensions:
    """``%load_ext``, and the mode of ``%autoreload``."""

    name = "extensions"

    def __init__(self, shell: Any) -> None:
        self._manager = shell.extension_manager
        self._shell = shell
        self._before = frozenset(self._manager.loaded)
        self._failed: list[str] = []

    def collect(self) -> dict[str, Any] | None:
        """Return what was loaded."""
        loaded = [name for name in self._manager.loaded if name not in self._before]
        if not loaded:
            return None
        reloader = self._reloader()
        modes = {} if reloader is None else {n: getattr(reloader, n) for n in _AUTORELOAD}
        return {"loaded": sorted(loaded), "autoreload": modes}

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Load them."""
        notices = []
        for name in carried["loaded"]:
            try:
                self._manager.load_extension(name)
                short = name.removeprefix("IPython.extensions.")
                if short in BUILTINS_EXTS:
                    BUILTINS_EXTS[short] = True
            except BaseException as error:  # noqa: BLE001  (code of an extension)
                notices.append(
                    f"[state] the extension {name!r} could not be loaded again:"
                    f" {type(error).__name__}: {error}"
                )
        reloader = self._reloader()
        for name, value in carried["autoreload"].items() if reloader is not None else ():
            setattr(reloader, name, value)
        return notices

    def _reloader(self) -> Any:
        magics = self._shell.magics_manager.registry.get("AutoreloadMagics")
        return getattr(magics, "_reloader", None)


class Aliases:
    """``%alias``."""

    name = "aliases"

    def __init__(self, shell: Any) -> None:
        self._manager = shell.alias_manager
        self._before = dict(self._manager.aliases)

    def collect(self) -> dict[str, Any] | None:
        """Return changes; None as a value = removed."""
        now = dict(self._manager.aliases)
        changes = {k: v for k, v in now.items() if self._before.get(k) != v}
        changes |= dict.fromkeys(k for k in self._before if k not in now)
        return changes or None

    def apply(self, carried: dict[str, str | None]) -> list[str]:
        """Define and undefine."""
        for name, command in carried.items():
            if command is not None:
                self._manager.define_alias(name, command)
            elif self._manager.is_alias(name):
                self._manager.undefine_alias(name)
        return []


class Magics:
    """Magics and event callbacks that the user registered."""

    name = "magics"

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._before = {kind: dict(magics) for kind, magics in shell.magics_manager.magics.items()}
        self._callbacks = {k: list(v) for k, v in shell.events.callbacks.items()}

    def collect_objects(self) -> dict[str, Any]:
        """Return functions and instances."""
        objects: dict[str, Any] = {}
        for kind, magics in self._shell.magics_manager.magics.items():
            before = self._before[kind]
            for name, function in magics.items():
                if before.get(name) is not function and self._is_users(function):
                    objects[f"{kind} {name}"] = function
        for event, callbacks in self._shell.events.callbacks.items():
            for i, callback in enumerate(callbacks):
                if callback not in self._callbacks[event] and self._is_users(callback):
                    objects[f"event {event} {i}"] = callback
        return objects

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Register them."""
        for key, function in objects.items():
            kind, name, *_ = key.split()
            if kind == "event":
                self._shell.events.register(name, function)
                continue
            self._shell.magics_manager.magics[kind][name] = function
            owner = getattr(function, "__self__", None)
            if owner is not None:
                self._shell.magics_manager.registry[type(owner).__name__] = owner

    def _is_users(self, function: Any) -> bool:
        owner = getattr(function, "__self__", None)
        of = type(owner) if owner is not None else function
        module = getattr(of, "__module__", None) or "IPython"
        top = module.partition(".")[0]
        extensions = {name.partition(".")[0] for name in self._shell.extension_manager.loaded}
        return top not in (extensions | {"IPython", "ipykernel", "lambda_kernel"})


class Formatters:
    """How results of a type are shown, and what changes source before it runs."""

    name = "formatters"

    def __init__(self, shell: Any) -> None:
        self._formatters = shell.display_formatter.formatters
        self._lists = {
            "cleanup": shell.input_transformers_cleanup,
            "post": shell.input_transformers_post,
            "ast": shell.ast_transformers,
        }
        self._before = {key: list(found) for key, found in self._lists.items()}

    def collect_objects(self) -> dict[str, Any]:
        """Return what the session registered."""
        objects: dict[str, Any] = {}
        for mime, formatter in self._formatters.items():
            for kind in ("type_printers", "deferred_printers"):
                printers = getattr(formatter, kind).items()
                own = [(of, show) for of, show in printers if _is_of_session(show)]
                if own:
                    objects[f"{kind} {mime}"] = own
        for key, found in self._lists.items():
            new = [item for item in found if item not in self._before[key]]
            own = [item for item in new if _is_of_session(item)]
            if own:
                objects[key] = own
        return objects

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Register it."""
        for key, found in objects.items():
            kind, _, mime = key.partition(" ")
            if mime:
                getattr(self._formatters[mime], kind).update(found)
            else:
                self._lists[key].extend(found)


def _is_of_session(function: Any) -> bool:
    owner = getattr(function, "__self__", function)
    of = owner if hasattr(owner, "__qualname__") else type(owner)
    return getattr(of, "__module__", None) == "__main__"


class Configured:
    """``%config``: traits of the shell and its parts."""

    name = "config"

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._before = {type(part).__name__: _traits(part) for part in _parts(shell)}
        self._config_before = self._waiting()

    def collect(self) -> dict[str, dict[str, Any]] | None:
        """Return what differs, by class and trait."""
        changed: dict[str, dict[str, Any]] = {}
        for part in _parts(self._shell):
            name = type(part).__name__
            before = self._before.get(name, {})
            now = _traits(part)
            different = {
                key: value
                for key, value in now.items()
                if (before[key] != value if key in before else _is_set(part, key, value))
            }
            if different:
                changed[name] = different
        for name, values in self._waiting().items():
            if values != self._config_before.get(name):
                changed[_NOT_YET + name] = values
        return changed or None

    def apply(self, carried: dict[str, dict[str, Any]]) -> list[str]:
        """Set them."""
        notices = []
        for name, values in carried.items():
            if name.startswith(_NOT_YET):
                self._shell.update_config(Config({name.removeprefix(_NOT_YET): values}))
                continue
            if name == "InlineBackend":
                self._make_inline_backend()
            part = self._part(name)
            for key, value in values.items() if part is not None else ():
                try:
                    setattr(part, key, value)
                except Exception as error:  # noqa: BLE001  (a trait's own check)
                    notices.append(f"[state] %config {name}.{key} could not be set: {error}")
        return notices

    def _waiting(self) -> dict[str, dict[str, Any]]:
        parts = {type(part).__name__ for part in self._shell.configurables}
        return {
            name: {key: value for key, value in section.items() if _is_plain(value)}
            for name, section in self._shell.config.items()
            if isinstance(section, Config) and name not in parts
        }

    def _make_inline_backend(self) -> None:
        if self._part("InlineBackend") is None:
            self._shell.run_line_magic("matplotlib", "inline")

    def _part(self, name: str) -> Any:
        return next((p for p in _parts(self._shell) if type(p).__name__ == name), None)


def _parts(shell: Any) -> list[Any]:
    # %precision and %pprint set a formatter.
    return [*shell.configurables, *shell.display_formatter.formatters.values()]


def _traits(part: Any) -> dict[str, Any]:
    cls = type(part)
    names = _config_names.get(cls)
    if names is None:
        names = _config_names[cls] = frozenset(cls.class_trait_names(config=True))
    values = {k: v for k, v in part._trait_values.items() if k in names and _is_plain(v)}
    return {k: v.copy() if isinstance(v, dict | list | set) else v for k, v in values.items()}


def _is_set(part: Any, key: str, value: Any) -> bool:
    """Return whether a trait that had no value yet has one that is not its default."""
    try:
        return bool(part.traits()[key].default(part) != value)
    except Exception:  # noqa: BLE001  (defaults are computed by anyone's code)
        return False


def _is_plain(value: Any, depth: int = 4) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if depth == 0:
        return False
    if isinstance(value, dict):
        return all(_is_plain(k) and _is_plain(v, depth - 1) for k, v in value.items())
    if isinstance(value, list | tuple | set):
        return all(_is_plain(item, depth - 1) for item in value)
    return False


class Rehydrators:
    """Functions that the user registered to carry live objects."""

    name = "rehydrators"

    def collect_objects(self) -> dict[str, Any]:
        """Return them by type."""
        registry = sys.modules.get("lambda_kernel.child.rehydrators.registry")
        return {} if registry is None else registry.registered()

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Register them."""
        from lambda_kernel.child.rehydrators.registry import register_all

        register_all(dict(objects))
