"""The command ``kernel-gateway``: a gateway, or one of what can be done with one.

Nothing heavy is imported before it is known what to do, so that ``--help`` and errors are quick.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kernel_gateway.announcement import announcement
from kernel_gateway.errors import BadRequest, ConfigError, GatewayError
from kernel_gateway.settings_command_line import BAD_INPUT, PROGRAM, parse
from kernel_gateway.settings_logging import set_up_logging
from kernel_gateway.terminal import harmless

if TYPE_CHECKING:
    from kernel_gateway.app import Gateway
    from kernel_gateway.client.endpoint import Endpoint
    from kernel_gateway.settings import Settings

FAILED = 1
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a failure, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_foreign_package()
        options, extra = parse(arguments)
        return int(asyncio.run(_COMMANDS[options.command](options, extra)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What reads our output is gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except GatewayError as problem:
        _say(str(problem))
        return BAD_INPUT if isinstance(problem, ConfigError | BadRequest) else FAILED


async def _gateway(options: argparse.Namespace, extra: list[str]) -> int:
    settings = _settings(options, extra)
    set_up_logging(settings.log_level)
    from kernel_gateway.app import serve

    def announce(gateway: Gateway) -> None:
        print(announcement(gateway.url, gateway.token), flush=True)  # noqa: T201

    return await serve(settings, announce, unused_s=options.end_when_unused)


async def _run(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.web.notebook_file import (
        check_writable,
        foreign_language,
        read_notebook,
        write_notebook,
    )
    from kernel_gateway.web.progress import CellProgress

    output: Path = options.output or options.notebook
    notebook = read_notebook(options.notebook)
    language = foreign_language(notebook)
    if language and not options.kernel_name:
        raise ConfigError(
            f"{options.notebook}: is in {language}, and kernels here are Python; --kernel-name "
            "lambda-python runs it nevertheless"
        )
    check_writable(output)
    progress = CellProgress()
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.kernels.options import FROM, WORKSPACE
        from kernel_gateway.web.notebook_run import run_notebook

        try:
            failure = await run_notebook(
                endpoint,
                notebook,
                kernel_name=options.kernel_name,
                timeout_s=options.timeout,
                env={WORKSPACE: options.workspace, FROM: options.source},
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
    from kernel_gateway.web.file_commands import prepared
    from kernel_gateway.web.file_transfer import WorkspaceClient
    from kernel_gateway.web.rest_client import RestClient

    act = prepared(options.action, options)
    async with _some_gateway(options) as endpoint:
        client = WorkspaceClient(RestClient(endpoint), options.workspace)
        await asyncio.to_thread(act, client)
    return 0


async def _probe(options: argparse.Namespace, extra: list[str]) -> int:
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.web.probe_command import is_isolated, measured_probe, shown

        probe = await measured_probe(endpoint, options.kernel_name)
    print(shown(probe, as_json=options.json))  # noqa: T201
    return 0 if is_isolated(probe) else FAILED


async def _kernels(options: argparse.Namespace, extra: list[str]) -> int:
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.web.cells_command import kernels

        print(await asyncio.to_thread(kernels, endpoint, as_json=options.json))  # noqa: T201
    return 0


async def _cells(options: argparse.Namespace, extra: list[str]) -> int:
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.web.cells_command import cells

        text = await asyncio.to_thread(
            cells, endpoint, options.kernel, last_count=options.last, as_json=options.json
        )
        print(text)  # noqa: T201
    return 0


async def _gc(options: argparse.Namespace, extra: list[str]) -> int:
    async with _some_gateway(options) as endpoint:
        from kernel_gateway.web.garbage_command import collect

        print(await asyncio.to_thread(collect, endpoint, dry_run=options.dry_run))  # noqa: T201
    return 0


async def _trail(options: argparse.Namespace, extra: list[str]) -> int:
    if options.action in {"list", "reindex"}:
        return await _trails(options)
    from kernel_gateway.web import trail_command as trails

    if options.action == "export":
        export = trails.prepared_export(options)
        async with _some_gateway(options) as endpoint:
            print(await asyncio.to_thread(export, endpoint))  # noqa: T201
        return 0
    if options.action == "remove-content":
        async with _some_gateway(options) as endpoint:
            text = await asyncio.to_thread(
                trails.remove_content,
                endpoint,
                options.kernel,
                execution_count=options.cell,
                reason=options.reason,
            )
        print(text)  # noqa: T201
        return 0
    file = Path(options.trail)
    trail = await asyncio.to_thread(trails.trail_in, file) if trails.is_file(file) else None
    keys = trails.trusted_keys(options.keys, lambda: _settings(options, []).state_dir)
    with TemporaryDirectory() as folder:
        if trail is not None and not options.journal:
            report = await asyncio.to_thread(trails.verified_file, file, trail, keys)
        else:
            async with _some_gateway(options) as endpoint:
                is_file = trail is not None
                if trail is None:
                    file = Path(folder) / "trail.ipynb"
                    await asyncio.to_thread(
                        trails.export, endpoint, options.trail, file, with_blobs=False
                    )
                    trail = await asyncio.to_thread(trails.trail_in, file)
                report = await asyncio.to_thread(trails.verified_file, file, trail, keys)
                kernel_id = report.kernel_id if is_file else options.trail
                await asyncio.to_thread(trails.against_journal, endpoint, report, kernel_id)
    print(trails.as_json(report) if options.json else trails.shown(report))  # noqa: T201
    return report.exit_code


async def _replay(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.replay.rules import Rules
    from kernel_gateway.web import replay_command as replays
    from kernel_gateway.web import trail_command as trails

    rules = Rules.load(options.rules)
    if options.report is not None:
        replays.check_report(options.report)
    file = Path(options.trail)
    trail = await asyncio.to_thread(trails.trail_in, file) if trails.is_file(file) else None
    keys = trails.trusted_keys(options.keys, lambda: _settings(options, []).state_dir)
    with TemporaryDirectory() as folder:
        try:
            report = None
            if trail is not None:
                report = await asyncio.to_thread(replays.verified, file, trail, keys)
            async with _some_gateway(options) as endpoint:
                if report is None:
                    file = Path(folder) / "trail.ipynb"
                    await asyncio.to_thread(
                        trails.export, endpoint, options.trail, file, with_blobs=False
                    )
                    trail = await asyncio.to_thread(trails.trail_in, file)
                    report = await asyncio.to_thread(replays.verified, file, trail, keys)
                found = await asyncio.to_thread(
                    replays.replay, endpoint, options, report, file, rules
                )
        except replays.ReplayEnded as ended:
            _say(str(ended))
            return ended.exit_code
        except GatewayError as problem:
            if isinstance(problem, ConfigError | BadRequest):
                raise
            _say(str(problem))
            return replays.COULD_NOT_RUN
    # First of all: a full disk must not lose what came of it.
    print(replays.as_json(found) if options.json else replays.shown(found))  # noqa: T201
    if options.report is not None:
        try:
            replays.write_report(options.report, found, rules, report)
        except ConfigError as problem:
            _say(f"there is no report: {problem}")
            return replays.COULD_NOT_RUN
    return replays.exit_code(found.standings, options.fail_on)


async def _trails(options: argparse.Namespace) -> int:
    from kernel_gateway.audit.trail_query import TrailQuery
    from kernel_gateway.settings_trail_options import gateway_named, given_filters
    from kernel_gateway.web import trails_command as trails

    given = given_filters(options) if options.action == "list" else {}
    # What is wrong is said before any gateway is started.
    TrailQuery.of_text(given)
    async with _some_gateway(options) as endpoint:
        if options.action == "list":
            text = await asyncio.to_thread(
                trails.find, endpoint, given, as_json=options.json, where=gateway_named(options)
            )
        else:
            text = await asyncio.to_thread(trails.reindex, endpoint)
    print(text)  # noqa: T201
    return 0


async def _keys(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.web.trail_command import keys_text

    state_dir = _settings(options, []).state_dir
    print(keys_text(state_dir, rotate=options.action == "rotate"))  # noqa: T201
    return 0


async def _install(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.kernel_process.kernelspec import Installation

    installation = Installation.of_options(options)
    print(f"installed {installation.name} in {installation.install()}")  # noqa: T201
    return 0


async def _connectors(options: argparse.Namespace, extra: list[str]) -> int:
    from kernel_gateway.local.connector_commands import ELSEWHERE, ValueSource, run_action
    from kernel_gateway.local.secrets_store import SecretStore

    settings = _settings(options, [])
    if options.gateway_url is not None:
        secret = settings.stack.connector_secret("AGENT")
        raise BadRequest(ELSEWHERE.format(secret=secret))
    store = SecretStore(settings.state_dir)
    run_action(store, settings.stack, options.action, options, ValueSource.of_process())
    return 0


@asynccontextmanager
async def _some_gateway(options: argparse.Namespace) -> AsyncIterator[Endpoint]:
    """Yield the gateway that was named, else the one that runs, else one of our own."""
    from kernel_gateway.client.endpoint import Endpoint
    from kernel_gateway.lifelines import Lifelines
    from kernel_gateway.run_file import RUN_FOLDER, started_gateway
    from kernel_gateway.settings import environment_token

    token = options.token or environment_token(os.environ)
    if options.gateway_url:
        yield Endpoint(url=options.gateway_url, token=token)
        return
    settings = _settings(options, [])
    with await Lifelines(settings.state_dir / RUN_FOLDER).use():
        found = await started_gateway(settings.state_dir)
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


def _settings(options: argparse.Namespace, extra: list[str]) -> Settings:
    from traitlets.config import Config
    from traitlets.config.loader import KVArgParseConfigLoader

    from kernel_gateway.settings import KernelGateway

    config = KVArgParseConfigLoader(extra, log=logging.getLogger(__name__)).load_config()
    if options.command != "gateway":
        # A gateway for one command only: any port, any token, no more talk than needed.
        alone = {"ip": None, "port": 0, "token": None, "log_level": "WARNING"}
        options = argparse.Namespace(**{**vars(options), **alone})
    given = {
        "ServerApp": {"ip": options.ip, "port": options.port},
        "KernelGateway": {
            "token": options.token,
            "identities_file": options.identities,
            "state_dir": options.state_dir,
            "replica_url": options.replica_url,
            "deployment_file": options.deployment,
            "log_level": getattr(logging, options.log_level) if options.log_level else None,
        },
    }
    for section, values in given.items():
        config.merge(Config({section: {k: v for k, v in values.items() if v is not None}}))
    return KernelGateway().load(config, options.config)


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


def _say(text: str) -> None:
    # Much of what is said quotes names of a trail, or of a gateway that is not ours.
    print(f"{PROGRAM}: {harmless(text)}", file=sys.stderr)  # noqa: T201


_COMMANDS = {
    "gateway": _gateway,
    "run": _run,
    "files": _files,
    "connectors": _connectors,
    "install": _install,
    "probe": _probe,
    "kernels": _kernels,
    "cells": _cells,
    "gc": _gc,
    "trail": _trail,
    "keys": _keys,
    "replay": _replay,
}
