"""The handler archive: what a function's bootstrap downloads, made the same way every time."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import lambda_kernel

HANDLER_MODULE = (
    '"""The function\'s entry point."""\n\n'
    "from lambda_kernel.serving.handler import handle as handler\n\n"
    '__all__ = ["handler"]\n'
)

# The earliest time a zip can name: content alone decides the digest.
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_SUFFIXES = {".py", ".typed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerArchive:
    """A zip and the SHA-256 (hex) of its bytes."""

    content: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, content: bytes) -> HandlerArchive:
        """Return ``content`` as an archive."""
        return cls(content=content, digest=hashlib.sha256(content).hexdigest())


def package_folder() -> Path:
    """Return the folder of the package ``lambda_kernel``."""
    return Path(lambda_kernel.__file__).parent


def bootstrap_path() -> Path:
    """Return the bootstrap that stands in the image, not in the archive."""
    return package_folder() / "bootstrap.py"


def build_handler_archive(package: Path | None = None) -> HandlerArchive:
    """Return the archive of ``handler.py`` and the package; equal sources give equal bytes.

    Args:
        package: the folder of ``lambda_kernel``; None = the installed one.
    """
    folder = package_folder() if package is None else package
    files = {"handler.py": HANDLER_MODULE.encode()}
    for path, name in _sources(folder):
        files[f"lambda_kernel/{name}"] = path.read_bytes()
    return HandlerArchive.of(zip_files(files))


def zip_files(files: dict[str, bytes]) -> bytes:
    """Return a zip of ``files`` (path to content) that depends on nothing else."""
    buffer = io.BytesIO()
    # Stored, not deflated: the bytes must not depend on the version of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _sources(folder: Path) -> Iterator[tuple[Path, PurePosixPath]]:
    for path in folder.rglob("*"):
        name = PurePosixPath(path.relative_to(folder).as_posix())
        if path.suffix in _SUFFIXES and path.is_file() and str(name) != "bootstrap.py":
            yield path, name
