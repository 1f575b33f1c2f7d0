"""The difference of two working directories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.serving import manifest
from lambda_kernel.serving.manifest import FileState, Tree, difference

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
STATES = st.builds(
    FileState,
    digest=st.sampled_from(["1" * 64, "2" * 64]),
    size_bytes=st.just(1),
    mode=st.sampled_from([0o644, 0o755]),
    mtime_ns=st.sampled_from([1, 2]),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Return a tree in which no file is also a folder."""
    files = draw(st.dictionaries(PATHS, STATES, max_size=6))
    inner = {folder for path in files for folder in manifest.parents(path)}
    extra = draw(st.sets(PATHS, max_size=3))
    extra |= {folder for path in extra for folder in manifest.parents(path)}
    folders = inner | (extra - files.keys())
    return Tree(
        files={path: state for path, state in files.items() if path not in folders},
        folders=frozenset(folders),
    )


def state(digest: str = "1" * 64, *, mode: int = 0o644, mtime_ns: int = 1) -> FileState:
    return FileState(digest=digest, size_bytes=1, mode=mode, mtime_ns=mtime_ns)


@given(before=trees(), after=trees())
def test_applying_the_difference_gives_the_files_of_the_tree_after(
    before: Tree, after: Tree
) -> None:
    changes = difference(before, after)
    files = dict(before.files)
    for path in changes.deletions:
        del files[path]
    files.update({upload.path: upload.state for upload in changes.uploads})
    assert files == after.files


@given(before=trees(), after=trees())
def test_nothing_is_deleted_that_was_not_mirrored(before: Tree, after: Tree) -> None:
    changes = difference(before, after)
    assert set(changes.deletions) <= before.files.keys()
    assert set(changes.removed_folders) <= before.folders


@given(tree=trees())
def test_a_tree_does_not_differ_from_itself(tree: Tree) -> None:
    stored = Tree(files=tree.files, folders=manifest.empty_folders(tree))
    assert difference(stored, tree).count == 0


def test_a_change_of_mode_or_time_alone_is_a_change() -> None:
    before = Tree(files={"a": state(), "b": state(), "c": state()})
    after = Tree(files={"a": state(mode=0o755), "b": state(mtime_ns=2), "c": state()})
    assert [upload.path for upload in difference(before, after).uploads] == ["a", "b"]


def test_created_and_modified_files_are_told_apart() -> None:
    changes = difference(
        Tree(files={"old": state()}), Tree(files={"old": state("2" * 64), "new": state()})
    )
    assert [(u.path, u.change) for u in changes.uploads] == [
        ("new", "created"),
        ("old", "modified"),
    ]


def test_a_folder_that_lost_its_last_file_is_stored_as_a_folder() -> None:
    changes = difference(Tree(files={"d/a": state()}), Tree(folders=frozenset({"d"})))
    assert (changes.deletions, changes.new_folders) == (("d/a",), ("d",))


def test_only_the_innermost_of_nested_empty_folders_is_stored() -> None:
    assert manifest.empty_folders(Tree(folders=frozenset({"a", "a/b", "a/b/c"}))) == {"a/b/c"}


def test_the_largest_folders_come_first() -> None:
    sizes = {"a/x": 5, "a/y": 6, "b/x": 10, "top": 1}
    assert manifest.largest_folders(sizes, 2) == [("a/", 11), ("b/", 10)]
