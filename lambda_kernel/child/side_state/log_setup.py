"""Levels of loggers, and handlers that were added to them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

_OWN = "lambda_kernel"
_FILTERS = "filters"
_Settings = tuple[int, bool, bool]
_UNSET: _Settings = (logging.NOTSET, True, False)


class LogSetup:
    """The tree of loggers."""

    name = "logging"

    def __init__(self) -> None:
        self._before = {name: _settings(logger) for name, logger in _loggers()}
        self._handlers = {id(h) for _, logger in _loggers() for h in logger.handlers}
        self._disable = logging.root.manager.disable
        self._captures = _captures_warnings()
        self._names = dict(logging._levelToName)

    def collect(self) -> dict[str, Any] | None:
        """Return levels that differ."""
        levels = {
            name: now
            for name, logger in _loggers()
            if (now := _settings(logger)) != self._before.get(name, _UNSET)
        }
        carried: dict[str, Any] = {"levels": levels} if levels else {}
        if logging.root.manager.disable != self._disable:
            carried["disable"] = logging.root.manager.disable
        if _captures_warnings() != self._captures:
            carried["captures"] = _captures_warnings()
        names = {k: v for k, v in logging._levelToName.items() if self._names.get(k) != v}
        if names:
            carried["names"] = names
        return carried or None

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Set them."""
        for name, (level, propagate, disabled) in carried.get("levels", {}).items():
            logger = logging.getLogger(name)
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled
        for level, name in carried.get("names", {}).items():
            logging.addLevelName(level, name)
        if "disable" in carried:
            logging.disable(carried["disable"])
        if "captures" in carried:
            logging.captureWarnings(carried["captures"])
        return []

    def collect_objects(self) -> dict[str, Any]:
        """Return handlers and filters that were added, by the name of the logger.

        A library adds its own again when it is imported again.
        """
        added: dict[str, Any] = {}
        for name, logger in _loggers():
            if logger.filters and (name == "root" or name.partition(".")[0] not in sys.modules):
                added[f"{name} {_FILTERS}"] = logger.filters
            handlers = [h for h in logger.handlers if id(h) not in self._handlers]
            handlers = [h for h in handlers if not isinstance(h, logging.NullHandler)]
            if handlers and (name == "root" or name.partition(".")[0] not in sys.modules):
                added[name] = handlers
        return added

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Add them."""
        for key, handlers in objects.items():
            name = key.removesuffix(f" {_FILTERS}")
            logger = logging.getLogger(None if name == "root" else name)
            add = logger.addFilter if name != key else logger.addHandler
            for handler in handlers:
                add(handler)


def _captures_warnings() -> bool:
    return getattr(logging, "_warnings_showwarning", None) is not None


def _loggers() -> list[tuple[str, logging.Logger]]:
    named = [
        (name, logger)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] != _OWN
    ]
    return [("root", logging.root), *named]


def _settings(logger: logging.Logger) -> _Settings:
    return logger.level, logger.propagate, logger.disabled
