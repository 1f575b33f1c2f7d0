"""Replies that need no Invoke: what the gateway can answer without running user code."""

from __future__ import annotations

import fnmatch
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from kernel_gateway.messaging.message import PROTOCOL_VERSION, InMessage

logger = logging.getLogger(__name__)

IMPLEMENTATION = "lambda-kernel-gateway"
IS_COMPLETE_CHARACTERS = 20_000
IS_COMPLETE_LINES = 100
"""Longer code is ``unknown``: the check compiles it, on the event loop, and takes time that grows
with the square of its lines."""

MAX_GLOB_CHARACTERS = 1000
"""Of the pattern of a search in the history; without it everything is found."""

OWN_PYTHON = sys.version.split()[0]
CURRENT_SESSION = 0
"""How a request names the current session, whatever its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastInput:
    """One input of a kernel's history: number of its session, execution count and source."""

    session: int = 1
    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """What a reply may know of the kernel.

    Attributes:
        history: its inputs, oldest first; as far as the gateway still has them.
        probe: what isolation its containers have, None where no cell ran yet.
        session: number of the current session: how often it was restarted, and 1.
        python: the version of its environment's Python.
    """

    history: Sequence[PastInput] = ()
    probe: Mapping[str, Any] | None = None
    session: int = 1
    python: str = OWN_PYTHON


NumberedInput = tuple[int, PastInput]
"""An input, and the number of its session as the reply shall name it."""


def reply_content(message: InMessage, view: KernelView) -> dict[str, Any]:
    """Return the content of the reply to a request that needs no Invoke.

    A request of unknown type gets an ``error`` content, so that no client waits for ever.
    """
    answer = _ANSWERS.get(message.msg_type)
    if answer is None:
        return error_content(
            "UnknownRequest", f"this kernel does not know messages of type {message.msg_type!r}"
        )
    return answer(message.content, view)


def is_known(msg_type: str) -> bool:
    """Return whether `reply_content` has an answer of its own for this type."""
    return msg_type in _ANSWERS


def reply_type(msg_type: str) -> str:
    """Return the type of the reply to a ``*_request``."""
    return msg_type.rsplit("_", 1)[0] + "_reply"


def error_content(ename: str, evalue: str) -> dict[str, Any]:
    """Return the content of an ``error`` message, and of a reply with status ``error``."""
    return {
        "status": "error",
        "ename": ename,
        "evalue": evalue,
        "traceback": [f"{ename}: {evalue}"],
    }


def kernel_info(_: Mapping[str, Any], view: KernelView) -> dict[str, Any]:
    """Return the content of kernel_info_reply, as ipykernel's, with our implementation name."""
    version = metadata.version(IMPLEMENTATION)
    python = view.python
    major, minor = python.split(".")[:2]
    return {
        "status": "ok",
        "protocol_version": PROTOCOL_VERSION,
        "implementation": IMPLEMENTATION,
        "implementation_version": version,
        "language_info": {
            "name": "python",
            "version": python,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": int(major)},
            "pygments_lexer": f"ipython{major}",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": (
            f"Python {python}; every cell is one isolated Lambda invocation "
            f"({IMPLEMENTATION} {version})\n"
        ),
        "help_links": [
            {"text": "Python Reference", "url": f"https://docs.python.org/{major}.{minor}"},
            {
                "text": "IPython Reference",
                "url": "https://ipython.org/documentation.html",
            },
        ],
        "supported_features": [],
        "lambda_kernel": {"probe": view.probe},
    }


def _is_complete(content: Mapping[str, Any], _: KernelView) -> dict[str, Any]:
    code = content.get("code")
    if not isinstance(code, str) or len(code) > IS_COMPLETE_CHARACTERS:
        return {"status": "unknown"}
    if len(code.splitlines()) > IS_COMPLETE_LINES:
        return {"status": "unknown"}
    try:
        # One of our own for each request: it keeps state, and it runs no user code.
        status, indent = TransformerManager().check_complete(code)
    except (ValueError, SyntaxError, OverflowError):
        return {"status": "invalid"}
    except Exception:
        # IPython gives up on some code with errors of its own, such as a RuntimeError.
        logger.info("IPython could not tell whether code is complete", exc_info=True)
        return {"status": "unknown"}
    if status == "incomplete":
        return {"status": status, "indent": " " * (indent or 0)}
    return {"status": status}


def _history(content: Mapping[str, Any], view: KernelView) -> dict[str, Any]:
    select = {"tail": _tail, "range": _range, "search": _search}.get(
        str(content.get("hist_access_type"))
    )
    if select is None:
        return error_content("BadMessage", "hist_access_type must be tail, range or search")
    with_output = content.get("output") is True
    # Outputs are not kept here; IPython too says None where it has none.
    return {
        "status": "ok",
        "history": [
            (session, e.count, (e.source, None) if with_output else e.source)
            for session, e in select(content, view)
        ],
    }


def _tail(content: Mapping[str, Any], view: KernelView) -> list[NumberedInput]:
    return _last(_numbered(view.history), content.get("n"))


def _range(content: Mapping[str, Any], view: KernelView) -> list[NumberedInput]:
    session, start, stop = (content.get(name) for name in ("session", "start", "stop"))
    wanted = session if isinstance(session, int) else CURRENT_SESSION
    if wanted <= 0:
        wanted += view.session
    first = start if isinstance(start, int) else 0
    return [
        # IPython gives the inputs of the current session, asked for so, the number 0.
        (CURRENT_SESSION if wanted == view.session else e.session, e)
        for e in view.history
        if e.session == wanted
        and e.count >= first
        and (not isinstance(stop, int) or e.count < stop)
    ]


def _search(content: Mapping[str, Any], view: KernelView) -> list[NumberedInput]:
    pattern = content.get("pattern")
    # fnmatch makes a regular expression of the glob: of a long one that takes for ever, and so can
    # the search with one that has many stars.
    if not isinstance(pattern, str) or pattern.count("*") > 8 or len(pattern) > MAX_GLOB_CHARACTERS:
        pattern = "*"
    found = [e for e in view.history if fnmatch.fnmatchcase(e.source, pattern)]
    if content.get("unique") is True:
        newest = {e.source: e for e in found}
        found = [e for e in found if newest[e.source] is e]
    return _last(_numbered(found), content.get("n"))


def _numbered(entries: Sequence[PastInput]) -> list[NumberedInput]:
    return [(e.session, e) for e in entries]


def _last(entries: list[NumberedInput], count: object) -> list[NumberedInput]:
    if not isinstance(count, int):
        return entries
    return entries[-count:] if count > 0 else []


_ANSWERS: Mapping[str, Callable[[Mapping[str, Any], KernelView], dict[str, Any]]] = {
    "kernel_info_request": kernel_info,
    "is_complete_request": _is_complete,
    "history_request": _history,
}
