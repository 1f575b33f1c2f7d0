"""Files that a command writes for its user: each is there whole or not at all.

What stood there before stays until all of the new is on the disk, also where that is full.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kernel_gateway.errors import ConfigError


def check_replaceable(path: Path) -> None:
    """Make sure, before there is anything to write, that a file can be put at a place.

    Raises:
        ConfigError: something stands there that is no file, or its folder cannot be written to.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from problem
    else:
        # To replace a device or a link would destroy it.
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path}: is no ordinary file, and is not replaced; name another")
    check_folder(path.parent, is_made=False)


def check_folder(folder: Path, *, is_made: bool) -> None:
    """Make sure that files can be put into a folder.

    Args:
        folder: where.
        is_made: it need not be there: it is made, with those above it.

    Raises:
        ConfigError: it is no folder, or cannot be written to.
    """
    try:
        found = folder
        while is_made and not os.path.lexists(found) and found != found.parent:
            found = found.parent
        if not found.is_dir():
            what = "is no folder" if os.path.lexists(found) else "there is no such folder"
            raise ConfigError(f"{found}: {what}")
        if not os.access(found, os.W_OK | os.X_OK):
            raise ConfigError(f"{found}: cannot be written to")
    except (OSError, ValueError) as problem:
        raise _unwritable(folder, problem) from problem


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` when it was written to the end.

    Raises:
        ConfigError: it cannot be made, written or put there.
    """
    # As long as any name may be, whatever the name of the file.
    draft = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with draft.open("xb") as file:
            yield file
        check_replaceable(path)
        draft.replace(path)
    except OSError as problem:
        raise _unwritable(path, problem) from problem
    finally:
        draft.unlink(missing_ok=True)


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, made if need be; none of the old is replaced before all are there.

    Raises:
        ConfigError: one cannot be written.
    """
    drafts: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            check_replaceable(folder / name)
            draft = folder / f".{uuid.uuid4().hex}.part"
            drafts[draft] = folder / name
            draft.write_bytes(content)
        for draft, path in drafts.items():
            draft.replace(path)
    except (OSError, ValueError) as problem:
        raise _unwritable(folder, problem) from problem
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _unwritable(path: Path, problem: OSError | ValueError) -> ConfigError:
    why = problem.strerror if isinstance(problem, OSError) else problem
    return ConfigError(f"{path}: cannot be written: {why}")
