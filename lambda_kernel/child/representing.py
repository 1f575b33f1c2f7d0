"""``variables`` requests: one variable as text, for who has no cell to print it in."""

from __future__ import annotations

from typing import Any

from IPython.lib.pretty import pretty

from lambda_kernel.child.state.session import Session

MAX_CHARACTERS = 1000
MAX_ITEMS = 1000
"""Of a container that are looked at."""


def variables_reply(state: Session, shell: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the reply: the text of the variable that ``content`` names."""
    name = str(content.get("name"))
    if name not in state.loader.table:
        return _error("NameError", f"name {name!r} is not defined")
    try:
        value = state.value(name)
    except Exception as error:  # noqa: BLE001  (whatever it is, the reader is told)
        loss = shell.lost_names.get(name)
        why = loss.why if loss is not None else f"it cannot be read: {_safe_text(error)}"
        return _error("VariableUnavailable", why)
    try:
        text = _text(value)
    except BaseException as error:  # noqa: BLE001  (a user's class may raise anything)
        return _error(type(error).__name__, _safe_text(error))
    return {"status": "ok", "data": {"text/plain": _shortened(text)}, "metadata": {}}


def _text(value: Any) -> str:
    if type(value) in (str, bytes) and len(value) > MAX_CHARACTERS:
        return f"{value[:MAX_CHARACTERS]!r}…"
    return str(pretty(value, max_seq_length=MAX_ITEMS))


def _error(name: str, text: str) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": _shortened(text), "traceback": []}


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (as above)
        return ""


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
