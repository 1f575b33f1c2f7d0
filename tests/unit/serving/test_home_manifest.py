"""Saved states of a HOME as values."""

from __future__ import annotations

import hashlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.serving import home_manifest
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.home_manifest import Extent, HomeEntry, HomeHead, HomeManifest

NAMES = st.text("ab\udcffé", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DIGESTS = st.sampled_from(["1" * 64, "2" * 64])
EXTENTS = st.builds(Extent, DIGESTS, st.integers(0, 9), st.integers(1, 9))
FILES = st.builds(
    lambda digest, extents, mode: HomeEntry(
        kind="file",
        mode=mode,
        mtime_ns=5,
        digest=digest,
        extents=tuple(extents),
        size_bytes=sum(extent.length for extent in extents),
    ),
    DIGESTS,
    st.lists(EXTENTS, max_size=2),
    st.sampled_from([0, 0o755]),
)
LINKS = st.builds(lambda target: HomeEntry(kind="symlink", target=target), NAMES)
LEAVES = st.one_of(FILES, LINKS)


@st.composite
def homes(draw: st.DrawFn) -> dict[str, HomeEntry]:
    """Return a tree: everything is in folders, and only folders hold something."""
    leaves = draw(st.dictionaries(PATHS, LEAVES, max_size=5))
    folders = draw(st.sets(PATHS, max_size=2))
    folders |= {up for path in {*leaves, *folders} for up in home_manifest.parents_of(path)}
    entries = {path: entry for path, entry in leaves.items() if path not in folders}
    return entries | {path: HomeEntry(kind="folder", mode=0o755) for path in folders}


def digest_of(stored: bytes) -> str:
    return hashlib.sha256(stored).hexdigest()


def is_tree(entries: dict[str, HomeEntry]) -> bool:
    ups = {up for path in entries for up in home_manifest.parents_of(path)}
    return all(up in entries and entries[up].kind == "folder" for up in ups)


@given(entries=homes())
def test_a_manifest_is_read_as_it_was_written(entries: dict[str, HomeEntry]) -> None:
    manifest = HomeManifest(entries=entries, base="b", generation=3, recent=("r",))
    stored = manifest.to_bytes()
    assert HomeManifest.from_bytes(stored, digest_of(stored)) == manifest


@given(base=homes(), mine=homes(), theirs=homes())
def test_a_merge_is_a_tree_with_all_that_was_changed_last(
    base: dict[str, HomeEntry], mine: dict[str, HomeEntry], theirs: dict[str, HomeEntry]
) -> None:
    merged, digest, stored, _ = home_manifest.merge(
        HomeManifest(entries=base),
        ("m" * 64, HomeManifest(entries=mine, base="b" * 64, generation=2)),
        ("t" * 64, HomeManifest(entries=theirs, base="b" * 64, generation=7)),
    )
    entries = dict(merged.entries)
    assert is_tree(entries)
    changed = {path for path, entry in mine.items() if not entry.is_same(base.get(path))}
    assert all(entries[path].is_same(mine[path]) for path in changed)
    assert merged.generation == 8
    head = HomeHead(manifest=digest, recent=merged.recent)
    assert all(head.includes(name) for name in ("m" * 64, "t" * 64, digest))
    assert digest_of(stored) == digest


@given(base=homes(), theirs=homes())
def test_a_merge_with_nothing_new_is_what_is_in_force(
    base: dict[str, HomeEntry], theirs: dict[str, HomeEntry]
) -> None:
    old = HomeManifest(entries=base)
    merged, *_, both = home_manifest.merge(old, ("m", old), ("t", HomeManifest(entries=theirs)))
    assert merged.entries == theirs
    assert both == ()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "a//x", ".", "", "a/"])
def test_a_name_outside_of_the_home_is_refused(name: str) -> None:
    stored = HomeManifest(entries={name: HomeEntry(kind="folder")}).to_bytes()
    with pytest.raises(StorageUnavailable, match="damaged"):
        HomeManifest.from_bytes(stored, digest_of(stored))


@given(noise=st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for stored in (noise, zlib.compress(noise)):
        with pytest.raises(StorageUnavailable):
            HomeManifest.from_bytes(stored, digest_of(stored))
    with pytest.raises(StorageUnavailable):
        HomeHead.from_bytes(noise, "etag")


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "a/b", 1]),
        st.integers(-1, 3),
        st.sampled_from([0o644, None]),
        st.sampled_from([5, "5"]),
        st.sampled_from(["d" * 64, None]),
        st.lists(st.integers(-1, 2), max_size=4),
    ),
    max_size=3,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(entries=JSON | ROWS, packs=JSON | st.just(["p"]), generation=JSON, recent=JSON)
def test_a_manifest_of_wrong_shape_is_refused_or_holds_entries(
    entries: object, packs: object, generation: object, recent: object
) -> None:
    data = {"v": 2, "base": None, "entries": entries, "packs": packs}
    data |= {"generation": generation, "recent": recent}
    stored = zlib.compress(json.dumps(data).encode())
    try:
        found = HomeManifest.from_bytes(stored, digest_of(stored))
    except StorageUnavailable:
        return
    assert all(isinstance(entry, HomeEntry) for entry in found.entries.values())


def test_a_bomb_is_refused_without_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_manifest, "MANIFEST_BYTES", 1000)
    state: dict[str, object] = {
        "v": home_manifest.SCHEMA,
        "base": None,
        "generation": 1,
        "recent": [],
        "packs": [],
    }
    stored = zlib.compress(json.dumps(state | {"entries": [], "more": "x" * 10_000}).encode())
    with pytest.raises(StorageUnavailable, match="damaged"):
        HomeManifest.from_bytes(stored, hashlib.sha256(stored).hexdigest())
