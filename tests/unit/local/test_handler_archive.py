"""The handler archive depends on the sources alone."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

from kernel_gateway.environments.handler_archive import (
    build_handler_archive,
    package_folder,
    zip_files,
)


def package(folder: Path, order: list[str]) -> Path:
    for name in order:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
        os.utime(path, (len(str(folder)), 1))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-311.pyc").write_bytes(os.urandom(8))
    return folder


def test_equal_sources_give_equal_bytes(tmp_path: Path) -> None:
    names = ["__init__.py", "a.py", "sub/__init__.py", "sub/b.py", "py.typed", "bootstrap.py"]
    first = build_handler_archive(package(tmp_path / "one", names))
    second = build_handler_archive(package(tmp_path / "another", names[::-1]))

    assert first.content == second.content
    assert first.digest == hashlib.sha256(first.content).hexdigest()


def test_a_changed_source_changes_the_digest(tmp_path: Path) -> None:
    folder = package(tmp_path / "one", ["__init__.py"])
    before = build_handler_archive(folder).digest
    (folder / "__init__.py").write_text("# changed\n")

    assert build_handler_archive(folder).digest != before


def test_the_archive_holds_the_handler_and_the_package_without_the_bootstrap() -> None:
    archive = zipfile.ZipFile(io.BytesIO(build_handler_archive().content))
    names = archive.namelist()

    assert "handler.py" in names
    assert b"lambda_kernel.serving.handler" in archive.read("handler.py")
    assert "lambda_kernel/contract/invocation.py" in names
    assert "lambda_kernel/bootstrap.py" not in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]
    assert (
        archive.read("lambda_kernel/__init__.py") == (package_folder() / "__init__.py").read_bytes()
    )


def test_files_are_readable_and_sorted() -> None:
    archive = zipfile.ZipFile(io.BytesIO(zip_files({"b": b"2", "a": b"1"})))

    assert archive.namelist() == ["a", "b"]
    assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}
