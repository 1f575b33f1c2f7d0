"""Temporary files and directories of the working directory."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import Any

from lambda_kernel.child.rehydrators.places import require_kept

_HINT = "put it where files stay: dir='.'"


def reduce_file(wrapper: Any) -> Any:
    """Carry the open file and who deletes it."""
    if not wrapper.file.closed:
        require_kept(wrapper.name, _HINT)
    closer = vars(wrapper)["_closer"]
    options = {"delete": wrapper.delete}
    if hasattr(closer, "delete_on_close"):
        options["delete_on_close"] = closer.delete_on_close
    return make_wrapper, (type(wrapper), wrapper.file, wrapper.name, options)


def make_wrapper(cls: Any, file: Any, name: str, options: dict[str, Any]) -> Any:
    """Return a temporary file."""
    if file.closed:
        options = options | {"delete": False}
    return cls(file, name, **options)


def reduce_directory(directory: Any) -> Any:
    """Carry its name."""
    exists = directory._finalizer.alive and Path(directory.name).is_dir()
    if exists:
        require_kept(directory.name, _HINT)
    options = {
        key: value for key, value in vars(directory).items() if key not in ("name", "_finalizer")
    }
    return make_directory, (type(directory), str(Path.cwd() / directory.name), options, exists)


def make_directory(cls: Any, name: str, options: dict[str, Any], exists: bool) -> Any:
    """Return a temporary directory, removed when it is no longer used."""
    directory = cls.__new__(cls)
    vars(directory).update(options, name=name)
    directory._finalizer = weakref.finalize(
        directory,
        tempfile.TemporaryDirectory._cleanup,  # type: ignore[attr-defined]
        name,
        warn_message=f"Implicitly cleaning up {directory!r}",
        ignore_errors=options.get("_ignore_cleanup_errors", False),
    )
    if not exists:
        directory._finalizer.detach()
    return directory
