"""``POST /api/replays``: for the owner and admins, as events or a report, also of a sent trail."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from kernel_gateway.audit.chain import digest_of
from kernel_gateway.audit.envelopes import PAYLOAD_TYPE
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.verifying import TAMPERED, verify
from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.replay.rules import Rules
from kernel_gateway.settings_command_line import parse
from kernel_gateway.web.replay_command import (
    Replayed,
    ReplayEnded,
    replay,
    shown,
    verified,
    write_report,
)
from kernel_gateway.web.trail_command import shown as verification_shown
from kernel_gateway.web.trail_command import trail_in
from lambda_kernel.contract import keys
from tests.functional.web.server import STACK, Answer, WebGateway
from tests.functional.web.test_web_cells import ran

OTHER = "11111111-1111-1111-1111-111111111111"


def events_of(answer: Answer) -> list[tuple[str, Any]]:
    found = []
    for block in answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def replayed(gateway: WebGateway, token: str = "u1", **body: Any) -> Answer:
    return await gateway.rest("POST", "/api/replays", token=token, body=body)


async def payloads_of(gateway: WebGateway, kernel_id: str, **changes: Any) -> list[str]:
    """Return what the entries of a trail sign, said to be of another kernel.

    Args:
        gateway: which has the trail.
        kernel_id: whose it is.
        changes: of what its cells say of their session, and of where their variables are from.
    """
    parent = {key: changes.pop(key) for key in ("parent_kernel_id",) if key in changes}
    trail = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).json
    previous, payloads = "", []
    for cell in trail["cells"]:
        for found in cell["metadata"]["lambda_kernel"]["audit"]["entries"]:
            data = json.loads(base64.b64decode(found["payload"]))
            data |= {"kernel_id": OTHER, "previous": previous}
            if data["type"] == "cell_started":
                data["event"]["gateway"]["session"] |= changes
                data["event"] |= parent
            if data["type"] == "cell_finished":
                data["event"]["handler"]["workspace"] = {"count": 0, "files": []}
            payload = json.dumps(data).encode()
            previous = digest_of(payload)
            payloads.append(base64.b64encode(payload).decode())
    return payloads


@pytest.mark.parametrize(
    ("token", "status"), [("u1", 200), ("root", 200), ("u1-a1", 404), ("u10", 404), ("no", 403)]
)
@pytest.mark.parametrize("has_ended", [False, True])
async def test_only_the_owner_and_admins_replay(
    gateway: WebGateway, token: str, status: int, has_ended: bool
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    if has_ended:
        await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")

    answer = await replayed(gateway, token, kernel_id=kernel_id)

    assert answer.status == status
    if status == 200:
        user = token.partition("-")[0]
        assert answer.json["prefix"] == f"users/{user}/.replays/{answer.json['replay_id']}/"
        assert [cell["standing"] for cell in answer.json["cells"]] == ["identical"]
    else:
        assert b"one" not in answer.body


async def test_the_report_has_the_documented_form(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "one")
    document = yaml.safe_load((await gateway.rest("GET", "/api/spec.yaml", token=None)).body)

    answer = await replayed(gateway, kernel_id=kernel_id, mode="pinned")

    schema = {"$ref": "#/components/schemas/ReplayReport", "components": document["components"]}
    jsonschema.validate(answer.json, schema, cls=jsonschema.Draft202012Validator)


async def test_each_cell_is_an_event(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "one")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "two"})

    answer = await gateway.rest(
        "POST",
        "/api/replays",
        body={"kernel_id": kernel_id},
        headers={"Accept": "text/event-stream"},
    )

    events = events_of(answer)
    assert [name for name, _ in events] == ["replay", "begun", "cell", "begun", "cell", "end"]
    cell = events[4][1]
    assert cell["replayed"]["outputs"] == cell["recorded"]["outputs"] != []
    assert len(events[-1][1]["kernels"]) == 1


async def test_a_replay_ends_with_its_request_and_nobody_takes_part_in_it(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    gateway.function.release.set()
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "hold"})
    gateway.function.release.clear()
    parts = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps({"kernel_id": kernel_id}).encode()
    head = (
        f"POST /api/replays HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: token u1\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await reader.readuntil(b'"source": "hold"')
    assert len(gateway.registry.all()) == 2
    (replaying,) = [k.kernel_id for k in gateway.registry.all() if k.kernel_id != kernel_id]
    for step in ("execute", "restart", "interrupt"):
        path = f"/api/kernels/{replaying}/{step}"
        answer = await gateway.rest("POST", path, body={"code": "theirs"})
        assert (answer.status, "of its trail" in answer.json["message"]) == (403, True)

    writer.close()

    async with asyncio.timeout(20):
        while len((await gateway.rest("GET", "/api/kernels")).json) == 2:
            continue
    assert [kernel.kernel_id for kernel in gateway.registry.all()] == [kernel_id]


async def test_connectors_are_for_the_user_whose_agent_was_recorded(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "one")
    assert (await replayed(gateway, "root", kernel_id=kernel_id, connectors=True)).status == 403
    assert (await replayed(gateway, "u1", kernel_id=kernel_id, connectors=True)).status == 200


async def test_a_sent_trail_gets_no_connectors_of_whatever_agent_it_names(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    for agent in (None, "a1", "an-agent-of-u10"):
        owner = {"user": "u1", "agent": agent}
        trail = await payloads_of(gateway, kernel_id, owner=owner)
        answer = await replayed(gateway, kernel_id=OTHER, trail=trail, connectors=True)
        assert answer.status == 403
        assert "agent" in answer.json["message"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"entries": 2, "head": "0" * 64}, 409, "tampered"),
        ({"entries": 700, "head": "0" * 64}, 409, "not 700"),
        ({"entries": 1}, 400, "body.head"),
        ({"mode": "random"}, 400, "body.mode"),
        ({"network": "all"}, 400, "body.network"),
        ({"only": [2]}, 400, "--only 2"),
        ({"only": [1], "begin": 1}, 400, "--from"),
        ({"surprise": 1}, 400, "surprise"),
        ({"kernel_id": "../../x"}, 400, "kernel_id"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_runs(
    gateway: WebGateway, body: dict[str, Any], status: int, text: str
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    answer = await replayed(gateway, **{"kernel_id": kernel_id, **body})
    assert (answer.status, text in answer.body.decode()) == (status, True), answer.body
    assert len(gateway.registry.all()) == 1


async def test_a_trail_of_another_deployment_is_replayed_as_far_as_it_goes(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    payloads = await payloads_of(gateway, kernel_id)

    unknown = await replayed(gateway, kernel_id=OTHER)
    brought = await replayed(gateway, "u10", kernel_id=OTHER, trail=payloads)

    assert unknown.status == 404
    assert [cell["standing"] for cell in brought.json["cells"]] == ["identical"]
    assert "no journal" in brought.json["notes"][0]
    assert brought.json["prefix"].startswith("users/u10/.replays/")


def options_of(*arguments: str) -> argparse.Namespace:
    return parse(["replay", *arguments])[0]


def ended_of(endpoint: Endpoint, file: Path, *arguments: str) -> Replayed:
    """Return what the command gives for a file that no key of the auditor's has signed."""
    report = verified(file, trail_in(file), {})
    options = options_of(str(file), *arguments)
    return replay(endpoint, options, report, file, Rules.load())


async def a_file_of(gateway: WebGateway, kernel_id: str, folder: Path) -> Path:
    """Write the trail of a kernel, said to be of another one, with nothing signed."""
    trail = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).json
    payloads = await payloads_of(gateway, kernel_id)
    envelopes = [
        {"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": []} for payload in payloads
    ]
    head = digest_of(base64.b64decode(payloads[-1]))
    trail["metadata"]["lambda_kernel"]["trail"] |= {"kernel_id": OTHER, "head": head}
    for cell in trail["cells"]:
        audit = cell["metadata"]["lambda_kernel"]["audit"]
        audit["entries"] = [envelopes.pop(0) for _ in audit["entries"]]
    file = folder / "sent.ipynb"
    file.write_text(json.dumps(trail))
    return file


async def test_what_nobody_has_signed_is_run_only_if_that_is_asked_for_and_then_says_so(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    file = await a_file_of(gateway, kernel_id, tmp_path)
    endpoint, count = gateway.endpoint("u1"), len(gateway.function.store.objects)

    with pytest.raises(ReplayEnded, match=r"nothing was run: nobody has signed.*--unsigned") as no:
        await asyncio.to_thread(ended_of, endpoint, file)
    assert no.value.exit_code == TAMPERED
    assert len(gateway.function.store.objects) == count

    found = await asyncio.to_thread(ended_of, endpoint, file, "--unsigned")
    warning = found.model["notes"][0]
    assert warning.startswith("WARNING: nobody has signed this trail")
    assert warning in shown(found)
    report = verified(file, trail_in(file), {})
    write_report(tmp_path / "report", found, Rules.load(), report)
    assert "WARNING: nobody has signed" in (tmp_path / "report" / "report.html").read_text()
    written = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (written["trail"]["keys"], written["notes"][0]) == ([], warning)


async def test_an_unsigned_trail_that_is_in_the_journal_is_replayed_and_says_what_vouches(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    file = tmp_path / "own.ipynb"
    file.write_bytes((await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).body)

    found = await asyncio.to_thread(ended_of, gateway.endpoint("u1"), file)

    assert "only the gateway's own journal" in found.model["notes"][0]
    assert found.standings == ["identical"]


async def test_an_unsigned_trail_that_names_its_caller_as_owner_reads_nothing_of_the_callers(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "two"})
    # The attack: a file whose second cell begins with the variables of the victim's kernel.
    payloads = await payloads_of(gateway, kernel_id, parent_kernel_id=kernel_id)

    body: dict[str, Any] = {"kernel_id": OTHER, "trail": payloads, "only": [2]}
    unsigned = await replayed(gateway, "u1", **body)
    signed = await replayed(gateway, "u1", **body, verified=True)

    (cell,) = unsigned.json["cells"]
    assert cell["standing"] == "unavailable"
    assert "not kept for you" in cell["reasons"][0]["detail"]
    # As its owner's own, which somebody the owner trusts has signed, it is theirs to open.
    assert [cell["standing"] for cell in signed.json["cells"]] == ["identical"]


async def test_what_a_trail_says_it_is_derived_from_is_held_against_the_journal(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    head = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/head")).json
    true = {"kernel_id": kernel_id, "number": head["number"], "digest": head["digest"]}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("u1", true, "that kernel's journal has this entry"),
        ("u1", true | {"digest": "0" * 64}, "FALSE"),
        ("u1", true | {"number": 700}, "FALSE"),
        ("u1", true | {"number": -1}, "FALSE"),
        ("u1", true | {"kernel_id": "../../x"}, "not proven"),
        # Whether another's journal has it is none of this caller's business.
        ("u10", true, "not proven"),
    ]
    for token, derived_from, said in cases:
        trail = await payloads_of(gateway, kernel_id, derived_from=derived_from)
        answer = await replayed(gateway, token, kernel_id=OTHER, trail=trail)
        assert said in answer.json["notes"][-1], answer.body


async def test_a_replay_records_whether_the_gateway_had_the_journal(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "one")
    trail = await payloads_of(gateway, kernel_id)
    of_journal = await replayed(gateway, kernel_id=kernel_id)
    of_sent = await replayed(gateway, kernel_id=OTHER, trail=trail)
    for answer, is_proven, text in (
        (of_journal, True, "in its journal"),
        (of_sent, False, "not proven"),
    ):
        (made,) = answer.json["kernels"]
        found = await gateway.rest("GET", f"/api/kernels/{made}/trail.ipynb")
        report = verify(read_trail(found.body), {})
        assert report.derived_from is not None
        assert report.derived_from.is_proven is is_proven
        assert text in verification_shown(report)


async def test_a_trail_that_is_sent_opens_no_journal_and_no_state_of_others(
    gateway: WebGateway,
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "two"})
    payloads = await payloads_of(gateway, kernel_id)

    as_it_is = await replayed(gateway, "u10", kernel_id=kernel_id, trail=payloads)
    pinned = await replayed(gateway, "u10", kernel_id=OTHER, trail=payloads, only=[2])

    assert as_it_is.status == 404
    assert [cell["standing"] for cell in pinned.json["cells"]] == ["unavailable"]
    assert not any(
        key.startswith(keys.user_prefix("u10"))
        for bucket, key in gateway.function.store.objects
        if bucket == STACK.state
    )


@pytest.mark.parametrize(
    "session",
    [{"workspace": "../../u1/w"}, {"owner": {"user": "../u1", "agent": None}}],
)
async def test_names_in_a_sent_trail_that_lead_elsewhere_are_refused(
    gateway: WebGateway, session: dict[str, Any]
) -> None:
    kernel_id, _ = await ran(gateway, "one")
    payloads = await payloads_of(gateway, kernel_id, **session)
    answer = await replayed(gateway, "u10", kernel_id=OTHER, trail=payloads)
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("payload", ["!", "e30=", base64.b64encode(b"[" * 100_000).decode()])
async def test_what_is_no_entry_is_refused(gateway: WebGateway, payload: str) -> None:
    answer = await replayed(gateway, kernel_id=OTHER, trail=[payload])
    assert answer.status == 400
    assert "entry 1" in answer.body.decode()
