"""Why a variable will not exist in the next cell, in words that help."""

from __future__ import annotations

import pickle
import sys
from dataclasses import asdict, dataclass
from typing import Any

from lambda_kernel.child.rehydrators import NotCarried, refusal_of
from lambda_kernel.contract.outcome import LostName

MAX_WHY_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One lost variable.

    Attributes:
        type: its type's name.
        cell: the execution count of the cell that made it.
        why: a clause that follows "because".
        hint: what to do instead, with ``{name}`` filled in.
    """

    type: str
    cell: int
    why: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a snapshot keeps them."""
        return asdict(self)

    def to_wire(self, name: str) -> LostName:
        """Return what the outcome says."""
        return LostName(name=name, type=self.type, why=self.why, hint=self.hint)


def type_name(value: object) -> str:
    """Return the name of a value's type, with its module where that helps."""
    cls = type(value)
    if cls.__module__ in ("builtins", "__main__"):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def loss_of(name: str, value: object, error: BaseException, cell: int) -> Loss:
    """Return why ``value`` could not be stored.

    Args:
        name: the variable.
        value: what it holds.
        error: what storing it raised.
        cell: the execution count of the cell it is lost in.
    """
    refusal = error if isinstance(error, NotCarried) else refusal_of(value)
    if refusal is None:
        return Loss(type=type_name(value), cell=cell, why=_why(error))
    why, inner = refusal.why, refusal.subject
    if inner is not None and inner is not value:
        # The hint speaks of a part that may have no name.
        article = "an" if type_name(inner)[:1].lower() in "aeiou" else "a"
        return Loss(
            type=type_name(value),
            cell=cell,
            why=f"it holds {article} {type_name(inner)}: {why}",
            hint="" if "{name}" in refusal.hint else refusal.hint,
        )
    is_output = name.startswith("Out[") and "{name}" in refusal.hint
    hint = "" if is_output else refusal.hint.replace("{name}", name)
    return Loss(type=type_name(value), cell=cell, why=why, hint=hint)


def notice(name: str, loss: Loss) -> str:
    """Return what stderr says, once, when a variable is lost. Source: state.md, "Messages"."""
    text = f"[state] '{name}' ({loss.type}) will not exist in the next cell: {loss.why}.\n"
    if loss.hint:
        text += f"        Instead, for example: {loss.hint}\n"
    return text


def story(name: str, loss: Loss) -> str:
    """Return what a later NameError for the variable adds."""
    article = "an" if loss.type[:1].lower() in "aeiou" else "a"
    again = f"run In[{loss.cell}] again" if loss.cell else "make it again"
    hint = f", or: {loss.hint}" if loss.hint else ""
    return (
        f"'{name}' was {article} {loss.type} made in In[{loss.cell}]. Every cell runs in a fresh "
        f"process, and this was not carried: {loss.why}; {again}{hint}."
    )


def tell(name: str, loss: Loss) -> None:
    """Write the notice to the cell's stderr."""
    sys.stderr.write(notice(name, loss))


def is_too_deep(error: BaseException) -> bool:
    """Return whether an error of pickling says that the stack was too small."""
    if isinstance(error, RecursionError):
        return True
    return isinstance(error, pickle.PicklingError) and "deep recursion" in str(error)


def _why(error: BaseException) -> str:
    if is_too_deep(error):
        return "it is nested too deeply to be stored"
    if isinstance(error, ModuleNotFoundError):
        return f"the module {error.name!r} cannot be imported"
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  (the error may be the user's own class)
        text = ""
    text = text[:MAX_WHY_CHARACTERS] or "no reason given"
    return f"it cannot be stored ({type(error).__name__}: {text})"
