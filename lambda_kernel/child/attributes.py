"""Attributes of objects that are there, as completions: asked of the object, not inferred by jedi.

jedi reads the sources of an object's classes to say the same, which takes ten times as long. It is
left what only it can do: what the cell itself defines, calls, and what is in no namespace.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, cast

import parso
from IPython.core.completer import (
    MATCHES_LIMIT,
    CompletionContext,
    IPCompleter,
    SimpleCompletion,
    context_matcher,
)
from IPython.core.guarded_eval import EvaluationContext, guarded_eval

IDENTIFIER = "lambda_kernel.attributes"
JEDI_MATCHER = "IPCompleter.jedi_matcher"
BEFORE_JEDI = 10.0

_ATTRIBUTE = re.compile(
    r"""(?P<before>[^'"#]*?)
    (?P<object>(?<![\w.)\]}'"])(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|'[^'\\]*'|"[^"\\]*"))
    \.(?P<begun>\w*)""",
    re.VERBOSE,
)
_OTHER_LANGUAGE = ("%", "!", "?")


def complete_attributes(completer: IPCompleter) -> None:
    """Have attributes of objects in the completer's namespace completed without jedi."""

    @context_matcher(identifier=IDENTIFIER, priority=BEFORE_JEDI)  # type: ignore[untyped-decorator]
    def attributes(context: CompletionContext) -> dict[str, Any]:
        found = _ATTRIBUTE.fullmatch(context.text_until_cursor)
        if found is None or not _means_the_object(found["object"], context):
            return {"completions": []}
        names = _names(completer, found["object"], found["begun"])
        if len(names) > MATCHES_LIMIT:
            # Of jedi's alone IPython shows all.
            return {"completions": []}
        owner = _evaluated(completer, found["object"])
        return {
            "completions": [SimpleCompletion(text=n, type=_kind(owner, n)) for n in names],
            "matched_fragment": found["begun"],
            "suppress": {JEDI_MATCHER},
        }

    completer.custom_matchers.append(attributes)


def _means_the_object(expression: str, context: CompletionContext) -> bool:
    """Return whether an expression means what it meant before the cell."""
    lines = context.full_text.split("\n")[: context.cursor_line]
    code = "\n".join([*lines, context.text_until_cursor])
    if code.lstrip().startswith("%%") or context.text_until_cursor.lstrip()[:1] in _OTHER_LANGUAGE:
        return False
    if code.count("'''") % 2 or code.count('"""') % 2:
        return False
    first = expression.partition(".")[0]
    if not first.isidentifier():
        return True
    module = parso.parse(code)  # type: ignore[no-untyped-call]
    used: Mapping[str, Any] = module.get_used_names()
    return not any(name.is_definition() for name in used.get(first, ()))


def _names(completer: IPCompleter, expression: str, begun: str) -> list[str]:
    found = completer.attr_matches(f"{expression}.")
    names = {match.removeprefix(expression).removeprefix(".") for match in found}
    hidden = {0: " ", 1: "__", 2: "_"}[completer.omit__names]
    return [
        name
        for name in names
        if name.isidentifier()
        # As jedi does.
        and name.lower().startswith(begun.lower())
        and (begun or not name.startswith(hidden))
    ]


def _evaluated(completer: IPCompleter, expression: str) -> object:
    try:
        return guarded_eval(
            expression,
            EvaluationContext(
                globals=completer.global_namespace or {},
                locals=completer.namespace,
                evaluation=cast("Any", completer.evaluation),
            ),
        )
    except Exception:  # noqa: BLE001  (it is the user's code that says no, in any way it likes)
        return None


def _kind(owner: object, name: str) -> str:
    """Return what an attribute is, in jedi's words; no code of its owner runs for it."""
    try:
        found = inspect.getattr_static(owner, name)
    except AttributeError:
        return "instance"
    if isinstance(found, staticmethod | classmethod):
        return "function"
    # Accessors have ``__get__`` as methods do, and are none.
    if inspect.isroutine(found) and callable(found):
        return "function"
    if inspect.ismodule(found):
        return "module"
    return "class" if inspect.isclass(found) else "instance"
