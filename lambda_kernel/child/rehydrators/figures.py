"""bokeh: lists and dictionaries that tell their owners of every change."""

from __future__ import annotations

from typing import Any


def reduce_container(container: Any) -> Any:
    """Carry what it holds, and its owners."""
    content: Any = dict(container) if isinstance(container, dict) else list(container)
    owners = list(container._owners)
    return make_container, (type(container),), (content, owners), None, None, _fill


def make_container(cls: Any) -> Any:
    """Return an empty one."""
    return cls()


def _fill(container: Any, state: tuple[Any, list[Any]]) -> None:
    content, owners = state
    if isinstance(content, dict):
        container.update(content)
    else:
        container.extend(content)
    container._owners = set(owners)


def reduce_descriptor(descriptor: Any) -> Any:
    """Carry where it stands: there is one of them in every class."""
    return find_descriptor, (descriptor.owner, descriptor.name)


def find_descriptor(owner: Any, name: str) -> Any:
    """Return the descriptor of a class."""
    return owner.lookup(name)
