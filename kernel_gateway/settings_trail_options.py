"""The command line of ``kernel-gateway trail list`` and ``kernel-gateway trail reindex``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

FILTERS = (
    ("--user", "U", "of this user's kernels"),
    ("--agent", "A", "of this agent's kernels"),
    ("--since", "T", "started then or later: 2026-01-31 or 2026-01-31T18:00, UTC"),
    ("--until", "T", "started before; of a day alone: up to its end"),
    ("--status", "S", "ok, error, lost or incomplete (no end is recorded)"),
    ("--contains-digest", "D", "SHA-256 of a file it wrote, of its source, output or commit"),
    ("--connector", "C", "it could read the values of this connector"),
    ("--path", "P", "it changed this file of its workspace, or one below FOLDER/"),
    ("--limit", "N", "the newest N (100, at most 1000)"),
    ("--before", "PLACE", "go on where the list before ended, which said so"),
)


def add_search(
    actions: Any, add_client_options: Callable[[argparse.ArgumentParser], None]
) -> tuple[argparse.ArgumentParser, ...]:
    """Add the two commands to those of ``trail``, and return their parsers."""
    text = "find cells in the trails of all kernels, also of those that have ended"
    found = actions.add_parser("list", help=text, description=f"{text[0].upper()}{text[1:]}.")
    for name, metavar, what in FILTERS:
        found.add_argument(name, metavar=metavar, help=what)
    found.add_argument("--json", action="store_true", help="print JSON")
    text = "make the index that `list` uses anew from the journals"
    made = actions.add_parser(
        "reindex",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. `list` completes it by itself; this is for an "
        "index that somebody has damaged. An admin's token is needed where there are identities.",
    )
    for action in (found, made):
        add_client_options(action)
    return found, made


def given_filters(options: argparse.Namespace) -> dict[str, str]:
    """Return the filters of ``trail list`` that were given, by the names of the REST API."""
    named = ((name.removeprefix("--").replace("-", "_")) for name, _, _ in FILTERS)
    return {name: value for name in named if (value := getattr(options, name)) is not None}


def gateway_named(options: argparse.Namespace) -> list[str]:
    """Return the options that have other commands use the same gateway; a token is not shown."""
    named = {
        "--gateway-url": options.gateway_url,
        "--state-dir": options.state_dir,
        "--config": options.config,
    }
    found = [part for name, value in named.items() if value for part in (name, str(value))]
    return [*found, "--token", "TOKEN"] if options.token else found
