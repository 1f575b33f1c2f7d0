"""The bootstrap takes only what its URI names, and unpacks it only where it should."""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
from pathlib import Path

import pytest

from lambda_kernel import bootstrap


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for name, text in files.items():
            written.writestr(name, text)
    return buffer.getvalue()


def test_files_are_unpacked_with_their_folders(tmp_path: Path) -> None:
    bootstrap.unpack(archive(**{"handler.py": "1", "lambda_kernel/__init__.py": "2"}), tmp_path)
    assert (tmp_path / "lambda_kernel" / "__init__.py").read_text() == "2"


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_names_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(bootstrap.BootstrapError, match="unsafe"):
        bootstrap.unpack(archive(**{name: "1"}), tmp_path)


def test_symlinks_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        written.writestr(link, "/etc")
    with pytest.raises(bootstrap.BootstrapError, match="special"):
        bootstrap.unpack(buffer.getvalue(), tmp_path)


def test_another_digest_is_refused() -> None:
    body = archive(a="1")
    assert bootstrap.checked(body, hashlib.sha256(body).hexdigest()) == body
    with pytest.raises(bootstrap.BootstrapError, match="SHA-256"):
        bootstrap.checked(body, "0" * 64)


@pytest.mark.parametrize(
    "uri", ["", "s3://b/handler.zip", "https://b/handler/x", "s3://b/handler/00/h"]
)
def test_a_uri_without_a_digest_is_refused(uri: str) -> None:
    with pytest.raises(bootstrap.BootstrapError, match="LKG_HANDLER_URI"):
        bootstrap.fetch(uri)
