"""Stored bytes as private memory of this process, and which of its pages were written to.

A cell writes into the maps themselves: what it did not touch is still, page by page, the sealed
file that the serving process handed over.
"""

from __future__ import annotations

import bisect
import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lambda_kernel.contract.commit import CHUNK_BYTES
from lambda_kernel.contract.paging import Piece
from lambda_kernel.isolation import linux

PAGE_BYTES = mmap.PAGESIZE

_ENTRY_BYTES = 8
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_PRESENT_OR_SWAPPED = 0xC0
_IS_FILE = 0x20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

# The top byte of a pagemap entry: 1 for a page that is this process's own copy.
_OWN_COPY = bytes(int(bool(b & _PRESENT_OR_SWAPPED) and not b & _IS_FILE) for b in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """One stored object in this process's memory.

    Attributes:
        object_id: which.
        address: where it begins.
        size_bytes: how long it is.
        original: where the same bytes stand unchanged; 0 where pages tell what was written.
        view: the bytes, writable; a write is seen by this process alone.
    """

    object_id: int
    address: int
    size_bytes: int
    original: int
    view: memoryview


def open_pagemap(lowest: int) -> int | None:
    """Return a descriptor of this process's page table, or None where it is out of reach.

    To be called before any code of a user: the process is dumpable for a moment.

    Args:
        lowest: the number that the descriptor may have at least.
    """
    with suppress(OSError):
        return _open_above(lowest)
    try:
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
    except OSError:
        return None
    try:
        return _open_above(lowest)
    except OSError:
        return None
    finally:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)


class Memory:
    """The maps of one process, by address.

    They are never given back: the process ends with its cell.

    Args:
        pagemap: from ``open_pagemap``; without it the bytes are compared.
    """

    def __init__(self, pagemap: int | None) -> None:
        self._pagemap = pagemap
        self._addresses: list[int] = []
        self._maps: list[Mapped] = []

    def map(self, object_id: int, pieces: Sequence[Piece]) -> Mapped:
        """Return the bytes of ``pieces``, one after the other.

        Raises:
            OSError: there is no room for them.
        """
        size = sum(piece.size_bytes for piece in pieces)
        address = _map_pieces(pieces, size, mmap.PROT_READ | mmap.PROT_WRITE)
        original = 0 if self._pagemap is not None else _map_pieces(pieces, size, mmap.PROT_READ)
        view = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        mapped = Mapped(
            object_id=object_id, address=address, size_bytes=size, original=original, view=view
        )
        position = bisect.bisect(self._addresses, address)
        self._addresses.insert(position, address)
        self._maps.insert(position, mapped)
        return mapped

    def find(self, address: int, size_bytes: int) -> Mapped | None:
        """Return the object that is exactly there."""
        position = bisect.bisect(self._addresses, address) - 1
        if position < 0:
            return None
        mapped = self._maps[position]
        return mapped if (mapped.address, mapped.size_bytes) == (address, size_bytes) else None

    def written_chunks(self, mapped: Mapped) -> list[int]:
        """Return the numbers of the chunks whose bytes may not be those that were mapped."""
        if self._pagemap is None:
            return _different_chunks(mapped)
        first, pages = mapped.address // PAGE_BYTES, -(-mapped.size_bytes // PAGE_BYTES)
        entries = _read_at(self._pagemap, first * _ENTRY_BYTES, pages * _ENTRY_BYTES)
        own = entries[7::8].translate(_OWN_COPY)
        if len(own) != pages:
            return list(range(-(-mapped.size_bytes // CHUNK_BYTES)))
        if 1 not in own:
            return []
        step = CHUNK_BYTES // PAGE_BYTES
        return [
            n for n, start in enumerate(range(0, pages, step)) if 1 in own[start : start + step]
        ]


def address_of(buffer: memoryview) -> int:
    """Return where the bytes of a contiguous buffer stand."""
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), 0)
    address = view.buf or 0
    _release_buffer(ctypes.byref(view))
    return int(address)


class _PyBuffer(ctypes.Structure):
    # Source: CPython's Include/pybuffer.h.
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer: Any = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer: Any = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)


def _open_above(lowest: int) -> int:
    descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    finally:
        os.close(descriptor)


def _map_pieces(pieces: Sequence[Piece], size: int, protection: int) -> int:
    if len(pieces) == 1:
        return _mmap(None, pieces[0], protection, mmap.MAP_PRIVATE)
    reserved = _libc.mmap(
        None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0
    )
    if reserved in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "a stored value does not fit into memory")
    address = int(reserved)
    for piece in pieces:
        _mmap(address, piece, protection, mmap.MAP_PRIVATE | _MAP_FIXED)
        address += piece.size_bytes
    return int(reserved)


def _mmap(address: int | None, piece: Piece, protection: int, flags: int) -> int:
    result = _libc.mmap(
        address, piece.size_bytes, protection, flags, piece.descriptor, piece.offset
    )
    if result in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "a stored value does not fit into memory")
    return int(result)


def _different_chunks(mapped: Mapped) -> list[int]:
    different = []
    for number, offset in enumerate(range(0, mapped.size_bytes, CHUNK_BYTES)):
        size = min(CHUNK_BYTES, mapped.size_bytes - offset)
        if _libc.memcmp(mapped.address + offset, mapped.original + offset, size):
            different.append(number)
    return different


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0:
        try:
            part = os.pread(descriptor, size, offset)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)
