"""nbval's comments and tags, as nbval 0.11 reads them."""

from __future__ import annotations

import pytest

from kernel_gateway.replay.markers import Markers


@pytest.mark.parametrize("tag", ["nbval-ignore-output", "pytest-validate-ignore-output"])
def test_a_tag_says_that_output_may_be_anything(tag: str) -> None:
    assert Markers.of("x", ["other", tag]) == Markers(ignores_output=True)


@pytest.mark.parametrize("tag", ["nbval-raises-exception", "raises-exception"])
def test_a_tag_says_that_a_cell_may_raise(tag: str) -> None:
    assert Markers.of("x", [tag]) == Markers(may_raise=True)


def test_a_tag_says_that_a_cell_is_not_to_be_run() -> None:
    assert Markers.of("x", ["nbval-skip"]) == Markers(skips=True)


@pytest.mark.parametrize(
    "source",
    [
        "# NBVAL_IGNORE_OUTPUT\nprint(1)",
        "print(1)\n  ##   NBVAL_IGNORE_OUTPUT  ",
        "#PYTEST_VALIDATE_IGNORE_OUTPUT",
    ],
)
def test_a_comment_says_the_same(source: str) -> None:
    assert Markers.of(source, []) == Markers(ignores_output=True)


@pytest.mark.parametrize(
    "source", ["print('NBVAL_IGNORE_OUTPUT')", "x = 1 # NBVAL_IGNORE_OUTPUT", "# nbval_skip"]
)
def test_what_only_looks_like_a_comment_says_nothing(source: str) -> None:
    assert Markers.of(source, ["NBVAL_IGNORE_OUTPUT"]) == Markers()


def test_a_comment_is_stronger_than_a_tag_and_the_last_of_two_wins() -> None:
    assert Markers.of("# NBVAL_CHECK_OUTPUT", ["nbval-ignore-output"]) == Markers()
    both = "# NBVAL_CHECK_OUTPUT\n# NBVAL_IGNORE_OUTPUT"
    assert Markers.of(both, []).ignores_output
    assert not Markers.of("x", ["nbval-ignore-output", "nbval-check-output"]).ignores_output
