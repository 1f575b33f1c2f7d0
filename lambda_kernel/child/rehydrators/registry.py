"""Which type is stored how: own functions, those of users, those of installed packages."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from lambda_kernel.child.rehydrators.table import TABLE

ENTRY_POINT_GROUP = "lambda_kernel.rehydrators"

_PICKLE_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__")

Reducer = Callable[[Any], Any]
"""Returns None (leave it to pickle) or what ``__reduce__`` may return."""

R = TypeVar("R", bound=Reducer)


class NotCarried(pickle.PicklingError):
    """A live object cannot exist in the next cell.

    Args:
        why: a clause that follows "because".
        hint: what to do instead, with ``{name}`` for the variable.
    """

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.subject: Any = None


_registered: dict[str, Reducer] = {}
_entry_points: dict[str, dict[str, str]] = {}
_by_type: dict[type, Reducer | None] = {}


def rehydrator(of: type | str) -> Callable[[R], R]:
    """Return a decorator: the function says how objects of a type are stored.

    Args:
        of: the type, or its ``"module.Qualname"`` where importing it now would cost.
    """
    key = of if isinstance(of, str) else key_of(of)

    def register(function: R) -> R:
        _registered[key] = function
        _by_type.clear()
        return function

    return register


def registered() -> dict[str, Reducer]:
    """Return what ``rehydrator`` was told in this process, by type."""
    return dict(_registered)


def register_all(functions: dict[str, Reducer]) -> None:
    """Register functions by type."""
    _registered.update(functions)
    _by_type.clear()


def key_of(cls: type) -> str:
    """Return the name by which a type is registered."""
    return f"{cls.__module__}.{cls.__qualname__}"


def reduce_live(obj: Any) -> Any:
    """Return how ``obj`` is stored, as ``__reduce__`` would; None = as pickle does.

    Raises:
        NotCarried: it cannot be stored.
    """
    cls = type(obj)
    try:
        reducer = _by_type[cls]
    except KeyError:
        reducer = _by_type[cls] = _find(cls)
    if reducer is None:
        return None
    try:
        return reducer(obj)
    except NotCarried as refusal:
        if refusal.subject is None:
            refusal.subject = obj
        raise


def refusal_of(obj: Any) -> NotCarried | None:
    """Return why ``obj`` itself would not be stored; None if nothing here refuses it."""
    try:
        reduce_live(obj)
    except NotCarried as refusal:
        return refusal
    except Exception:  # noqa: BLE001  (the reducer may be a user's)
        return None
    return None


def _find(cls: type) -> Reducer | None:
    for base in cls.__mro__[:-1]:
        key = key_of(base)
        reducer = _registered.get(key) or _own(key) or _from_entry_point(key)
        if reducer is not None:
            return reducer
        if any(hook in vars(base) for hook in _PICKLE_HOOKS):
            # It knows better; what stands further up in its bases is not asked.
            return None
    return None


def import_own() -> None:
    """Import every file of this package: a cell's process can import nothing of ours any more."""
    for place in TABLE.values():
        importlib.import_module(f"{__package__}.{place.partition(':')[0]}")


def _own(key: str) -> Reducer | None:
    place = TABLE.get(key)
    if place is None:
        return None
    module, _, name = place.partition(":")
    loaded = importlib.import_module(f"{__package__}.{module}")
    reducer: Reducer = getattr(loaded, name)
    return reducer


def _from_entry_point(key: str) -> Reducer | None:
    top = key.partition(".")[0]
    if top in sys.stdlib_module_names or top == "__main__":
        return None
    place = _entry_point(key)
    if place is None:
        return None
    module, _, name = place.partition(":")
    try:
        reducer: Reducer = getattr(importlib.import_module(module), name)
    except Exception as error:  # noqa: BLE001  (code of an installed package)
        sys.stderr.write(f"[state] the rehydrator {place} of {key} is broken: {error}\n")
        return None
    return reducer


def begin_process() -> None:
    """Ask again for every type: a cell has packages that the zygote has not."""
    _by_type.clear()


def _entry_point(key: str) -> str | None:
    # importlib.metadata would read the metadata of every package. What the zygote has read of the
    # image's folders is known here.
    for folder in sys.path:
        if folder not in _entry_points:
            found: dict[str, str] = {}
            for path in Path(folder).glob("*.dist-info/entry_points.txt") if folder else ():
                found |= _lines_of(path)
            _entry_points[folder] = found
        place = _entry_points[folder].get(key)
        if place is not None:
            return place
    return None


def _lines_of(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    if f"[{ENTRY_POINT_GROUP}]" not in text:
        return
    inside = False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.strip() == f"[{ENTRY_POINT_GROUP}]"
        elif inside and "=" in line:
            key, _, place = line.partition("=")
            yield key.strip(), place.strip()
