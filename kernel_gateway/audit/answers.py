"""What a cell asked its user while it ran, and what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_gateway.messaging.caller import Caller

MAX_CHARACTERS = 64 * 1024
"""Of all answers to one cell; what comes after that is left out."""
MAX_COUNT = 1000
PROMPT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that was brought to a cell.

    Attributes:
        prompt: what the cell's code asked, its beginning; as the child says.
        value: the answer; what a pattern matched in it is redacted. None where it is left out.
        left_out: why it is not, or not as it was given; None = it is.
        caller: who gave it.
    """

    prompt: str
    value: str | None = None
    left_out: Literal["password", "too long", "redacted"] | None = None
    caller: Caller | None = None


def noted(
    before: Sequence[Answer],
    *,
    prompt: str,
    is_password: bool,
    value: str,
    caller: Caller | None,
) -> tuple[Answer, ...]:
    """Return the answers to a cell with one more; nothing of a password is kept."""
    if len(before) >= MAX_COUNT:
        return tuple(before)
    left_out: Literal["password", "too long"] | None = None
    if is_password:
        left_out = "password"
    elif sum(len(each.value or "") for each in before) + len(value) > MAX_CHARACTERS:
        left_out = "too long"
    answer = Answer(
        prompt=prompt[:PROMPT_CHARACTERS],
        value=value if left_out is None else None,
        left_out=left_out,
        caller=caller,
    )
    return (*before, answer)
