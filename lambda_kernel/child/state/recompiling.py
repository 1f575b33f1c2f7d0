"""Definitions that another Python version stored: made again from the sources of their cells.

Bytecode means nothing to another minor version (running it may end the process). What a function is
beyond its code (defaults, closure, attributes) is data and is read as it was stored. Code that came
from no cell (a dataclass's methods, a namedtuple) has no source of its own: there, the statement
that made the class is executed again.
"""

from __future__ import annotations

import ast
import pickle
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lambda_kernel.child.cell_history import History

_MAKERS = frozenset({"namedtuple", "NamedTuple", "TypedDict", "make_dataclass", "Enum"})
"""Calls that make a class; no other assignment is executed again."""


@dataclass(frozen=True, slots=True)
class NoCode:
    """Stands for code that cannot be made again."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is known of a code object without understanding its bytecode."""

    filename: str
    name: str
    qualname: str | None
    line: int
    arguments: tuple[Any, ...]
    free: tuple[str, ...]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, args: tuple[Any, ...]) -> _Wanted:
        """Return what the arguments of ``types.CodeType`` say, in any version from 3.8 on."""
        filename, name, *rest = args[10:-2]
        qualname = rest.pop(0) if isinstance(rest[0], str) else None
        counts = args[:3]
        return cls(
            filename=filename,
            name=name,
            qualname=qualname,
            line=rest[0],
            arguments=(*counts, tuple(args[9][: args[0] + args[2]])),
            free=tuple(args[-2]),
            constants=_plain(args[7]),
        )

    def is_met_by(self, code: types.CodeType) -> bool:
        """Return whether ``code`` may be it."""
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        qualname = getattr(code, "co_qualname", None)
        return (
            (code.co_name, code.co_firstlineno) == (self.name, self.line)
            and (self.qualname is None or qualname is None or qualname == self.qualname)
            and (*counts, names) == self.arguments
            and code.co_freevars == self.free
        )


class Recompiler:
    """Makes code and definitions again from what the cells of a session were.

    Args:
        history: of the session.
        namespace: of the session.
    """

    def __init__(self, history: History, namespace: dict[str, Any]) -> None:
        self._history = history
        self._namespace = namespace
        self._compiled: dict[str, types.CodeType | None] = {}

    def make_code(self, *args: Any) -> types.CodeType | NoCode:
        """Return code of this version like that of another (see ``types.CodeType``)."""
        wanted = _Wanted.of(args)
        compiled = self._compile(wanted.filename)
        if compiled is None:
            return NoCode(f"the source of {wanted.name!r} is not stored")
        found = [code for code in _codes(compiled) if wanted.is_met_by(code)]
        if len(found) > 1:
            # Lambdas of one line.
            found = [code for code in found if _plain(code.co_consts) == wanted.constants]
        if len(found) != 1:
            return NoCode(f"the source of {wanted.name!r} does not tell which code is meant")
        return found[0]

    def execute_again(self, name: str, cell: int) -> Any:
        """Return what the definition of ``name`` makes, as of some cell; nothing is bound.

        Raises:
            LookupError: no statement defines it.
            BaseException: what the statement raises.
        """
        statement, filename = self._statement(name, cell)
        module = ast.Module(body=[statement], type_ignores=[])
        code = compile(module, filename, "exec", flags=self._history.flags, dont_inherit=True)
        namespace = self._namespace
        before = {name: namespace[name]} if name in namespace else {}
        try:
            exec(code, namespace)  # noqa: S102  (the user's own statement)
            return namespace.pop(name)
        finally:
            namespace.pop(name, None)
            namespace.update(before)

    def _statement(self, name: str, cell: int) -> tuple[ast.stmt, str]:
        numbered = sorted(self._history.sources.items(), key=lambda item: item[1][0], reverse=True)
        for filename, (number, source) in numbered:
            if number > cell:
                continue
            tree = _parse(source)
            found = [each for each in tree.body if _defines(each, name)] if tree else []
            if found:
                return found[-1], filename
        raise LookupError(f"no cell that is stored defines {name!r}")

    def _compile(self, filename: str) -> types.CodeType | None:
        if filename not in self._compiled:
            self._compiled[filename] = None
            known = self._history.sources.get(filename)
            if known is not None:
                flags = self._history.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                try:
                    self._compiled[filename] = compile(
                        known[1], filename, "exec", flags=flags, dont_inherit=True
                    )
                except (SyntaxError, ValueError):
                    # Syntax of another version.
                    return None
        return self._compiled[filename]


def code_of_this_version(code: types.CodeType | NoCode) -> types.CodeType:
    """Return ``code`` (raises UnpicklingError: there is none)."""
    if isinstance(code, NoCode):
        raise pickle.UnpicklingError(code.why)
    return code


def name_of(uid: str) -> str:
    """Return the name that a definition was made under; empty where its identity does not say."""
    name, separator, _ = uid.partition(":")
    return name if separator else ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    stack = [code]
    while stack:
        found = stack.pop()
        yield found
        stack += [each for each in found.co_consts if isinstance(each, types.CodeType)]


def _plain(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    # Where the compiler puts None, small numbers and qualified names differs between versions.
    kept = (each for each in constants if isinstance(each, int | float | complex | str | bytes))
    return tuple(sorted(map(repr, set(kept) - {True, False})))


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _defines(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.name == name
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    maker = statement.value.func
    called = maker.attr if isinstance(maker, ast.Attribute) else getattr(maker, "id", "")
    targets = [each.id for each in statement.targets if isinstance(each, ast.Name)]
    return called in _MAKERS and name in targets
