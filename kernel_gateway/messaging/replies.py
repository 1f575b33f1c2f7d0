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

HISTORY_SESSION = 0
"""The number of the current session in history tuples, as IPython counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastInput:
    """One input of a kernel's history: its execution count and source."""

    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """What a reply may know of the kernel.

    Attributes:
        execution_count: of its last cell.
        history: its inputs, oldest first; as far as the gateway still has them.
        probe: what isolation its containers have, None where no cell ran yet.
    """

    execution_count: int = 0
    history: Sequence[PastInput] = ()
    probe: Mapping[str, Any] | None = None


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
    python = sys.version.split()[0]
    return {
        "status": "ok",
        "protocol_version": PROTOCOL_VERSION,
        "implementation": IMPLEMENTATION,
        "implementation_version": version,
        "language_info": {
            "name": "python",
            "version": python,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
            "pygments_lexer": f"ipython{sys.version_info[0]}",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": (
            f"Python {python}; every cell is one isolated Lambda invocation "
            f"({IMPLEMENTATION} {version})\n"
        ),
        "help_links": [
            {"text": "Python Reference", "url": f"https://docs.python.org/{python[:4]}"},
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


def _comm_info(*_: object) -> dict[str, Any]:
    return {"status": "ok", "comms": {}}


def _history(content: Mapping[str, Any], view: KernelView) -> dict[str, Any]:
    select = {"tail": _tail, "range": _range, "search": _search}.get(
        str(content.get("hist_access_type"))
    )
    entries = select(content, list(view.history)) if select else []
    with_output = content.get("output") is True
    # Outputs are not kept here; IPython too says None where it has none.
    return {
        "status": "ok",
        "history": [
            (HISTORY_SESSION, e.count, (e.source, None) if with_output else e.source)
            for e in entries
        ],
    }


def _tail(content: Mapping[str, Any], entries: list[PastInput]) -> list[PastInput]:
    return _last(entries, content.get("n"))


def _range(content: Mapping[str, Any], entries: list[PastInput]) -> list[PastInput]:
    if content.get("session", HISTORY_SESSION) not in (HISTORY_SESSION, None):
        return []
    start, stop = content.get("start"), content.get("stop")
    first = start if isinstance(start, int) else 0
    return [
        e for e in entries if e.count >= first and (not isinstance(stop, int) or e.count < stop)
    ]


def _search(content: Mapping[str, Any], entries: list[PastInput]) -> list[PastInput]:
    pattern = content.get("pattern")
    # fnmatch makes a regular expression of the glob: one with many stars can take for ever.
    if not isinstance(pattern, str) or pattern.count("*") > 8:
        pattern = "*"
    found = [e for e in entries if fnmatch.fnmatchcase(e.source, pattern)]
    if content.get("unique") is True:
        found = list({e.source: e for e in found}.values())
    return _last(found, content.get("n"))


def _last(entries: list[PastInput], count: object) -> list[PastInput]:
    if not isinstance(count, int):
        return entries
    return entries[-count:] if count > 0 else []


_ANSWERS: Mapping[str, Callable[[Mapping[str, Any], KernelView], dict[str, Any]]] = {
    "kernel_info_request": kernel_info,
    "is_complete_request": _is_complete,
    "history_request": _history,
    "comm_info_request": _comm_info,
}
