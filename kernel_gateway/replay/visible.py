"""Untrusted text made safe to look at: what would act, hide or reorder becomes a sign."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_PLAIN = re.compile(r"[\t\x20-\x7e\xa0-\xac\xae-\u02ff]*")
_LATIN = frozenset("\t")
_SIGNS = 0x2400
_DELETE, _SIGN_OF_DELETE = "\x7f", "\u2421"
_ACTING = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def visible(text: str) -> str:
    """Return one line of text with every control and format character replaced by a sign of it.

    Colours are left out. Nothing of the result moves a cursor, sets a title, makes a link,
    changes the direction of writing, or is invisible: ESC is ``␛``, U+202E is ``⟨U+202E⟩``.
    """
    text = _COLOUR.sub("", text)
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_sign, text))


@lru_cache(maxsize=4096)
def _sign(character: str) -> str:
    if character in _LATIN or unicodedata.category(character) not in _ACTING:
        return character
    if character < " ":
        return chr(_SIGNS + ord(character))
    if character == _DELETE:
        return _SIGN_OF_DELETE
    return f"⟨U+{ord(character):04X}⟩"
