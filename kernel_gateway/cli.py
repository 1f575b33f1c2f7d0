"""The command ``kernel-gateway``: a gateway, a notebook run, files in and out.

Nothing heavy is imported before it is known what to do, so that ``--help`` and errors are quick.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_gateway.errors import BadRequest, ConfigError, GatewayError
from kernel_gateway.settings_logging import set_up_logging

if TYPE_CHECKING:
    from kernel_gateway.app import Gateway
    from kernel_gateway.settings import Settings
    from kernel_gateway.web.rest_client import Endpoint

PROGRAM = "kernel-gateway"
COMMANDS = ("run", "files")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

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
    ("--log-level", "LEVEL", f"one of {', '.join(LEVELS)} (INFO)"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a failure, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_foreign_package()
        options, extra = _parse(arguments)
        return int(asyncio.run(options.command(options, extra)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What reads our output is gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except GatewayError as problem:
        _say(str(problem))
        return BAD_INPUT if isinstance(problem, ConfigError | BadRequest) else FAILED


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = _parser()
    # argparse would take the value of an option that it does not know for a command.
    known = {name for name, _, _ in OPTIONS} | {"-h", "--help"}
    for text in itertools.takewhile(lambda text: text not in COMMANDS, arguments):
        name, equals, _ = text.partition("=")
        if text.startswith("-") and name not in known and not (equals and "." in name):
            hint = f"; write {name}=VALUE" if "." in name else ""
            parser.error(f"unrecognized argument: {text}{hint}")
    options, extra = parser.parse_known_args(arguments)
    if extra and (options.subcommand or not all(text.startswith("--") for text in extra)):
        parser.error(f"unrecognized argument: {extra[0]}")
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
    parser.set_defaults(command=_gateway, subcommand=None)
    commands = parser.add_subparsers(
        title="other commands", metavar="COMMAND", dest="subcommand", parser_class=_Parser
    )
    _add_run(commands)
    _add_files(commands)
    return parser


def _add_gateway_options(parser: argparse.ArgumentParser) -> None:
    for name, metavar, text in OPTIONS:
        kind: Any = {"--port": _port, "--log-level": str.upper}.get(name, str)
        choices = LEVELS if name == "--log-level" else None
        parser.add_argument(name, metavar=metavar, help=text, type=kind, choices=choices)


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
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="seconds for one cell")
    _add_client_options(parser)
    parser.set_defaults(command=_run)


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
        _add_client_options(action)
        action.set_defaults(command=_files)


async def _gateway(options: argparse.Namespace, extra: list[str]) -> int:
    settings = _settings(options, extra)
    set_up_logging(settings.log_level)
    from kernel_gateway.app import serve

    return await serve(settings, _announce)


async def _run(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.web.progress import CellProgress

    output = _notebook_output(options)
    progress = CellProgress()
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.web.notebook_run import read_notebook, run_notebook, write_notebook

        notebook = read_notebook(options.notebook)
        try:
            failure = await run_notebook(
                endpoint,
                notebook,
                kernel_name=options.kernel_name,
                timeout_s=options.timeout,
                env={"LAMBDA_KERNEL_WORKSPACE": options.workspace},
                report=progress.begin,
            )
        finally:
            progress.end()
            write_notebook(notebook, output)
    if failure is None:
        return 0
    _say(f"{options.notebook}: code cell {failure.cell_number} failed; see {output}")
    print(failure.text, file=sys.stderr)  # noqa: T201
    return FAILED


async def _files(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.web.file_commands import run_action
    from kernel_gateway.web.file_transfer import WorkspaceClient
    from kernel_gateway.web.rest_client import RestClient

    if options.action == "put":
        _check_exists(options.local)
    async with _some_gateway(options) as endpoint:
        client = WorkspaceClient(RestClient(endpoint), options.workspace)
        await asyncio.to_thread(run_action, client, options.action, options)
    return 0


@asynccontextmanager
async def _some_gateway(options: argparse.Namespace) -> AsyncIterator[Endpoint]:
    """Yield the gateway that was named, else the one that runs, else one of our own."""
    from kernel_gateway.settings import environment_token
    from kernel_gateway.web.rest_client import Endpoint
    from kernel_gateway.web.run_file import running_gateway

    token = options.token or environment_token(os.environ)
    if options.gateway_url:
        yield Endpoint(url=options.gateway_url, token=token)
        return
    settings = _settings(options, [])
    found = running_gateway(settings.state_dir)
    if found is not None:
        token = options.token or found.token or token
        if token is None:
            raise ConfigError("--token: the gateway that runs has identities; give one's token")
        yield Endpoint(url=found.url, token=token)
        return
    set_up_logging("WARNING")
    _say(f"no gateway runs on {settings.state_dir}: starting one for this command")
    from kernel_gateway.app import running

    async with running(settings) as gateway:
        yield Endpoint(url=gateway.url, token=gateway.token or token)


def _notebook_output(options: argparse.Namespace) -> Path:
    source: Path = options.notebook
    output: Path = options.output or source
    _check_exists(str(source))
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    return output


def _check_exists(path: str) -> None:
    if not Path(path).exists():
        raise ConfigError(f"{path}: there is no such file or folder")


def _settings(options: argparse.Namespace, extra: list[str]) -> Settings:
    from traitlets.config import Config
    from traitlets.config.loader import KVArgParseConfigLoader

    from kernel_gateway.settings import KernelGateway

    config = KVArgParseConfigLoader(extra, log=logging.getLogger(__name__)).load_config()
    if options.subcommand:
        # A gateway for one command only: any port, any token, no more talk than needed.
        alone = {"ip": None, "port": 0, "token": None, "log_level": "WARNING"}
        options = argparse.Namespace(**{**vars(options), **alone})
    given = {
        "ServerApp": {"ip": options.ip, "port": options.port},
        "KernelGateway": {
            "token": options.token,
            "identities_file": options.identities,
            "state_dir": options.state_dir,
            "log_level": getattr(logging, options.log_level) if options.log_level else None,
        },
    }
    for section, values in given.items():
        config.merge(Config({section: {k: v for k, v in values.items() if v is not None}}))
    return KernelGateway().load(config, options.config)


def _announce(gateway: Gateway) -> None:
    """Print what a user needs: URL and token, and how to use them."""
    token = gateway.token or "TOKEN"
    address = gateway.url.rstrip("/")
    shown = f"{gateway.url}?token={gateway.token}" if gateway.token else gateway.url
    lines = (
        f"kernel-gateway is ready: {shown}",
        f"  JupyterLab: jupyter lab --gateway-url={address} --GatewayClient.auth_token={token}",
        '  Python:     python -c "from kernel_gateway.web.notebook_run import execute; '
        f"print(execute('6 * 7', url='{address}', token='{token}'))\"",
        "  Notebook:   kernel-gateway run notebooks/quickstart.ipynb --output executed.ipynb",
    )
    print("\n".join(lines), flush=True)  # noqa: T201


def _refuse_foreign_package() -> None:
    """Refuse where PyPI's jupyter-kernel-gateway stands in the same package.

    Raises:
        ConfigError: it does; both import as ``kernel_gateway``.
    """
    if importlib.util.find_spec("kernel_gateway.gatewayapp") is not None:
        raise ConfigError(
            "the package jupyter-kernel-gateway is installed here and has the same import name, "
            "kernel_gateway; uninstall one of the two, or use an environment of its own for each"
        )


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number


def _seconds(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return number


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr)  # noqa: T201
