"""The command line of ``kernel-gateway replay``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAIL_ON = ("different", "failed", "equivalent")
TEXT = "run the cells of a trail again, and say what came out differently"
EXIT_CODES = """\
Exit code 0: identical or equivalent; 1: differences; 2: wrong usage; 3: the trail was tampered
with, or nobody has signed it, nothing was run; 4: it could not be run, or not all of what it needs
is kept; 5: there is nothing in it that can be replayed."""


def add_replay(
    commands: Any, add_client_options: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add the command ``replay``."""
    parser = commands.add_parser(
        "replay",
        help=TEXT,
        description=f"{TEXT[0].upper()}{TEXT[1:]}. Each is a fresh invocation that can write to a "
        "folder of this replay only.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trail", metavar="TRAIL", help="a notebook, or the id of a kernel")
    parser.add_argument(
        "--mode",
        choices=("sequential", "pinned"),
        default="sequential",
        help="one after the other in one session, or each from its own recorded state, several at "
        "a time (sequential)",
    )
    parser.add_argument(
        "--from", metavar="N", type=_number, dest="begin", help="begin with the state before cell N"
    )
    parser.add_argument(
        "--only", metavar="N,M", type=_numbers, default=(), help="these cells alone, pinned"
    )
    parser.add_argument(
        "-p",
        nargs=2,
        metavar=("NAME", "VALUE"),
        action="append",
        default=[],
        dest="parameters",
        help="set a variable after the cell tagged `parameters`, as papermill does",
    )
    parser.add_argument(
        "--network", choices=("none", "recorded"), default="none", help="what cells may reach"
    )
    parser.add_argument(
        "--with-connectors", action="store_true", help="give cells their agent's connectors"
    )
    parser.add_argument(
        "--report", metavar="DIR", type=Path, help="write report.html, report.json, replay.ipynb"
    )
    parser.add_argument(
        "--rules", metavar="FILE", type=Path, action="append", default=[], help="more sanitisers"
    )
    parser.add_argument(
        "--fail-on",
        metavar="LIST",
        type=_standings,
        default=("different", "failed"),
        help=f"what is exit code 1, of {', '.join(FAIL_ON)} (different,failed)",
    )
    parser.add_argument("--discard", action="store_true", help="delete what it wrote afterwards")
    parser.add_argument(
        "--keys", metavar="FILE", type=Path, help="what `keys export` printed (the state's own)"
    )
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help="run also what nobody has signed and the gateway has no journal of",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_client_options(parser)
    parser.set_defaults(command="replay", parser=parser)


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a cell (from 1)")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part.strip()) for part in text.split(","))


def _standings(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    wrong = [part for part in found if part not in FAIL_ON]
    if wrong:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(FAIL_ON)}")
    return found
