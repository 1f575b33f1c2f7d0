"""What a script is told of a replay."""

from __future__ import annotations

import pytest

from kernel_gateway.replay.verdicts import Standing
from kernel_gateway.web.replay_command import exit_code

S = Standing
USUAL = ("different", "failed")


@pytest.mark.parametrize(
    ("standings", "fail_on", "code"),
    [
        ([S.IDENTICAL, S.EQUIVALENT, S.DECLARED], USUAL, 0),
        ([S.IDENTICAL, S.NOT_REPLAYABLE], USUAL, 0),
        ([S.IDENTICAL, S.DIFFERENT], USUAL, 1),
        ([S.IDENTICAL, S.FIXED], USUAL, 1),
        ([S.IDENTICAL, S.FAILED], USUAL, 1),
        ([S.IDENTICAL, S.DIFFERENT], ("failed",), 0),
        ([S.IDENTICAL, S.EQUIVALENT], (*USUAL, "equivalent"), 1),
        ([S.IDENTICAL, S.UNAVAILABLE], USUAL, 4),
        ([S.DIFFERENT, S.UNAVAILABLE], USUAL, 1),
        ([S.UNAVAILABLE, S.NOT_REPLAYABLE], USUAL, 4),
        ([S.NOT_REPLAYABLE], USUAL, 5),
        ([], USUAL, 5),
    ],
)
def test_the_exit_code_is_that_of_the_worst(
    standings: list[Standing], fail_on: tuple[str, ...], code: int
) -> None:
    assert exit_code(standings, fail_on) == code
