"""The command line of ``kernel-gateway trail`` and ``kernel-gateway keys``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_gateway.settings_trail_options import add_search

STATE_OPTIONS = (
    ("--state-dir", "DIR", "state directory of the gateway"),
    ("--config", "FILE", "configuration that names it"),
)


def add_trail(
    commands: Any, add_client_options: Callable[[argparse.ArgumentParser], None], kind: type
) -> None:
    """Add the command ``trail``; ``kind`` is the class of parsers."""
    text = "find, export and verify what proves what ran in kernels"
    parser = commands.add_parser("trail", help=text, description=f"{text[0].upper()}{text[1:]}.")
    actions = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="action", required=True, parser_class=kind
    )
    text = "write a kernel's trail as a notebook"
    export = actions.add_parser("export", help=text, description=f"{text[0].upper()}{text[1:]}.")
    export.add_argument("kernel", metavar="KERNEL", help="id of the kernel; it may have ended")
    export.add_argument(
        "--output", metavar="F", type=Path, help="the file (KERNEL.ipynb, KERNEL.intoto.jsonl)"
    )
    export.add_argument(
        "--format",
        choices=("ipynb", "intoto"),
        default="ipynb",
        help="a notebook (ipynb), or an in-toto statement with SLSA provenance per cell (intoto)",
    )
    export.add_argument(
        "--sign", action="store_true", help="statements in DSSE envelopes of the gateway's key"
    )
    export.add_argument(
        "--with-blobs", action="store_true", help="also write large outputs, below blobs/ beside it"
    )
    text = "check signatures, chain, sources and outputs of a trail"
    verify = actions.add_parser(
        "verify",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Exit code 0: verified; 1: not changed, but not "
        "all of it is signed; 2: no trail; 3: tampered with.",
    )
    verify.add_argument("trail", metavar="FILE_OR_KERNEL", help="a notebook, or the id of a kernel")
    verify.add_argument(
        "--keys", metavar="FILE", type=Path, help="what `keys export` printed (the state's own)"
    )
    verify.add_argument(
        "--journal", action="store_true", help="compare the end with the gateway's journal"
    )
    verify.add_argument("--json", action="store_true", help="print JSON")
    remove = _add_removal(actions)
    for action in (export, verify, remove):
        add_client_options(action)
    for action in (export, verify, remove, *add_search(actions, add_client_options)):
        action.set_defaults(command="trail", parser=action)


def _add_removal(actions: Any) -> Any:
    text = "delete what cells have said from a trail, which then says so"
    parser = actions.add_parser(
        "remove-content",
        help=text,
        description=f"{text[0].upper()}{text[1:]} and still verifies. For admins; it cannot be "
        "undone. What was written without audit.removable = true stands in signed entries and "
        "stays, unless it was large.",
    )
    parser.add_argument("kernel", metavar="KERNEL", help="id of the kernel; it may have ended")
    parser.add_argument(
        "--cell", metavar="N", type=int, help="only the cell with this number (all of them)"
    )
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="why; it stands in the trail"
    )
    return parser


def add_keys(commands: Any, kind: type) -> None:
    """Add the command ``keys``; ``kind`` is the class of parsers."""
    parser = commands.add_parser(
        "keys",
        help="the keys that sign audit trails",
        description="The keys that sign the audit trails of a gateway.",
    )
    actions = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="action", required=True, parser_class=kind
    )
    for name, text in (
        ("export", "print the public keys that an auditor needs, also older ones"),
        ("rotate", "sign with a new key from now on; older ones still verify"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for option, metavar, what in STATE_OPTIONS:
            action.add_argument(option, metavar=metavar, help=what, default=argparse.SUPPRESS)
        action.set_defaults(command="keys", parser=action)
