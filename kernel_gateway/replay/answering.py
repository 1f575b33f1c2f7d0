"""Questions of a replayed cell, answered as they were when it was recorded."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_gateway.audit.answers import Answer
from kernel_gateway.messaging.message import OutMessage


class RecordedAnswers:
    """Gives them one after the other. A question is shown again where its answer did not arrive.

    Args:
        answers: none of them left out.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers
        self._asked: list[str] = []

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> RecordedAnswers | None:
        """Return them; None where the cell is not to ask, as not all of its answers are known."""
        if not answers or any(each.left_out is not None for each in answers):
            return None
        return cls(answers)

    def __call__(self, question: OutMessage) -> str | None:
        """Return the answer; None where the recorded cell was not asked so often."""
        question_id = question.header["msg_id"]
        if question_id not in self._asked:
            if len(self._asked) == len(self._answers) or question.content.get("password"):
                return None
            self._asked.append(question_id)
        return self._answers[self._asked.index(question_id)].value


def why_unanswered(answers: Sequence[Answer]) -> str:
    """Return why a replayed cell that asks its user has no answers."""
    for number, answer in enumerate(answers, 1):
        if answer.left_out == "password":
            return f"unavailable: answer {number} is not recorded, as it was to a password prompt"
        if answer.left_out is not None:
            return f"unavailable: answer {number} is not recorded: it was {answer.left_out}"
    return "not-replayable: it asks its user, and no answers are recorded"
