"""What the author of a cell has declared of it, in nbval's words (nbval 0.11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_COMMENTS = {
    "NBVAL_IGNORE_OUTPUT": ("check", False),
    "PYTEST_VALIDATE_IGNORE_OUTPUT": ("check", False),
    "NBVAL_CHECK_OUTPUT": ("check", True),
    "NBVAL_RAISES_EXCEPTION": ("raises", True),
    "NBVAL_SKIP": ("skip", True),
}
_TAGS = {name.lower().replace("_", "-"): option for name, option in _COMMENTS.items()} | {
    "raises-exception": ("raises", True)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """What is declared of a cell.

    Attributes:
        ignores_output: what it prints may be anything; that it raises may not.
        may_raise: ending with an exception is no failure; that exception is output as any other.
        skips: it is not to be run.
    """

    ignores_output: bool = False
    may_raise: bool = False
    skips: bool = False

    @classmethod
    def of(cls, source: str, tags: Iterable[str]) -> Markers:
        """Return what is declared by comments and tags: the last wins, a comment over a tag."""
        options = {}
        for tag in tags:
            if tag in _TAGS:
                name, value = _TAGS[tag]
                options[name] = value
        for line in source.splitlines():
            comment = line.strip()
            if comment.startswith("#") and comment.lstrip("#").strip() in _COMMENTS:
                name, value = _COMMENTS[comment.lstrip("#").strip()]
                options[name] = value
        return cls(
            ignores_output=not options.get("check", True),
            may_raise=options.get("raises", False),
            skips=options.get("skip", False),
        )
