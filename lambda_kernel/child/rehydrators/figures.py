"""bokeh: lists and dictionaries that tell their owners of every change."""

from __future__ import annotations

from typing import Any


def reduce_container(container: Any) -> Any:
    """Carry what it holds, and its owners."""
    kind = next(plain for plain in (dict, set, list) if isinstance(container, plain))
    content: Any = kind(container)
    owners = [(owner, descriptor.name) for owner, descriptor in container._owners]
    return make_container, (type(container),), (content, owners), None, None, _fill


def make_container(cls: Any) -> Any:
    """Return an empty one."""
    return cls()


def _fill(container: Any, state: tuple[Any, list[Any]]) -> None:
    content, owners = state
    if isinstance(content, dict | set):
        container.update(content)
    else:
        container.extend(content)
    container._owners = {(owner, owner.lookup(name)) for owner, name in owners}
