"""Trails made to harm the gateway, or the disk, of who replays or exports them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.audit.chain import digest_of
from kernel_gateway.audit.verifying import OK, TAMPERED, UNPROVEN
from kernel_gateway.errors import ConfigError
from kernel_gateway.replay.rules import Rules
from kernel_gateway.web import replay_command
from kernel_gateway.web.trail_command import export, trail_in
from tests.full_disk import full_disk
from tests.functional.web.server import WebGateway
from tests.functional.web.test_web_cells import ran
from tests.functional.web.test_web_replays import OTHER, replayed

LIMIT_BYTES = 256 * 1024
Change = Callable[[dict[str, Any]], object]


async def trail_of(gateway: WebGateway, kernel_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (
        await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")
    ).json
    return found


def retold(trail: dict[str, Any], change: Change) -> list[str]:
    """Make of a trail another kernel's, unsigned and with its starts changed; return payloads."""
    previous, payloads = "", []
    for cell in trail["cells"]:
        for found in cell["metadata"]["lambda_kernel"]["audit"]["entries"]:
            data = json.loads(base64.b64decode(found["payload"]))
            data |= {"kernel_id": OTHER, "previous": previous}
            if data["type"] == "cell_started":
                change(data["event"])
            payload = json.dumps(data).encode()
            previous = digest_of(payload)
            found |= {"payload": base64.b64encode(payload).decode(), "signatures": []}
            payloads.append(found["payload"])
    trail["metadata"]["lambda_kernel"]["trail"] |= {"kernel_id": OTHER, "head": previous}
    return payloads


def in_session(**values: Any) -> Change:
    return lambda event: event["gateway"]["session"].update(values)


STARTS: dict[str, Change] = {
    "a count that is too large": lambda event: event.update(execution_count=2**70),
    "a count below 0": lambda event: event.update(execution_count=-(2**70)),
    "a time without end": lambda event: event.update(timeout_s=1e300),
    "code that is none": lambda event: event["content"].update(code={"a": 1}),
    "no code": lambda event: event["content"].pop("code"),
    "code with a lone surrogate": lambda event: event["content"].update(code="one\ud800"),
    "code with NUL": lambda event: event["content"].update(code="one\0"),
    "expressions that are none": lambda event: event["content"].update(user_expressions=[1]),
    "a flag that is none": lambda event: event["content"].update(silent="yes"),
    "NaN": lambda event: event["metadata"].update(x=float("nan")),
    "tags that are none": lambda event: event["metadata"].update(tags={"parameters": 1}),
    "a parent that never was": lambda event: event.update(parent={"seq": 9, "digest": "0" * 64}),
    "a parent that leads elsewhere": lambda event: event.update(
        parent={"seq": 2**70, "digest": "../x"}, parent_kernel_id="../../x"
    ),
    "an environment that leads elsewhere": in_session(spec_name="../../lambda-python"),
    "a workspace with NUL": in_session(workspace="a\0b"),
    "a long workspace": in_session(workspace="a" * 100_000),
    "projects that lead elsewhere": in_session(projects=["../u1"]),
    "a prefix of others": in_session(prefix="users/u1/"),
    "a run that leads elsewhere": in_session(run="../../u1"),
    "a folder that leads elsewhere": in_session(workdir_name="../../etc"),
    "an owner that is nobody": in_session(owner={"user": "", "agent": None}),
    "derived from itself": in_session(
        derived_from={"kernel_id": OTHER, "number": 1, "digest": "0" * 64}
    ),
    "seeds that are too large": lambda event: event["gateway"].update(seeds={"random": 2**4000}),
    "seeds of what is none": lambda event: event["gateway"].update(seeds={"../x": -1}),
    "the same cell again and again": lambda event: event.update(request_id="r"),
}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("how", [{}, {"mode": "pinned"}], ids=["sequential", "pinned"])
async def test_a_sent_trail_is_replayed_in_its_own_folder_or_refused_with_a_reason(
    gateway: WebGateway, name: str, how: dict[str, Any]
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "two"})
    payloads = retold(await trail_of(gateway, kernel_id), STARTS[name])
    before = set(gateway.function.store.objects)

    answer = await replayed(gateway, "u10", kernel_id=OTHER, trail=payloads, **how)

    assert answer.status in {200, 400, 404, 409}, answer.body
    if answer.status != 200:
        assert len(answer.json["message"]) < 500
    assert [kernel.kernel_id for kernel in gateway.registry.all()] == [kernel_id]
    made = {key for _, key in set(gateway.function.store.objects) - before}
    assert not any("u1/" in key and "u10/" not in key for key in made)
    assert (await replayed(gateway, kernel_id=kernel_id)).status == 200


async def test_a_full_disk_is_said_to_be_one_and_an_older_trail_stays(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "z" * 200_000)
    path = tmp_path / "trail.ipynb"
    path.write_text("older")

    said = r"trail\.ipynb: cannot be written: File too large"
    with full_disk(LIMIT_BYTES), pytest.raises(ConfigError, match=said):
        await asyncio.to_thread(export, gateway.endpoint(), kernel_id, path, with_blobs=False)

    assert path.read_text() == "older"
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["trail.ipynb"]


OPTIONS = Namespace(
    mode="sequential", begin=None, only=(), parameters=(), network="none", with_connectors=False,
    discard=True, report=None, unsigned=False,
)  # fmt: skip


async def test_what_nobody_has_signed_is_run_only_where_the_journal_says_the_same(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    own, forged = tmp_path / "own.ipynb", tmp_path / "forged.ipynb"
    trail = await trail_of(gateway, kernel_id)
    own.write_text(json.dumps(trail))
    retold(trail, lambda event: None)
    forged.write_text(json.dumps(trail))
    rules = Rules.load()

    def replayed_file(file: Path) -> replay_command.Replayed:
        report = replay_command.verified(file, trail_in(file), {})
        assert report.exit_code == UNPROVEN
        return replay_command.replay(gateway.endpoint(), OPTIONS, report, file, rules)

    found = await asyncio.to_thread(replayed_file, own)
    with pytest.raises(replay_command.ReplayEnded, match="nobody has signed this trail") as refused:
        await asyncio.to_thread(replayed_file, forged)

    assert replay_command.exit_code(found.standings, ()) == OK
    assert refused.value.exit_code == TAMPERED


@pytest.mark.parametrize("place", ["file", "file/report", "link"])
def test_a_place_where_no_report_can_be_is_said_before_anything_runs(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")

    with pytest.raises(ConfigError, match="is no folder"):
        replay_command.check_report(tmp_path / place)
