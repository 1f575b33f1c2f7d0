"""Weak references; what they point to is stored with them and lives as long as others hold it."""

from __future__ import annotations

import weakref
from typing import Any


class _Gone:
    """Stands for what a dead reference pointed to."""


def make_dead_ref() -> weakref.ref[Any]:
    """Return a reference whose object is gone."""
    return weakref.ref(_Gone())


def make_dead_proxy() -> Any:
    """Return a proxy of an object that is gone."""
    return weakref.proxy(_Gone())


def reduce_ref(ref: Any) -> Any:
    """Carry what it points to, and its callback."""
    target = ref()
    if target is None:
        return make_dead_ref, ()
    callback = ref.__callback__
    return type(ref), ((target, callback) if callback is not None else (target,))


def reduce_weak_method(ref: Any) -> Any:
    """Carry the bound method."""
    method = ref()
    return (make_dead_ref, ()) if method is None else (type(ref), (method,))


def reduce_proxy(proxy: Any) -> Any:
    """Carry what it stands for."""
    try:
        target = proxy.__repr__.__self__
    except ReferenceError:
        return make_dead_proxy, ()
    return weakref.proxy, (target,)


def reduce_weak_dict(mapping: Any) -> Any:
    """Carry its items."""
    return type(mapping), (), None, None, iter(list(mapping.items()))


def reduce_weak_set(members: Any) -> Any:
    """Carry its members."""
    return type(members), (list(members),)


def reduce_finalize(finalizer: Any) -> Any:
    """Carry what it calls, for what."""
    alive = finalizer.peek()
    if alive is None:
        return make_dead_finalizer, ()
    target, function, args, kwargs = alive
    return make_finalizer, (target, function, args, kwargs, finalizer.atexit)


def make_finalizer(target: Any, function: Any, args: Any, kwargs: Any, atexit: Any) -> Any:
    """Return a finalizer that waits."""
    finalizer = weakref.finalize(target, function, *args, **kwargs)
    finalizer.atexit = atexit
    return finalizer


def make_dead_finalizer() -> Any:
    """Return a finalizer that was called."""
    finalizer: Any = weakref.finalize(_Gone, int)
    finalizer.detach()
    return finalizer
