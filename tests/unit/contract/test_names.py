import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract import keys, names
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope


@pytest.mark.parametrize("name", ["u1", "alice@example.org", "a.b_c-d", "9lives", "A" * 64])
def test_an_ordinary_identity_is_taken(name: str) -> None:
    assert names.check_user(name) == name
    assert names.check_agent(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".u", "-u", "u*", "u?", "u$", "${aws:userid}", "u/v", "ü", "u v", "u\n", "A" * 65, "u%2e"],
)
def test_an_identity_that_a_policy_would_read_differently_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match="must be 1 to 64 characters"):
        names.check_user(name)
    with pytest.raises(InvalidField):
        names.check_agent(name)


@pytest.mark.parametrize(
    "key",
    ["a", "a/b.txt", "Grüße/日本.csv", "with space", "..a", "x" * 246, "x" * 255 + "/y", "-r", "~"],
)
def test_an_ordinary_file_key_is_taken(key: str) -> None:
    assert names.check_file_key(key) == key


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("", "empty"),
        ("/a", "begin or end with /"),
        ("a/", "begin or end with /"),
        ("a//b", "//"),
        ("../a", r"\.\."),
        ("a/./b", r"\. or"),
        ("a/..", r"\.\."),
        ("a\nb", "control"),
        (".uploads/a", "keeps for itself"),
        ("a/b.versions/c", "keeps for itself"),
        ("a\x00b", "control"),
        ("a\x85b", "control"),
        ("a\\b", "backslash: storage would read it as /"),
        ("x" * 247, "last part longer"),
        ("x" * 256 + "/y", "part longer"),
        ("é" * 128, "part longer"),
        ("/".join(["x" * 200] * 5), "longer than 900"),
        ("a\ud800", "UTF-8"),
    ],
)
def test_a_file_key_that_storage_would_change_is_refused(key: str, rule: str) -> None:
    with pytest.raises(InvalidField, match=rule):
        names.check_file_key(key)


def test_a_folders_name_may_be_longer_than_a_files() -> None:
    assert names.file_key_problem("x" * 255, is_folder=True) is None
    assert names.check_project("x" * 255) == "x" * 255


@given(st.text(max_size=40))
def test_a_file_key_that_is_taken_stays_below_its_folder(key: str) -> None:
    if names.file_key_problem(key) is None:
        parts = key.split("/")
        assert all(part not in {"", ".", ".."} for part in parts)
        assert "\x00" not in key


@pytest.mark.parametrize("name", ["a", "TOKEN", "api_key_2", "x" * 64])
def test_a_connector_name_can_be_part_of_a_variable(name: str) -> None:
    assert names.check_connector(name) == name
    assert keys.connector_variable("gh", name).isidentifier()


@pytest.mark.parametrize("name", ["", "_a", "1a", "a-b", "a.b", "a b", "a=b", "ü", "a\n", "x" * 65])
def test_a_connector_name_that_cannot_is_refused_without_repeating_it(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        names.check_connector(name)
    assert str(refused.value).startswith("connector: must be 1 to 64 characters of")


@pytest.mark.parametrize("prefix", ["shared/", "a/b.c/d-e_f/", "x" * 255 + "/"])
def test_a_governed_prefix_is_taken(prefix: str) -> None:
    assert keys.Stack(governed_read_prefix=prefix).governed_read_prefix == prefix


@pytest.mark.parametrize(
    "prefix",
    ["", "/", "a", "/a/", "a//b/", "../", "a/../b/", ".a/", "users/", "users/u1/", "*/", "a?/"]
    + ["${x}/", "ü/", "a b/", "a/\n", "x" * 256 + "/"],
)
def test_a_governed_prefix_that_reaches_further_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidField, match="governed_read_prefix"):
        keys.Stack(governed_read_prefix=prefix)


def test_scopes_with_the_same_parts_in_other_places_differ() -> None:
    scopes = [
        Scope(user="a"),
        Scope(user="a", agent="a"),
        Scope(user="b", agent="a"),
        Scope(user="u1", agent="a1"),
        Scope(user="u1a", agent="1"),
        Scope(user="a", execution="01234567-89ab-cdef-0123-456789abcdef"),
    ]
    assert len({scope.hash for scope in scopes}) == len(scopes)
    assert len({scope.home for scope in scopes}) == len(scopes)


def test_the_home_of_an_execution_is_not_kept() -> None:
    assert Scope(user="a").home_is_kept
    assert not Scope(user="a", execution="01234567-89ab-cdef-0123-456789abcdef").home_is_kept


def test_commits_sort_by_number() -> None:
    scope, kernel = Scope(user="a"), "01234567-89ab-cdef-0123-456789abcdef"
    written = [keys.commit_key(scope, kernel, seq) for seq in (1, 2, 9, 10, 11, 100, 10**9)]
    assert written == sorted(written)
    assert all(key.startswith(keys.commits_prefix(scope, kernel)) for key in written)
