"""``%state``: what of the session is stored, what changed, and why something is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from lambda_kernel.child.losses import story, type_name
from lambda_kernel.child.state import entries
from lambda_kernel.child.state.index import Component
from lambda_kernel.child.state.loading import Loader
from lambda_kernel.contract.paging import PagerError

USAGE = "%state, %state diff, %state why NAME, or %state export NAME [FILE]"
HEADINGS = ("name", "type", "bytes", "cell", "loaded", "carried")


@magics_class
class StateMagics(Magics):
    """Magics that tell what the session's next cell will find."""

    @line_magic
    def state(self, line: str) -> None:
        """Show the session's variables as the cell before has left them.

        ``%state`` lists them; ``%state diff`` says what that cell changed; ``%state why NAME``
        says why a name is there or not; ``%state export NAME [FILE]`` writes the stored bytes of
        a variable, which may be one that cannot be read any more, to a file.
        """
        words = line.split()
        shell: Any = self.shell
        if not words:
            text = table(shell)
        elif words == ["diff"]:
            text = difference(shell.stored)
        elif words[0] == "why" and len(words) == 2:
            text = why(shell, words[1])
        elif words[0] == "export" and len(words) in (2, 3):
            text = export(shell.stored, words[1], Path(words[-1] if words[2:] else words[1]))
        else:
            raise UsageError(f"this is {USAGE}")
        print(text)  # noqa: T201


def table(shell: Any) -> str:
    """Return the stored variables, largest first, then those that were lost."""
    stored: Loader = shell.stored
    rows: list[Sequence[str]] = []
    for component in sorted(stored.index.components(), key=lambda each: -each.size_bytes):
        for name in sorted(filter(entries.variable, component.names)):
            is_loaded = "" if name in stored.table else "yes"
            size = shown_size(component.size_bytes)
            carried = "cannot be read" if component.number in stored.broken else "yes"
            rows.append(
                (name, component.names[name], size, f"[{component.cell}]", is_loaded, carried)
            )
    for name, loss in sorted(shell.lost_names.items()):
        if name not in shell.user_ns and name not in stored.table:
            rows.append((name, loss.type, "", f"[{loss.cell}]", "", f"no: {loss.why}"))
    if not rows:
        return "nothing is stored yet"
    return f"after cell [{stored.index.cell}]\n{_aligned([HEADINGS, *rows])}"


def difference(stored: Loader) -> str:
    """Return what the cell before has changed."""
    lines = []
    for kind in ("added", "changed", "removed", "lost"):
        names = sorted(name for name, what in stored.index.changed.items() if what == kind)
        if names:
            lines.append(f"{kind}: {', '.join(names)}")
    cell = f"cell [{stored.index.cell}]" if stored.index.cell else "no cell"
    return (
        "\n".join([f"{cell} changed", *(f"  {line}" for line in lines)])
        if lines
        else (f"{cell} changed nothing")
    )


def why(shell: Any, name: str) -> str:
    """Return the story of a name."""
    stored: Loader = shell.stored
    component = _home(stored, name)
    if component is None:
        if name in shell.user_ns:
            made = type_name(shell.user_ns[name])
            return f"'{name}' ({made}) is not stored yet: it will be at the end of this cell"
        if name in shell.lost_names:
            return story(name, shell.lost_names[name])
        return f"the session has no '{name}'"
    lines = [
        f"'{name}' ({component.names[name]}) was stored by cell [{component.cell}], "
        f"{shown_size(component.size_bytes)}"
    ]
    if component.number in stored.broken:
        lines.append(stored.broken[component.number].why)
        lines.append(f"%state export {name} writes its bytes to a file")
    others = sorted(set(filter(entries.variable, component.names)) - {name})
    if others:
        lines.append(f"it shares objects with {_listed(others)}: they are stored as one")
    uses, users = _uses(stored, component), _users(stored, component)
    if uses:
        lines.append(f"it needs {_listed(uses)}, which is kept as long as it is")
    if users:
        lines.append(f"it is needed by {_listed(users)}")
    return "\n  ".join(lines)


def export(stored: Loader, name: str, file: Path) -> str:
    """Write the stored bytes of a variable to a file, its large buffers to files beside it."""
    component = _home(stored, name)
    if component is None:
        raise UsageError(f"nothing is stored of '{name}'")
    if file.suffix == "":
        file = file.with_suffix(".pickle")
    try:
        bodies = [
            stored.stored_bytes(component.pickle),
            *(stored.stored_object(object_id) for object_id in component.buffers),
        ]
    except (PagerError, OSError) as error:
        raise UsageError(f"'{name}' cannot be had now: {error}") from error
    written = []
    for number, body in enumerate(bodies):
        target = file if number == 0 else file.with_suffix(f".buffer{number}")
        target.write_bytes(body)
        written.append(f"{target} ({shown_size(len(body))})")
    order = ", ".join(str(each) for each in component.order)
    note = "pickle protocol 5, buffers out of band" if component.buffers else "pickle protocol 5"
    return f"wrote {', '.join(written)}: {note}; it holds {order}"


def shown_size(size_bytes: int) -> str:
    """Return a size for people: ``8.0 MB``."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95 or unit == "GB":
            break
    return f"{size:.1f} {unit}"


def _home(stored: Loader, name: str) -> Component | None:
    return next((each for each in stored.index.components() if name in each.names), None)


def _uses(stored: Loader, component: Component) -> list[str]:
    homes = stored.index.homes()
    numbers = {homes[uid] for uid in component.uses if uid in homes}
    used = [stored.index.component(number) for number in numbers]
    return sorted({name for each in used for name in _titles(each)})


def _users(stored: Loader, component: Component) -> list[str]:
    own = set(component.definitions)
    users = [each for each in stored.index.components() if own.intersection(each.uses)]
    return sorted({name for each in users for name in _titles(each)})


def _titles(component: Component) -> Iterable[str]:
    return list(filter(entries.variable, component.names)) or ["a definition without a name"]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" if name[:2] != "a " else name for name in names)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if i == 2 else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
