"""Which stored variables a cell may read: by its source, by the code of functions."""

from __future__ import annotations

import ast
import dis
import re
import types
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_OUTPUT = re.compile(r"_\d+|_{1,3}|Out|_oh|_dh")

_NAMESPACE_CALLS = frozenset({"globals", "locals"})
_CALLS_WITHOUT_ARGUMENTS = frozenset({"dir", "vars"})
_NAMESPACE_ATTRIBUTES = frozenset(
    {"user_ns", "f_globals", "f_locals", "user_global_ns", "__dict__"}
)
_NAMESPACE_MAGICS = frozenset(
    {"who", "who_ls", "whos", "psearch", "reset_selective", "store", "xdel", "macro"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What code may read.

    Attributes:
        names: of the table it was scanned for.
        everything: it may look at all names.
        deleted: names that it deletes before it does anything else.
    """

    names: frozenset[str]
    everything: bool
    deleted: frozenset[str] = frozenset()


def scan_source(source: str, table: Mapping[str, object]) -> Reads:
    """Return what transformed cell source may read of ``table``.

    Names count where they stand as names, and where they stand in a string: magics, ``!echo {x}``
    and queries carry their variables there.
    """
    words = set(_IDENTIFIER.findall(source))
    found = words & table.keys()
    outputs = {word for word in words if _OUTPUT.fullmatch(word)}
    suspects = (
        _NAMESPACE_CALLS | _CALLS_WITHOUT_ARGUMENTS | _NAMESPACE_ATTRIBUTES | _NAMESPACE_MAGICS
    ) | {"exec"}
    if not found and not outputs and not words & suspects:
        return Reads(names=frozenset(), everything=False)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Reads(names=frozenset(found), everything=False)
    return _scan_tree(tree, table)


def enumerates(code: types.CodeType) -> bool:
    """Return whether a function may look at all names of the session."""
    names = set(code.co_names)
    if names & _NAMESPACE_CALLS or names & {"user_ns", "f_globals", "exec"}:
        return True
    return bool(names & _CALLS_WITHOUT_ARGUMENTS) and _calls_without_arguments(code)


def _scan_tree(tree: ast.Module, table: Mapping[str, object]) -> Reads:
    names: set[str] = set()
    everything = False
    deleted, rest = _leading_deletions(tree.body)
    stack: list[ast.AST] = list(rest)
    while stack:
        node = stack.pop()
        stack += ast.iter_child_nodes(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.update(stored_names(node.target.id, table))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            names.update(stored_names(node.id, table))
            everything = everything or node.id in _NAMESPACE_CALLS
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = _IDENTIFIER.findall(node.value)
            names.update(word for word in words if word in table)
            everything = everything or (len(words) == 1 and words[0] in _NAMESPACE_MAGICS)
        elif isinstance(node, ast.Call):
            everything = everything or _asks_for_all(node)
        elif isinstance(node, ast.Attribute):
            everything = everything or node.attr in _NAMESPACE_ATTRIBUTES - {"__dict__"}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            everything = everything or any(alias.name == "__main__" for alias in node.names)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            names.update(name for name in node.names if name in table)
    found = deleted & table.keys() - names
    return Reads(names=frozenset(names), everything=everything, deleted=found)


def _leading_deletions(body: list[ast.stmt]) -> tuple[frozenset[str], list[ast.stmt]]:
    names: list[str] = []
    for position, statement in enumerate(body):
        if not isinstance(statement, ast.Delete) or not all(
            isinstance(target, ast.Name) for target in statement.targets
        ):
            return frozenset(names), body[position:]
        names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return frozenset(names), []


def stored_names(name: str, table: Container[str]) -> Iterator[str]:
    """Yield what is stored under a name, or is reached by it: outputs too."""
    if name in table:
        yield name
    if name.startswith("_") and name[1:].isdigit() and f"Out[{name[1:]}]" in table:
        yield f"Out[{name[1:]}]"
    if name in ("Out", "_oh") and isinstance(table, Mapping):
        yield from (stored for stored in table if stored.startswith("Out["))


def _asks_for_all(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Name):
        return False
    if function.id == "exec":
        # Code that is put together may delete a name, which must be there for that.
        return not (call.args and isinstance(call.args[0], ast.Constant))
    return function.id in _CALLS_WITHOUT_ARGUMENTS and not call.args and not call.keywords


def _calls_without_arguments(code: types.CodeType) -> bool:
    instructions = list(dis.get_instructions(code))
    for position, instruction in enumerate(instructions):
        if instruction.argval not in _CALLS_WITHOUT_ARGUMENTS:
            continue
        following = instructions[position + 1 : position + 4]
        if any(
            i.opname in ("CALL", "CALL_FUNCTION", "CALL_FUNCTION_EX") and not i.arg
            for i in following
        ):
            return True
    return False
