"""A notebook's file: read with the reason why it is none, written whole or not at all."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbformat.validator import iter_validate, normalize

from kernel_gateway.errors import BadRequest

MESSAGE_CHARACTERS = 200


def read_notebook(path: Path) -> Any:
    """Return the notebook in ``path``, in the current format.

    Raises:
        BadRequest: it cannot be read or is not a notebook; the message says why.
    """
    try:
        return _notebook_of(path.read_bytes())
    except OSError as problem:
        raise BadRequest(f"{path}: {problem.strerror}") from problem
    except BadRequest as problem:
        raise BadRequest(f"{path}: is not a notebook: {problem}") from problem


def _notebook_of(raw: bytes) -> Any:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not JSON ({error})") from error
    if not isinstance(content, dict):
        raise BadRequest("not a JSON object")
    version = content.get("nbformat")
    if version not in list(nbformat.versions):
        raise BadRequest(f"nbformat must be 1 to {max(nbformat.versions)}, and is {version!r}")
    if version == 4 and not isinstance(content.get("cells"), list):
        raise BadRequest("cells must be a list")
    try:
        with warnings.catch_warnings():
            # Of what nbformat puts right itself: cells without an id.
            warnings.simplefilter("ignore")
            notebook = nbformat.convert(nbformat.reader.reads(json.dumps(content)), 4)
            notebook = normalize(notebook)[1]
            problems = list(iter_validate(notebook))
    except Exception as error:
        # nbformat takes for granted what it checks only afterwards.
        raise BadRequest(f"{type(error).__name__}: {error}") from error
    for problem in problems:
        # What a notebook says of itself is nothing that its cells need.
        if list(problem.path)[:1] != ["metadata"]:
            raise BadRequest(str(problem).splitlines()[0][:MESSAGE_CHARACTERS])
    return notebook


def foreign_language(notebook: Any) -> str | None:
    """Return the language that the notebook says it is in, None for Python or where it does not."""
    metadata = notebook.metadata
    for table, name in (("kernelspec", "language"), ("language_info", "name")):
        language = metadata.get(table, {}).get(name)
        if isinstance(language, str) and language:
            return None if "python" in language.lower() else language
    return None


def check_writable(path: Path) -> None:
    """Make sure that a notebook can be written to ``path`` (raises BadRequest)."""
    if path.is_dir():
        raise BadRequest(f"{path}: is a folder")
    try:
        _beside(path).touch()
        _beside(path).unlink()
    except OSError as problem:
        raise BadRequest(f"{path}: cannot be written: {problem.strerror}") from problem


def write_notebook(notebook: Any, path: Path) -> None:
    """Write ``notebook`` to ``path`` (raises BadRequest)."""
    new = _beside(path)
    try:
        nbformat.write(notebook, new)
        new.replace(path)
    except OSError as problem:
        raise BadRequest(f"{path}: {problem.strerror}") from problem
    finally:
        new.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
