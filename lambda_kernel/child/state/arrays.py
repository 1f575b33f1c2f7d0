"""Arrays that share memory: views stay views, on arrays as on other buffers."""

from __future__ import annotations

import array
import sys
from collections.abc import Callable
from typing import Any

from lambda_kernel.child.rehydrators.places import require_kept
from lambda_kernel.child.rehydrators.registry import NotCarried
from lambda_kernel.child.state.memory import address_of

Layout = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides, and where it begins in the owner's memory, in bytes."""

_MODES_AGAIN = {"r": "r", "r+": "r+", "w+": "r+"}
"""How a file is mapped again: "w+" would empty it."""


def is_array(value: Any) -> bool:
    """Return whether ``value`` is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def memory_owner(value: Any) -> Any:
    """Return what holds the memory that an array is a view of: an array or a mutable buffer."""
    owner = value
    while (base := _base_of(owner)) is not None:
        owner = base
    return owner


def reduce_view(view: Any, owner: Any) -> Any:
    """Return how to make ``view`` on ``owner`` again; NotImplemented where it cannot be said."""
    if is_array(owner) and not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        return NotImplemented
    if view.dtype.hasobject and view.dtype != owner.dtype:
        return NotImplemented
    layout = (view.shape, view.strides, _address(view) - _address(owner))
    args = (owner, type(view), view.dtype, layout, view.flags.writeable)
    if _is_map(view):
        return make_view, args
    attributes = getattr(view, "__dict__", None)
    return (make_view, args, attributes) if attributes else (make_view, args)


def make_view(owner: Any, cls: Any, dtype: Any, layout: Layout, writeable: bool) -> Any:
    """Return an array on the memory of another one, or of a buffer."""
    numpy = sys.modules["numpy"]
    shape, strides, offset = layout
    memory = owner
    if isinstance(owner, numpy.ndarray):
        memory = (owner if owner.flags.c_contiguous else owner.T).view(numpy.ndarray).reshape(-1)
    if dtype.hasobject:
        start = memory[offset // dtype.itemsize :]
        view = numpy.lib.stride_tricks.as_strided(start, shape, strides).view(cls)
    else:
        # Not every kind of element has a buffer; bytes do.
        memory = memory.view("u1") if isinstance(memory, numpy.ndarray) else memory
        view = numpy.ndarray.__new__(cls, shape, dtype, memory, offset, strides)
        if _is_map(view):
            view.__array_finalize__(owner)
    if not writeable:
        view.flags.writeable = False
    return view


def is_map_of_file(value: Any) -> bool:
    """Return whether an array shows a file that is there in the next cell, and writes to it."""
    if not _is_map(value) or value._mmap is None or value.mode not in _MODES_AGAIN:
        return False
    try:
        return bool(value.filename and require_kept(value.filename, ""))
    except NotCarried:
        return False


def reduce_map(value: Any) -> Any:
    """Return how to map a file again."""
    if value.mode != "r":
        value.flush()
    order = "C" if value.flags.c_contiguous else "F"
    mode = _MODES_AGAIN[value.mode]
    return make_map, (str(value.filename), value.dtype, mode, value.offset, value.shape, order)


def make_map(path: str, dtype: Any, mode: str, offset: int, shape: Any, order: str) -> Any:
    """Return an array that shows a file."""
    return sys.modules["numpy"].memmap(path, dtype, mode, offset, shape, order)


def owning(from_buffer: Callable[..., Any], is_resized: bool) -> Callable[..., Any]:
    """Return numpy's maker of arrays, but so that small ones own their memory.

    Args:
        from_buffer: it.
        is_resized: large ones do as well: only those can be resized.
    """

    def make(buffer: Any, *args: Any) -> Any:
        array = from_buffer(buffer, *args)
        if not is_resized and not isinstance(buffer, (bytes, bytearray)):
            return array
        own = array.copy(order="K")
        own.flags.writeable = array.flags.writeable
        return own

    return make


def has_attributes(value: Any) -> bool:
    """Return whether an array of a class of its own holds more than numpy would store."""
    numpy = sys.modules["numpy"]
    cls = type(value)
    return (
        cls is not numpy.ndarray
        and cls.__reduce__ is numpy.ndarray.__reduce__
        and cls.__reduce_ex__ is numpy.ndarray.__reduce_ex__
        and cls.__setstate__ is numpy.ndarray.__setstate__
        and not _is_map(value)
        and bool(getattr(value, "__dict__", None))
    )


def reduce_with_attributes(value: Any) -> Any:
    """Return how to make an array again, with its attributes."""
    make, args, state = value.__reduce__()
    return make, args, (state, vars(value)), None, None, set_array_state


def set_array_state(value: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Fill in elements and attributes of an array."""
    elements, attributes = state
    value.__setstate__(elements)
    vars(value).update(attributes)


def _is_map(value: Any) -> bool:
    return isinstance(value, sys.modules["numpy"].memmap)


def _base_of(owner: Any) -> Any:
    base: Any = getattr(owner, "base", None)
    if type(base).__name__ == "DummyArray":
        # What numpy puts between an array and as_strided() of it.
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if is_array(base) or isinstance(base, (bytearray, array.array)) else None


def _address(owner: Any) -> int:
    return int(owner.ctypes.data) if is_array(owner) else address_of(memoryview(owner))
