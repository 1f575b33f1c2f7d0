"""Untrusted text made safe to look at: what would act, hide or reorder becomes a sign."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_PLAIN = re.compile(r"[\t\x20-\x7e\xa0-\xac\xae-\u02ff]*")
_ACTING = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_NAMES = {
    "\0": "NUL",
    "\a": "BEL",
    "\b": "BS",
    "\n": "LF",
    "\r": "CR",
    "\x1b": "ESC",
    "\x7f": "DEL",
}


def visible(text: str) -> str:
    """Return one line of text with every control and format character replaced by its name.

    Colours are left out. Nothing of the result moves a cursor, sets a title, makes a link,
    changes the direction of writing, or is invisible.
    """
    text = _COLOUR.sub("", text)
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_sign, text))


@lru_cache(maxsize=4096)
def _sign(character: str) -> str:
    if character == "\t" or unicodedata.category(character) not in _ACTING:
        return character
    return f"⟨{_NAMES.get(character) or f'U+{ord(character):04X}'}⟩"
