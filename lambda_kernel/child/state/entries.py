"""The values of a session by name: variables, outputs, and what IPython keeps for the user.

Names that are no identifiers stand for places that are no variables: ``Out[3]``; ``<_>`` for the
display hook's own ``_`` where the user's variable ``_`` is another; ``(magics)`` and the like for
live objects of the side state.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from lambda_kernel.child.state.loading import Loader

UNDERS = ("_", "__", "___")

_NUMBERED_INPUT = re.compile(r"_i{0,3}|_i\d+|_\d+")
_COMM = re.compile(r"\(comms:comm:[^:]*:(.*)\)")
_MODULE_NAMES = frozenset(
    {
        "__name__",
        "__doc__",
        "__package__",
        "__loader__",
        "__spec__",
        "__builtin__",
        "__builtins__",
        "__getattr__",
    }
)


def collect(shell: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return the values of the session by name, and the aliases.

    An alias is a name of the namespace itself (None), of ``In`` or of ``Out``.
    """
    namespace, own_names = shell.user_ns, shell.own_names
    own = {id(namespace): None} | {id(namespace[n]): n for n in ("In", "Out") if n in namespace}
    values: dict[str, Any] = {}
    aliases: dict[str, str | None] = {}
    for name, value in list(namespace.items()):
        if not isinstance(name, str) or name in _MODULE_NAMES or name in UNDERS:
            continue
        if name in own_names and value is own_names[name]:
            continue
        if _is_output(name, value, namespace):
            continue
        if id(value) in own:
            aliases[name] = own[id(value)]
        else:
            values[name] = value
    values.update((f"Out[{n}]", value) for n, value in list(namespace.get("_oh", {}).items()))
    values.update(_unders(shell))
    return values, aliases


def bind(shell: Any, name: str, value: Any) -> None:
    """Put a value that was stored under ``name`` where it belongs."""
    if name.startswith("Out["):
        number = int(name[4:-1])
        shell.user_ns["_oh"][number] = value
        shell.push({f"_{number}": value}, interactive=False)
    elif name.startswith("<"):
        setattr(shell.displayhook, name[1:-1], value)
    elif name in UNDERS:
        setattr(shell.displayhook, name, value)
        shell.push({name: value}, interactive=False)
    else:
        shell.user_ns[name] = value


def order_outputs(shell: Any) -> None:
    """Put the outputs that were bound into the order in which they were made."""
    outputs = shell.user_ns["_oh"]
    ordered = sorted(outputs)
    if ordered != list(outputs):
        values = [(number, outputs[number]) for number in ordered]
        outputs.clear()
        outputs.update(values)


def bind_empty_unders(shell: Any, stored: Loader) -> None:
    """Bind those of ``_``, ``__`` and ``___`` that stand for no output yet, once there was one."""
    namespace = shell.user_ns
    if not any(name in stored.table or name in namespace for name in UNDERS):
        return
    for name in UNDERS:
        if name not in stored.table:
            namespace.setdefault(name, getattr(shell.displayhook, name))


def lookup(shell: Any, name: str) -> Any:
    """Return the value that ``bind`` has put where it belongs."""
    if name.startswith("Out["):
        return shell.user_ns["_oh"][int(name[4:-1])]
    if name.startswith("<"):
        return getattr(shell.displayhook, name[1:-1])
    return shell.user_ns[name]


def shift(stored: Loader) -> list[str]:
    """Make room for a new output among the stored names that are not loaded.

    Returns:
        Names that must not be bound now: what they stand for is stored.
    """
    for kept, older in (("___", None), ("__", "___"), ("_", "__")):
        if older is None or kept not in stored.table:
            stored.forget(kept)
        else:
            stored.rename(kept, older)
    return [name for name in ("__", "___") if name in stored.table]


def label(name: str) -> str | None:
    """Return what the user knows a name as; None where it is another name of something."""
    if name in UNDERS or name.startswith("<"):
        return None
    comm = _COMM.fullmatch(name)
    return name if comm is None else comm_label(unquote(comm[1]))


def comm_label(comm_id: str) -> str:
    """Return what the user knows a comm as, which most often is a widget's."""
    return f"widget {comm_id}"


def variable(name: str) -> str | None:
    """Return the name of what the user calls a variable; None for anything else."""
    return None if name.startswith("(") else label(name)


def _is_output(name: str, value: Any, namespace: dict[str, Any]) -> bool:
    if _NUMBERED_INPUT.fullmatch(name) is None:
        return False
    if name.startswith("_i"):
        return True
    number = int(name[1:]) if name[1:].isdigit() else -1
    return bool(namespace.get("_oh", {}).get(number, namespace) is value)


def _unders(shell: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in UNDERS:
        kept = getattr(shell.displayhook, name)
        variable = shell.user_ns.get(name, kept)
        if variable is not kept:
            values[f"<{name}>"] = kept
        if type(variable) is not str or variable:
            values[name] = variable
    return values
