"""The sanitiser's rules: what they make equal, what they leave, and bad files."""

from __future__ import annotations

import re
import time
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.errors import ConfigError
from kernel_gateway.replay.rules import MAX_MATCHES, Rules
from tests.unit.replay.examples import RULES

RULE = """
[[rule]]
name = "{name}"
pattern = '{pattern}'
replacement = '{replacement}'
why = "for a test"
"""
FRAGMENTS = [
    "0x7f3a5c0b1d90",
    "at ",
    " ",
    "\n",
    "\r",
    "\x1b[31m",
    "2026-01-02 03:04:05",
    "T",
    "Mon Nov 30 13:11:20 UTC 2026",
    "0123456789abcdef0123456789abcdef",
    "-",
    '"',
    "'",
    "#",
    "p1042",
    "p0123456789",
    "T_a1b2c",
    "_",
    "sk-container-id-3",
    "pid=",
    "process ",
    "4711",
    "took 1.5 s",
    "CPU times: user 2 ms, sys: 1 ms, total: 3 ms",
    "7/7 [00:01<00:00, 6.12it/s]",
    "/tmp/tmpab12cd_9",
    "/tmp/ipykernel_7/42.py",
    "/tmp/home-0123456789abcdef0123456789abcdef",
    "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "<dc:date>x</dc:date>",
    "1.2 ms ± 3 µs per loop (mean ± std. dev. of 7 runs, 1,000 loops each)",
    "Date: Mon, 30 Nov 2026",
    "é\ud800",
]
KINDS = ["stream/stdout", "stream/stderr", "text/plain", "text/html", "image/svg+xml",
         "application/json", "error/traceback"]  # fmt: skip


def own_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_every_rule_of_the_package_has_a_reason_and_an_example_that_it_makes_equal() -> None:
    table = tomllib.loads(
        files("kernel_gateway.replay").joinpath("rules.toml").read_text(encoding="utf-8")
    )
    # Loading checks each example that is there.
    assert [rule.name for rule in RULES.rules] == [each["name"] for each in table["rule"]]
    for each in table["rule"]:
        assert each["why"]
        one, other = each["example"]
        assert one != other
        kind = each.get("in", ["text/plain"])[0].replace("*", "x")
        assert RULES.likeness(one, other, kind).reasons == (f"sanitised:{each['name']}",)


@given(st.lists(st.sampled_from(FRAGMENTS)).map("".join), st.sampled_from(KINDS))
def test_sanitising_twice_is_sanitising_once(text: str, kind: str) -> None:
    once = RULES.sanitised(text, kind)
    assert RULES.sanitised(once, kind) == once


@given(st.text(), st.sampled_from(KINDS))
def test_any_text_is_like_itself_for_no_reason(text: str, kind: str) -> None:
    likeness = RULES.likeness(text, text, kind)
    assert likeness.is_same
    assert likeness.reasons == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{'a', 'b'}", "{'b', 'a'}"),
        ("{1: 2, 3: 4}", "{3: 4, 1: 2}"),
        ("d41d8cd98f00b204e9800998ecf8427e", "0cc175b9c0f1b6a831c399e269772661"),
        ("2026-01-02", "2026-01-03"),
        ("0xdeadbeef", "0xcafebabe"),
        ("accuracy 0.91", "accuracy 0.92"),
        ("took 3 items", "took 4 items"),
        ("p1001", "p1002"),
        ("\ud800", "\ud801"),
    ],
)
def test_results_are_never_sanitised_in_printed_text(one: str, other: str) -> None:
    assert not RULES.likeness(one, other, "stream/stdout").is_same
    assert not RULES.likeness(one, other, "text/plain").is_same


def test_product_numbers_in_a_table_are_not_taken_for_ids_of_bokeh() -> None:
    assert not RULES.likeness("<td>p1001</td>", "<td>p1002</td>", "text/html").is_same


def test_a_rule_applies_only_where_it_says() -> None:
    digits = ("0123456789abcdef" * 2, "fedcba9876543210" * 2)
    assert RULES.likeness(*digits, "text/html").reasons == ("sanitised:hex-id",)
    assert not RULES.likeness(*digits, "text/plain").is_same


def test_only_rules_that_were_needed_are_named() -> None:
    one = "at 0x7f3a5c0b1d90, pid=7, 2026-01-02 03:04:05"
    other = "at 0x7f3a5c0b1d90, pid=8, 2026-01-02 03:04:05"
    assert RULES.likeness(one, other, "stream/stdout").reasons == ("sanitised:process-id",)


def test_a_text_with_other_lines_is_compared_as_a_whole() -> None:
    one, other = "took 1.5 s\nb\nc", "took 2.5 s\nc"
    assert not RULES.likeness(one, other, "stream/stdout").is_same


def test_what_is_drawn_over_again_counts_as_it_is_seen_at_last() -> None:
    one, other = "1%\r50%\rdone\nnext\n", "30%\rdone\nnext\n"
    assert RULES.likeness(one, other, "stream/stderr").reasons == ("sanitised:overwritten",)
    assert not RULES.likeness(one, "30%\rfail\nnext\n", "stream/stderr").is_same


def test_a_file_of_the_users_adds_replaces_and_leaves_out_rules(tmp_path: Path) -> None:
    own = own_file(
        tmp_path,
        'without = ["date-time"]\n'
        + RULE.format(name="ticket", pattern=r"T-\d+", replacement="<ticket>")
        + RULE.format(name="address", pattern=r"@[0-9a-f]+", replacement="@"),
    )
    rules = Rules.load([own])
    assert rules.likeness("T-1", "T-22", "text/plain").reasons == ("sanitised:ticket",)
    assert rules.likeness("x@1f", "x@2e", "text/plain").reasons == ("sanitised:address",)
    assert not rules.likeness("0x7f3a5c0b1d90", "0x7f3a5c0b1d91", "text/plain").is_same
    assert not rules.likeness("2026-01-02 03:04:05", "2026-01-02 03:04:06", "text/plain").is_same
    assert list(rules.sources) == ["rules.toml", str(own)]


def test_floats_may_differ_only_where_a_file_says_so(tmp_path: Path) -> None:
    one, other = "mean  0.30000001\nn 10", "mean 0.3\nn 10"
    assert not RULES.likeness(one, other, "text/plain").is_same
    rules = Rules.load([own_file(tmp_path, "[floats]\nrelative = 1e-6\n")])
    assert rules.likeness(one, other, "text/plain").reasons == ("floats-close",)
    assert not rules.likeness(one, "mean 0.31\nn 10", "text/plain").is_same
    assert not rules.likeness(one, "mean 0.3\nn 11", "text/plain").is_same
    assert not rules.likeness(one, "median 0.3\nn 10", "text/plain").is_same
    assert not rules.likeness("1000000000", "1000000001", "text/plain").is_same


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "own.toml: "),
        ('rules = 1\n', "own.toml: 'rules' is not known; there are floats, rule, without"),
        ('without = ["nothing"]', "own.toml: without: there is no rule 'nothing'"),
        ("rule = 3", "own.toml: each rule begins with a line [[rule]]"),
        ("floats = 3", "own.toml: floats must be a table"),
        ("[floats]\nrelative = -1", "own.toml: floats.relative must be a number that is not"),
        ("[floats]\nrelative = nan", "own.toml: floats.relative must be a number that is not"),
        ("\n[[rule]]\nname = 'a'", "own.toml, line 2: rule 'a': pattern must be there"),
        (
            RULE.format(name="a", pattern="x", replacement="y") + "flags = 'i'",
            "own.toml, line 2: rule 'a': 'flags' is not known",
        ),
        (
            RULE.format(name="a", pattern="x", replacement="y")
            + RULE.format(name="b", pattern="(", replacement="y"),
            "own.toml, line 8: rule 'b': pattern: missing ): (",
        ),
        (
            RULE.format(name="a", pattern="(?<=x)y", replacement="y"),
            "own.toml, line 2: rule 'a': pattern: invalid",
        ),
        (
            RULE.format(name="a", pattern="x*", replacement="y"),
            "own.toml, line 2: rule 'a': pattern matches an empty text",
        ),
        (
            RULE.format(name="a", pattern="(x)", replacement=r"\2"),
            "own.toml, line 2: rule 'a': replacement names group 2, pattern has 1",
        ),
        (
            RULE.format(name="A b", pattern="x", replacement="y"),
            "own.toml, line 2: rule 'A b': name must be small letters",
        ),
        (
            RULE.format(name="a", pattern="x", replacement="y") + "in = 'text/plain'",
            "own.toml, line 2: rule 'a': in must be a list of texts",
        ),
        (
            RULE.format(name="a", pattern="x", replacement="y") + "example = ['x1', 'x2']",
            "own.toml, line 2: rule 'a': the two texts of its example still differ: 'y1' and 'y2'",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_file_line_and_rule(
    tmp_path: Path, text: str, said: str
) -> None:
    path = own_file(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        Rules.load([path])
    assert str(refused.value).startswith(f"{path.parent}/{said}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        Rules.load([tmp_path / "none.toml"])


def test_a_pattern_that_kills_other_engines_takes_linear_time(tmp_path: Path) -> None:
    path = own_file(tmp_path, RULE.format(name="evil", pattern="(a+)+$", replacement="y"))
    rules = Rules.load([path])
    began = time.process_time()
    assert not rules.likeness("a" * 100_000 + "!", "a" * 100_000 + "?", "text/plain").is_same
    # A backtracking engine would need longer than the universe is old.
    assert time.process_time() - began < 60


def test_a_text_too_large_for_rules_differs_and_says_so() -> None:
    one = "0x7f3a5c0b1d90\n" * 300_000
    likeness = RULES.likeness(one, one.replace("d90", "d91"), "text/plain")
    assert likeness.reasons == ("too-large-for-rules",)
    assert not likeness.is_same


def test_a_few_lines_of_a_huge_text_are_still_compared_with_rules() -> None:
    page = "<p>the same</p>\n" * 300_000
    one, other = page + "sk-container-id-1", page + "sk-container-id-2"
    assert RULES.likeness(one, other, "text/html").reasons == ("sanitised:sklearn-id",)


def test_the_file_of_rules_in_the_readme_is_one() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (shown,) = (
        block
        for block in re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
        if "[[rule]]" in block
    )
    rules = Rules.load().with_file("README.md", shown.encode())
    assert rules.likeness("T-1 0.30000000001", "T-2 0.3", "text/plain").reasons == (
        "sanitised:ticket",
        "floats-close",
    )


def test_a_text_full_of_matches_is_bounded_and_what_is_left_still_counts() -> None:
    rules = Rules.load()
    (colour,) = [rule for rule in rules.rules if rule.name == "colour"]
    text = b"\x1b[0m" * (MAX_MATCHES + 7)

    replaced, found = colour.replaced(text)

    assert (len(found), replaced) == (MAX_MATCHES, b"\x1b[0m" * 7)
    assert not rules.likeness(text.decode() + "a", text.decode() + "b", "stream/stdout").is_same
