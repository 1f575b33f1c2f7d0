"""IAM policy documents, as far as ours use them: Effect, Action, Resource; deny by default.

What is not understood here (Condition, NotAction, NotResource, Principal) never allows and always
denies: a document can lose rights by it, not gain any.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

_UNDERSTOOD = frozenset({"Sid", "Effect", "Action", "Resource"})


def allows(documents: Iterable[Mapping[str, Any]], action: str, resource: str) -> bool:
    """Return whether the documents of one principal, together, allow the request.

    Args:
        documents: policies whose statements add up, as those attached to a role do.
        action: such as ``secretsmanager:GetSecretValue``.
        resource: an ARN.
    """
    statements = [s for document in documents for s in _many(document.get("Statement"))]
    applying = [s for s in statements if isinstance(s, Mapping) and _applies(s, action, resource)]
    if any(statement.get("Effect") != "Allow" for statement in applying):
        return False
    return any(_UNDERSTOOD.issuperset(statement) for statement in applying)


def _applies(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    if not _UNDERSTOOD.issuperset(statement):
        return statement.get("Effect") != "Allow"
    actions = [str(pattern).lower() for pattern in _many(statement.get("Action"))]
    resources = [str(pattern) for pattern in _many(statement.get("Resource"))]
    return any(_matches(pattern, action.lower()) for pattern in actions) and any(
        _matches(pattern, resource) for pattern in resources
    )


def _many(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Not fnmatch: IAM knows no [brackets].
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)
