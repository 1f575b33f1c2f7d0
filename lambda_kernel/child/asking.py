"""``complete`` and ``inspect``: what a question needs of the stored session, and nothing else.

The process that answers ends afterwards, and nothing of it is stored: what a getter, a ``__dir__``
or a ``__repr__`` does while it is asked is gone with it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import jedi
import parso.cache
from IPython.core import completerlib
from IPython.core.completer import IPCompleter
from IPython.utils.tokenutil import line_at_cursor, token_at_cursor

from lambda_kernel.child import attributes
from lambda_kernel.child.state.loading import Loader
from lambda_kernel.child.state.scanning import stored_names

CONTEXT_BYTES = 1024 * 1024
"""Of a variable that other lines of the cell name: what is larger is not read for them."""

MAX_DEFINITIONS = 20

JEDI_TYPES_MS = 100
"""For jedi to say what each of its matches is; IPython's own limit is 400 ms."""

PARSED_AHEAD = (
    "''.",
    "print(",
    "print.",
    "import os\nos.path.",
    "import typing\nx: typing.List = [1]\nx.ap",
    "x = [1]\nx.ap",
)
"""What makes jedi read the stubs that nearly every answer needs."""

_DEFINED = ("function", "type")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


def make_ready(shell: Any, loader: Loader, content: Mapping[str, Any]) -> None:
    """Load what the answer to a question needs; let the other stored names be seen.

    What the line at the cursor names is loaded. Of what the rest of the cell names, from which the
    types of its own variables follow, only what is small.

    Args:
        shell: whose namespace it is.
        loader: of the session.
        content: of the request.
    """
    code, cursor = content["code"], content["cursor_pos"]
    line, begin = line_at_cursor(code, cursor)
    near = set(_words(line)) | set(_words(token_at_cursor(code, cursor)))
    far = set(_words(code)) - near
    wanted = list(_stored(near, loader))
    wanted += [name for name in _stored(far, loader) if loader.size_of(name) <= CONTEXT_BYTES]
    wanted += _definitions(_words(line[: cursor - begin])[-1:], loader)
    loader.load_names(wanted)
    # Of its own: where a function finds a name in the namespace, it does not look for what is
    # stored under it.
    unread = dict.fromkeys(filter(str.isidentifier, loader.table))
    shell.Completer.namespace = unread | shell.user_ns


def be_quick(completer: IPCompleter) -> None:
    """Have a completer answer while somebody types, and leave no file in anybody's HOME."""
    attributes.complete_attributes(completer)
    completer.jedi_compute_type_timeout = JEDI_TYPES_MS
    _list_modules_once(tuple(sys.path))
    # jedi keeps what it parsed in memory only.
    for name in ("_load_from_file_system", "_save_to_file_system"):
        setattr(parso.cache, name, lambda *args, **kwargs: None)


def _list_modules_once(folders: Container[str]) -> None:
    """Have IPython remember what can be imported from folders that nobody changes."""
    listed: Callable[[str], list[str]] = completerlib.module_list
    remembered = functools.cache(listed)

    def module_list(path: str) -> list[str]:
        return list(remembered(path)) if path in folders else listed(path)

    vars(completerlib)["module_list"] = module_list


def parse_ahead(code: str, **names: object) -> None:
    """Have jedi parse all that it needs to complete ``code``, for every later process."""
    jedi.Interpreter(code, [names]).complete()


def warm_up_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests that touch what any answer needs: the matchers, and the inspector."""
    for code in ("pri", "print.", "import it", "print(", "%ti", "open('"):
        yield "complete_request", {"code": code, "cursor_pos": len(code)}
    for name in ("print", "f"):
        yield "inspect_request", {"code": name, "cursor_pos": 1, "detail_level": 0}


def _definitions(words: list[str], loader: Loader) -> list[str]:
    """Return functions and classes that words may become: a list of matches tells what each is."""
    found = [n for n in loader.table if any(map(n.startswith, words))]
    return sorted(n for n in found if loader.type_of(n) in _DEFINED)[:MAX_DEFINITIONS]


def _words(text: str) -> list[str]:
    return _IDENTIFIER.findall(text)


def _stored(words: set[str], loader: Loader) -> Iterator[str]:
    for word in sorted(words):
        yield from stored_names(word, loader.table)
