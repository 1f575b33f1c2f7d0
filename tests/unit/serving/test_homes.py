"""HOME as an archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import homes
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.homes import HomeHead, Homes
from lambda_kernel.serving.memory import MemoryObjectStore

SCOPE = Scope(user="u1")


def save(own: Homes) -> HomeHead:
    saved = own.save(SCOPE)
    assert saved is not None
    own.publish(SCOPE, saved)
    return saved.head


def test_a_home_survives_its_container(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    first = Homes(store, "state", str(tmp_path))
    path = Path(first.restore(SCOPE, first.fetch_head(SCOPE)))
    (path / ".local" / "bin").mkdir(parents=True)
    (path / ".local" / "bin" / "tool").write_text("#!")
    (path / ".local" / "bin" / "tool").chmod(0o755)
    (path / "link").symlink_to("/usr/bin/python3")
    (path / "empty").mkdir(mode=0o711)
    save(first)
    first.discard()
    second = Homes(store, "state", str(tmp_path))
    path = Path(second.restore(SCOPE, second.fetch_head(SCOPE)))
    assert (path / ".local" / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert (path / "link").readlink() == Path("/usr/bin/python3")
    assert (path / "empty").stat().st_mode & 0o777 == 0o711
    assert second.save(SCOPE) is None


def test_an_unchanged_home_costs_no_request_but_its_head(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    own = Homes(store, "state", str(tmp_path))
    Path(own.restore(SCOPE, HomeHead()), "f").write_text("x")
    save(own)
    store.calls.clear()
    own.restore(SCOPE, own.fetch_head(SCOPE))
    assert own.save(SCOPE) is None
    assert store.calls == [("get", keys.home_head_key(SCOPE))]


def test_a_home_that_another_container_changed_is_restored(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    first, second = (Homes(store, "state", str(tmp_path / name)) for name in "12")
    first.restore(SCOPE, HomeHead())
    Path(second.restore(SCOPE, HomeHead()), "f").write_text("x")
    save(second)
    path = Path(first.restore(SCOPE, first.fetch_head(SCOPE)))
    assert (path / "f").read_text() == "x"


def test_a_tampered_archive_is_refused(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    own = Homes(store, "state", str(tmp_path))
    Path(own.restore(SCOPE, HomeHead()), "f").write_text("x")
    head = save(own)
    store.put("state", keys.home_pack_key(SCOPE, str(head.pack)), b"evil")
    own.discard()
    with pytest.raises(StorageUnavailable, match="digest"):
        own.restore(SCOPE, head)


def test_a_home_that_was_replaced_by_a_symlink_is_saved_empty(tmp_path: Path) -> None:
    own = Homes(MemoryObjectStore(), "state", str(tmp_path))
    path = Path(own.restore(SCOPE, HomeHead()))
    path.rmdir()
    path.symlink_to("/etc")
    saved = own.save(SCOPE)
    assert saved is None or saved.head.pack is None


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_an_archive_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    archive.seek(0)
    (tmp_path / "home").mkdir()
    with pytest.raises(StorageUnavailable):
        homes.unpack(archive, str(tmp_path / "home"))
    assert not (tmp_path / "x").exists()


def test_an_archive_writes_through_no_symlink_of_its_own(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        link = tarfile.TarInfo("d")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("d/x"))
    archive.seek(0)
    (tmp_path / "home").mkdir()
    (tmp_path / "outside").mkdir()
    with pytest.raises(OSError, match=r"."):
        homes.unpack(archive, str(tmp_path / "home"))
    assert not list((tmp_path / "outside").iterdir())


def test_the_names_in_a_user_site_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "lib" / "python3.11" / "site-packages"
    (folder / "numpy").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "six-1.0.dist-info").mkdir()
    (folder / "six.py").write_text("")
    assert set(homes.user_site_names(str(tmp_path))) == {"numpy", "six"}
