"""What ``kernel-gateway trail list`` and ``trail reindex`` do: find cells in all journals."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.terminal import harmless
from kernel_gateway.web.rest_client import RestClient

LONG_S = 3600.0
COLUMNS = ("STARTED", "KERNEL", "CELL", "ENTRY", "STATUS", "WHO", "MATCHED")


def find(
    endpoint: Endpoint, given: Mapping[str, str], *, as_json: bool, where: Sequence[str] = ()
) -> str:
    """Return the cells that a query finds as text (raises ApiError).

    Args:
        endpoint: the gateway.
        given: the query's parameters, checked.
        as_json: for programs, else for people.
        where: options that name the same gateway to other commands.
    """
    path = f"/api/trails?{urlencode(given)}"
    found = RestClient(endpoint, timeout_s=LONG_S).call("GET", path)
    return json.dumps(found, indent=2) if as_json else shown(found, where)


def shown(found: Mapping[str, Any], where: Sequence[str] = ()) -> str:
    """Return an answer of the gateway for people; ``where`` as in `find`."""
    cells = found["cells"]
    rows = [COLUMNS, *map(_row, cells)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if not cells:
        lines = ["no cell was found"]
    kernels = list(dict.fromkeys(cell["export"] for cell in cells))
    if kernels:
        options = "".join(f" {shlex.quote(option)}" for option in where)
        lines += ["", "what proves it:", *(f"  {line}{options}" for line in kernels)]
    if found["next"]:
        lines += ["", f"there are more: add --before {found['next']}"]
    if not found["complete"]:
        lines += ["", "NOT COMPLETE: entries of some journals cannot be read; verify these trails"]
        lines += [f"  {kernel_id}: {numbers}" for kernel_id, numbers in found["unreadable"].items()]
    return "\n".join(lines)


def reindex(endpoint: Endpoint) -> str:
    """Have the index made anew, and return what it was made of as text (raises ApiError)."""
    made = RestClient(endpoint, timeout_s=LONG_S).call("POST", "/api/trails/index")
    bad = f"; {made['unreadable']} cannot be read" if made["unreadable"] else ""
    return f"indexed {made['entries']:,} entries of {made['kernels']:,} journals{bad}"


def _row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    owner, caller = _name(cell), cell["caller"] and _name(cell["caller"])
    who = owner if caller in {None, owner} else f"{owner} (by {caller})"
    number = f"[{cell['execution_count']}]" if cell["kind"] == "cell" else "comm"
    failure = f" ({cell['failure']})" if cell["failure"] else ""
    row = (
        cell["started"][:19],
        cell["kernel_id"],
        number,
        str(cell["entry"]),
        cell["status"] + failure,
        who,
        ", ".join(cell["matched"]) or f"{cell['files']} files",
    )
    return tuple(harmless(text).replace("\n", " ").replace("\t", " ") for text in row)


def _name(identity: Mapping[str, Any]) -> str:
    agent = f"/{identity['agent']}" if identity["agent"] else ""
    return f"{identity['user'] or '?'}{agent}"
