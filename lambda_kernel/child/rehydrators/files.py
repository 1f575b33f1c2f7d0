"""Open files: path, mode and position."""

from __future__ import annotations

import gc
import io
import os
import stat
import sys
from pathlib import Path
from typing import Any

from lambda_kernel.child.rehydrators.places import require_kept
from lambda_kernel.child.rehydrators.registry import NotCarried

_HINT = "close it and open it again in the cell that uses it"
_STANDARD = ("stdin", "__stdin__", "__stdout__", "__stderr__")


def reduce_text(file: Any) -> Any:
    """Carry a text file."""
    for name in _STANDARD:
        if file is getattr(sys, name):
            return getattr, (sys, name)
    if file.closed:
        return make_closed, (_name(file), file.mode, file.encoding)
    file.flush() if file.writable() else None
    try:
        position = file.tell()
    except OSError:
        if not _raw_of(file.buffer).seekable():
            _refuse_stream()
        raise NotCarried(
            "it stands in the middle of a line",
            "finish the loop over it, or read it with {name}.readline()",
        ) from None
    options = {"encoding": file.encoding, "errors": file.errors, "newline": _newline_of(file)}
    if file.line_buffering:
        options["buffering"] = 1
    raw = _raw_of(file.buffer)
    names = (raw.name, file.mode)
    return make_file, (_path_of(raw), _reopen_mode(raw, ""), names, position, options)


def reduce_buffered(file: Any) -> Any:
    """Carry a binary file."""
    if file.closed:
        return make_closed, (_name(file), getattr(file, "mode", "rb"), None)
    raw = _raw_of(file)
    file.flush()
    path = _path_of(raw)
    return make_file, (path, _reopen_mode(raw, "b"), (raw.name, None), file.tell(), {})


def reduce_raw(raw: Any) -> Any:
    """Carry an unbuffered file."""
    if raw.closed:
        return make_closed, (raw.name, raw.mode, None)
    mode = _reopen_mode(raw, "b")
    names = (raw.name, None)
    return make_file, (_path_of(raw), mode, names, raw.tell(), {"buffering": 0})


def make_file(
    path: str, mode: str, names: tuple[Any, str | None], position: int, options: dict[str, Any]
) -> Any:
    """Return the file, open again where it stood."""
    if not Path(path).exists():
        raise FileNotFoundError(f"the file {path!r} that it had open is gone")
    file: Any = Path(path).open(mode, **options)  # noqa: SIM115
    file.seek(position)
    name, shown_mode = names
    buffer = getattr(file, "buffer", file)
    getattr(buffer, "raw", buffer).name = name
    if shown_mode is not None:
        file.mode = shown_mode
    return file


def make_closed(name: Any, mode: str, encoding: str | None) -> Any:
    """Return a closed file."""
    raw: Any = io.FileIO(os.devnull)
    raw.name = name
    if encoding is None:
        raw.close()
        return raw
    file: Any = io.TextIOWrapper(io.BufferedReader(raw), encoding=encoding)
    file.close()
    file.mode = mode
    return file


def _name(file: Any) -> Any:
    try:
        return file.name
    except (AttributeError, ValueError):
        return ""


def _raw_of(buffer: Any) -> Any:
    raw = getattr(buffer, "raw", None)
    if type(raw) is not io.FileIO:
        raise NotCarried("it reads through another file", _HINT)
    return raw


def _path_of(raw: Any) -> str:
    mode = os.fstat(raw.fileno()).st_mode
    if not stat.S_ISREG(mode) or isinstance(raw.name, int):
        _refuse_stream()
    path = require_kept(f"/proc/self/fd/{raw.fileno()}", _HINT)
    if not os.path.samestat(os.fstat(raw.fileno()), Path(path).stat()):
        raise NotCarried("its file was replaced or deleted", _HINT)
    return path


def _refuse_stream() -> None:
    raise NotCarried("a pipe, device or connection ends with the cell that opened it", _HINT)


def _reopen_mode(raw: Any, kind: str) -> str:
    # "w" would empty it again.
    return {"wb": "r+", "xb": "r+", "rb+": "r+", "xb+": "r+", "ab": "a", "ab+": "a+"}.get(
        raw.mode, "r"
    ) + kind


def _newline_of(file: Any) -> str | None:
    # No attribute tells how it was opened; its decoder shows it.
    if not file.readable():
        return None
    for part in gc.get_referents(file):
        if isinstance(part, io.IncrementalNewlineDecoder):
            state = part.getstate()
            part.reset()
            try:
                text = part.decode("\r\n".encode(file.encoding), final=True)
            except (ValueError, LookupError):
                return None
            finally:
                part.setstate(state)
            return "" if "\r" in text else None
    return "\n"
