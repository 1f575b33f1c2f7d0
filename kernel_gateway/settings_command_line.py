"""The command line of ``kernel-gateway``: options, commands, help texts, errors of one line."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any, NoReturn

from kernel_gateway.settings_audit_options import add_keys, add_trail
from kernel_gateway.settings_replay_options import add_replay

PROGRAM = "kernel-gateway"
COMMANDS = (
    "run",
    "install",
    "files",
    "connectors",
    "kernels",
    "cells",
    "probe",
    "gc",
    "trail",
    "keys",
    "replay",
)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
BAD_INPUT = 2

DESCRIPTION = """\
Start a Jupyter gateway whose every cell runs as one isolated Lambda invocation,
with everything it needs on this machine. When a client can connect it prints one
line with URL and token and three lines that show how to use it."""

EPILOG = """\
Any other option of a Jupyter application can be given as --Class.option=value,
such as --ServerApp.certfile=cert.pem, or in the configuration file."""

OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("--ip", "ADDRESS", "address to listen on (127.0.0.1)"),
    ("--port", "PORT", "port to listen on (8888; 0 = any; one that is taken: the next)"),
    ("--token", "TOKEN", "token of the user `local` (JUPYTER_TOKEN, else a random one)"),
    (
        "--identities",
        "FILE",
        "TOML file with [[identity]] tables: user, agent, token_sha256, admin",
    ),
    ("--config", "FILE", "configuration: .toml, or .py and .json as for any Jupyter application"),
    ("--state-dir", "DIR", "where storage and logs stand (the platform's user data directory)"),
    ("--replica-url", "URL", "where other gateways on the same buckets reach this one"),
    (
        "--deployment",
        "FILE",
        "use S3 and Lambda that run already (run/deployment.json of a gateway)",
    ),
    ("--log-level", "LEVEL", f"one of {', '.join(LEVELS)} (INFO)"),
    (
        "--end-when-unused",
        "S",
        "end when no kernel process and no command has used it for so many seconds (never)",
    ),
)


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, with ``command`` "gateway" or one of COMMANDS, and traitlets' own.

    Exits with code 2 and one line on stderr where something is wrong.
    """
    parser = _parser()
    # argparse would take the value of an option that it does not know for a command.
    known = {name for name, _, _ in OPTIONS} | {"-h", "--help"}
    for text in itertools.takewhile(lambda text: text not in COMMANDS, arguments):
        name, equals, _ = text.partition("=")
        if text.startswith("-") and name not in known and not (equals and "." in name):
            hint = f"; write {name}=VALUE" if "." in name else ""
            parser.error(f"unrecognized argument: {text}{hint}")
    options, extra = parser.parse_known_args(arguments)
    if extra and (options.command != "gateway" or not all(text.startswith("--") for text in extra)):
        options.parser.error(f"unrecognized argument: {extra[0]}")
    return options, extra


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_gateway_options(parser)
    parser.set_defaults(command="gateway", parser=parser)
    commands = parser.add_subparsers(
        title="other commands", metavar="COMMAND", parser_class=_Parser
    )
    _add_run(commands)
    _add_install(commands)
    _add_files(commands)
    _add_connectors(commands)
    _add_kernels(commands)
    _add_probe(commands)
    _add_gc(commands)
    add_trail(commands, _add_client_options, _Parser)
    add_keys(commands, _Parser)
    add_replay(commands, _add_client_options)
    return parser


def _add_gateway_options(parser: argparse.ArgumentParser) -> None:
    for name, metavar, text in OPTIONS:
        kind: Any = {
            "--port": _port,
            "--log-level": _level,
            "--end-when-unused": _seconds,
        }.get(name, str)
        parser.add_argument(name, metavar=metavar, help=text, type=kind)


def _add_client_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which gateway (one that runs, else one for this command)")
    group.add_argument("--gateway-url", metavar="URL", help="URL of a running gateway")
    # Where they are not given here, those before the command count.
    for name, metavar, text in (
        ("--token", "TOKEN", "token for it (JUPYTER_TOKEN)"),
        ("--state-dir", "DIR", "state directory of the gateway"),
        ("--config", "FILE", "configuration of a gateway to be started"),
    ):
        group.add_argument(name, metavar=metavar, help=text, default=argparse.SUPPRESS)
    parser.add_argument(
        "--workspace", metavar="NAME", default="default", help="workspace (default)"
    )


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run", help="execute a notebook", description="Execute a notebook cell by cell."
    )
    parser.add_argument("notebook", metavar="NOTEBOOK.ipynb", type=Path)
    parser.add_argument(
        "--output", metavar="OUT.ipynb", type=Path, help="where it is written (in place)"
    )
    parser.add_argument("--kernel-name", metavar="NAME", help="kernelspec (the notebook's own)")
    parser.add_argument(
        "--from",
        metavar="KERNEL[@CELL]",
        dest="source",
        default="",
        help="begin with the variables that a kernel has, or had after a cell (none)",
    )
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="seconds for one cell")
    _add_client_options(parser)
    parser.set_defaults(command="run", parser=parser)


def _add_install(commands: Any) -> None:
    text = "install a kernelspec for tools that start kernels themselves"
    parser = commands.add_parser(
        "install",
        help=text,
        description=f"{text[0].upper()}{text[1:]}: nbclient, papermill, jupyter execute, jupyter "
        "console, VS Code. No gateway has to run. `jupyter kernelspec remove NAME` removes it.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="for this Python environment")
    where.add_argument("--prefix", metavar="PATH", help="below another prefix")
    for name, metavar, what, missing in (
        ("--name", "NAME", "name of the kernelspec (that of --kernel-name)", None),
        ("--display-name", "TEXT", "name in menus", None),
        ("--kernel-name", "NAME", "the gateway's kernelspec (lambda-python)", "lambda-python"),
        ("--workspace", "NAME", "workspace that the cells see (default)", None),
        ("--state-dir", "DIR", "state directory of the gateway", argparse.SUPPRESS),
        ("--config", "FILE", "configuration of the gateway", argparse.SUPPRESS),
    ):
        parser.add_argument(name, metavar=metavar, help=what, default=missing)
    parser.add_argument(
        "--provisioner",
        action="store_true",
        help="no process for a kernel; for programs of the environment this is installed in",
    )
    parser.set_defaults(command="install", parser=parser)


def _add_files(commands: Any) -> None:
    parser = commands.add_parser(
        "files",
        help="bring files into and out of a workspace",
        description="Bring files into and out of a workspace.",
    )
    actions = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="action", required=True, parser_class=_Parser
    )
    shapes = {
        "ls": ("list what is in the workspace", (("path", "?"),)),
        "put": ("upload a file or folder", (("local", None), ("remote", "?"))),
        "get": ("download a file or folder", (("remote", None), ("local", "?"))),
        "rm": ("delete a file or folder; older versions are kept", (("path", None),)),
    }
    for name, (text, places) in shapes.items():
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for place, count in places:
            action.add_argument(place, metavar=place.upper(), nargs=count, default="")
        if name == "rm":
            action.add_argument(
                "-r", "--recursive", action="store_true", help="a folder with all that is in it"
            )
        _add_client_options(action)
        action.set_defaults(command="files", parser=action)


def _add_kernels(commands: Any) -> None:
    kernels = commands.add_parser(
        "kernels", help="list kernels", description="List the kernels that you may see."
    )
    text = "show what the last cells of a kernel were and said, also where no client was connected"
    cells = commands.add_parser("cells", help=text, description=f"{text[0].upper()}{text[1:]}.")
    cells.add_argument("kernel", metavar="KERNEL", help="id of the kernel")
    cells.add_argument("--last", metavar="N", type=_positive, default=10, help="how many (10)")
    for name, parser in (("kernels", kernels), ("cells", cells)):
        parser.add_argument("--json", action="store_true", help="print JSON")
        _add_client_options(parser)
        parser.set_defaults(command=name, parser=parser)


def _add_probe(commands: Any) -> None:
    text = "show what isolates a cell here, measured by attacking from one"
    parser = commands.add_parser(
        "probe",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Exit code 1 if anything got in.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--kernel-name", metavar="NAME", help="kernelspec (the default one)")
    _add_client_options(parser)
    parser.set_defaults(command="probe", parser=parser)


def _add_gc(commands: Any) -> None:
    text = "delete what no session needs any more"
    parser = commands.add_parser(
        "gc",
        help=text,
        description=f"{text[0].upper()}{text[1:]}: commits past their retention, and chunks of "
        "variables that no commit names. A gateway does so by itself every few hours.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would be deleted")
    _add_client_options(parser)
    parser.set_defaults(command="gc", parser=parser)


def _add_connectors(commands: Any) -> None:
    parser = commands.add_parser(
        "connectors",
        help="keep the secrets that an agent's cells get",
        description="Keep the secrets that an agent's cells get as CONN_<connector>_<KEY>. For the "
        "local service of this machine only.",
    )
    actions = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="action", required=True, parser_class=_Parser
    )
    shapes: dict[str, tuple[str, tuple[tuple[str, str | None], ...]]] = {
        "set": (
            "store values: of each KEY as asked for, or KEY=value lines from standard input",
            (("agent", None), ("connector", None), ("keys", "*")),
        ),
        "list": ("list connectors and their keys, never a value", (("agent", "?"),)),
        "delete": (
            "delete a connector, or some of its keys",
            (("agent", None), ("connector", None), ("keys", "*")),
        ),
    }
    for name, (text, places) in shapes.items():
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for place, count in places:
            default = [] if count == "*" else ""
            metavar = "KEY" if count == "*" else place.upper()
            action.add_argument(place, metavar=metavar, nargs=count, default=default)
        for option, metavar, what in (
            ("--gateway-url", "URL", "not here: connectors of a gateway elsewhere are its own"),
            ("--state-dir", "DIR", "state directory of the gateway"),
            ("--config", "FILE", "configuration that names it"),
        ):
            missing = None if option == "--gateway-url" else argparse.SUPPRESS
            action.add_argument(option, metavar=metavar, help=what, default=missing)
        action.set_defaults(command="connectors")


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number


def _level(text: str) -> str:
    if text.upper() not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(LEVELS)}")
    return text.upper()


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number greater than 0")
    return number


def _seconds(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return number
