"""Where the notebooks come from: source archives of packages, fetched by pip when a test runs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import platformdirs

HERE = Path(__file__).parent
CACHE = platformdirs.user_cache_path("lambda-kernel-gateway") / "notebooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One notebook of one package's source archive.

    Attributes:
        name: short, for people.
        requirement: the package, pinned.
        archive: file name of the source archive.
        sha256: of the archive.
        path: of the notebook in the archive, below its top folder.
        first_cell: executed first in both kernels, for notebooks that draw without a seed.
        known: code cells that differ (counted from 1, the first cell included), each with the
            reason.
    """

    name: str
    requirement: str
    archive: str
    sha256: str
    path: str
    first_cell: str = ""
    known: dict[int, str]

    def obtain(self) -> Any:
        """Return the notebook without outputs."""
        archive = fetch(self.requirement, self.archive, self.sha256)
        with tarfile.open(archive) as tar:
            top = self.archive.removesuffix(".tar.gz")
            member = tar.extractfile(f"{top}/{self.path}")
            assert member is not None
            notebook = nbformat.reads(member.read().decode(), as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        sources = [cell.source for cell in cells if cell.source.strip()]
        if self.first_cell:
            sources.insert(0, self.first_cell)
        return nbformat.v4.new_notebook(
            cells=[
                # Both kernels go on after a cell that raises, as the authors meant it or not.
                nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]})
                for source in sources
            ]
        )


def read_sources() -> list[Source]:
    """Return the notebooks of ``notebooks.toml``."""
    tables = tomllib.loads((HERE / "notebooks.toml").read_text())
    return [
        Source(
            **{key: package[key] for key in ("requirement", "archive", "sha256")},
            **entry | {"known": {int(n): why for n, why in entry.get("known", {}).items()}},
        )
        for package in tables["package"]
        for entry in package["notebook"]
    ]


def fetch(requirement: str, archive: str, sha256: str) -> Path:
    """Return the source archive, downloaded where it is not in the cache."""
    path = CACHE / "archives" / archive
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        package = requirement.partition("==")[0]
        _pip("download", "--no-deps", "--no-binary", package, "--dest", path.parent, requirement)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == sha256, f"{path} is not what the manifest names: {digest}"
    return path


def packages_python() -> str:
    """Return the interpreter of a venv with ``requirements.txt``, made where it is not there."""
    wanted = (HERE / "requirements.txt").read_text()
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    venv = CACHE / f"venv-{sys.version_info.major}{sys.version_info.minor}-{digest}"
    python = venv / "bin" / "python"
    if not (venv / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        _pip("install", "-r", HERE / "requirements.txt", python=str(python))
        (venv / "complete").touch()
    return str(python)


def _pip(*arguments: str | Path, python: str = sys.executable) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)
