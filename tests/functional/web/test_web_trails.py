"""A kernel's trail by REST: for its owner and admins, also when the kernel has ended."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.audit.verifying import UNPROVEN
from kernel_gateway.client.endpoint import ApiError, NoSuchThing
from kernel_gateway.errors import BadRequest
from kernel_gateway.settings_command_line import parse
from kernel_gateway.web.trail_command import (
    against_journal,
    export,
    prepared_export,
    shown,
    trail_in,
    verified_file,
)
from lambda_kernel.contract import keys
from tests.functional.web.server import WebGateway
from tests.functional.web.test_web_cells import ran

CALLERS = [("u1", 200), ("root", 200), ("u1-a1", 404), ("u10", 404), ("no", 403)]


def starts(trail: Any) -> list[Any]:
    entries = [
        json.loads(base64.b64decode(entry["payload"]))
        for cell in trail["cells"]
        for entry in cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    ]
    return [entry["event"] for entry in entries if entry["type"] == "cell_started"]


@pytest.mark.parametrize(("token", "status"), CALLERS)
@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize(
    "what", ["trail.ipynb", "trail.intoto.jsonl", "trail/head", "trail/blobs/3"]
)
async def test_only_the_owner_and_admins_see_a_trail(
    gateway: WebGateway, token: str, status: int, has_ended: bool, what: str
) -> None:
    kernel_id, _ = await ran(gateway, "z" * 400_000)
    if has_ended:
        await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")

    answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/{what}", token=token)

    assert answer.status == status
    if what not in {"trail/head", "trail.intoto.jsonl"}:
        assert ("zzzz" in answer.body.decode()) == (status == 200)


@pytest.mark.parametrize("what", ["trail.ipynb", "trail.intoto.jsonl", "trail/head"])
@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
async def test_who_comes_to_an_id_of_anothers_kernel_sees_nothing_of_its_trail(
    gateway: WebGateway, what: str, has_ended: bool, is_first: bool
) -> None:
    theirs, _ = await ran(gateway, "secret of u1")
    mine = await gateway.start_kernel(token="u10")
    path = f"/api/kernels/{mine}"

    async def run_mine() -> None:
        body = {"code": "mine"}
        await gateway.rest("POST", f"{path}/execute", body=body, token="u10")

    if not is_first:
        await run_mine()
        assert (await gateway.rest("GET", f"{path}/{what}", token="u10")).status == 200
    # No door lets that happen; what is stored decides all the same.
    past = (await gateway.registry.services.recorder.opened(theirs).entry(1)).event
    journal = gateway.registry.services.recorder.journal(mine)
    await journal.append(past, epoch=journal.epoch, time="2026-01-01T00:00:00.000000Z")
    if is_first:
        await run_mine()
    if has_ended:
        await gateway.rest("DELETE", path, token="u10")

    answers = {
        token: await gateway.rest("GET", f"{path}/{what}", token=token)
        for token in ("u10", "u1", "root")
    }

    assert answers["u10"].status == (404 if has_ended else 403)
    assert answers["u1"].status == 404
    assert answers["root"].status == 200
    assert not [t for t in ("u1", "u10") if b"secret of u1" in answers[t].body]


@pytest.mark.parametrize("what", ["trail.ipynb", "trail.intoto.jsonl", "trail/head"])
async def test_an_index_that_lies_about_owners_opens_no_journal(
    gateway: WebGateway, what: str
) -> None:
    theirs, _ = await ran(gateway, "secret of u1")
    await gateway.rest("DELETE", f"/api/kernels/{theirs}")
    await gateway.rest("GET", "/api/trails")
    store, key = gateway.function.store, ("lkg-records", keys.trail_index_key(theirs, 0))
    lying = json.loads(store.objects[key].partition(b"\n")[2])
    lying["starts"][0] |= {"user": "u10", "caller_user": "u10"}
    body = json.dumps(lying).encode()
    await store.put(*key, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    (hit,) = (await gateway.rest("GET", "/api/trails", token="u10")).json["cells"]
    assert hit["kernel_id"] == theirs

    answer = await gateway.rest("GET", f"/api/kernels/{theirs}/{what}", token="u10")

    assert answer.status == 404
    assert (await gateway.rest("GET", f"/api/kernels/{theirs}/{what}", token="root")).status == 200


@pytest.mark.parametrize("door", ["kernels", "sessions"])
async def test_no_door_gives_an_id_of_anothers_kernel_that_has_ended(
    gateway: WebGateway, door: str
) -> None:
    kernel_id, _ = await ran(gateway, "secret of u1")
    await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")
    bodies: list[Any] = [{"id": kernel_id}, {"kernel_id": kernel_id}]
    if door == "sessions":
        session = {"path": "a.ipynb", "name": "a", "type": "notebook"}
        bodies = [
            session | {"kernel": {"id": kernel_id, "name": "lambda-python"}},
            session | {"kernel": {"name": "lambda-python"}, "id": kernel_id},
        ]

    made = [await gateway.rest("POST", f"/api/{door}", body=b, token="u10") for b in bodies]

    assert kernel_id not in [kernel.kernel_id for kernel in gateway.registry.all()]
    assert made[0].status == 404
    answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb", token="u10")
    assert answer.status == 404


async def test_an_entry_says_who_asked_and_by_what(gateway: WebGateway) -> None:
    kernel_id, _ = await ran(gateway, "by websocket")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body={"code": "by rest"})

    trail = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).json

    callers = [event["gateway"]["caller"] for event in starts(trail)]
    assert [(each["user"], each["client"]) for each in callers] == [
        ("u1", "websocket"),
        ("u1", "rest"),
    ]


async def test_an_agents_cell_names_user_agent_and_its_secret(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel(token="u1-a1")
    run = {"code": "1"}
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body=run, token="u1-a1")
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/execute", body=run, token="u1")

    trail = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).json

    first, second = (event["gateway"] for event in starts(trail))
    assert first["session"]["owner"] == {"user": "u1", "agent": "a1"}
    assert first["credentials"]["connector_secret"] == "lkg-connector-creds-a1"
    assert (first["caller"]["agent"], second["caller"]["agent"]) == ("a1", None)


@pytest.mark.parametrize(
    "kernel_id", ["00000000-0000-0000-0000-000000000000", "a-b-c-d-e", "a-b-c-d-e_"]
)
async def test_a_kernel_that_never_was_has_no_trail(gateway: WebGateway, kernel_id: str) -> None:
    for token in ("u1", "root"):
        answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb", token=token)
        assert answer.status == 404


async def test_a_trail_is_exported_with_blobs_and_compared(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one", "z" * 400_000)
    output, endpoint = tmp_path / "trail.ipynb", gateway.endpoint()

    said = await asyncio.to_thread(export, endpoint, kernel_id, output, with_blobs=True)
    report = verified_file(output, trail_in(output), {})
    await asyncio.to_thread(against_journal, endpoint, report, kernel_id)

    assert "2 blobs" in said
    blobs = (tmp_path / "blobs" / "sha256").iterdir()
    policy, blob = sorted(blobs, key=lambda path: path.stat().st_size)
    assert "2012-10-17" in policy.read_text()
    assert "z" * 400_000 in blob.read_text()
    # This gateway has no key.
    assert report.exit_code == UNPROVEN
    assert "not signed" in shown(report)
    assert report.head_number == 5
    await asyncio.to_thread(blob.write_text, "other")
    assert [problem.kind for problem in verified_file(output, trail_in(output), {}).problems] == [
        "blob-changed"
    ]


async def test_a_blob_that_was_never_stored_hinders_no_export_and_is_named(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one", "z" * 400_000)
    output, endpoint = tmp_path / "trail.ipynb", gateway.endpoint()
    (start,) = starts((await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")).json)[:1]
    policy = start["gateway"]["credentials"]["policy_template"]
    del gateway.function.store.objects["lkg-records", f"audit/{kernel_id}/b/{policy}"]

    said = await asyncio.to_thread(export, endpoint, kernel_id, output, with_blobs=True)
    text = shown(verified_file(output, trail_in(output), {}))

    assert "1 blobs" in said
    assert "content-missing: 1 blobs that entries name are not stored" in said
    assert f"content-missing: cell 2 of the file: {policy}, which entry 2 names" in text
    assert "TAMPERED" not in text


async def test_a_trail_is_exported_as_one_statement_per_cell(
    gateway: WebGateway, tmp_path: Path
) -> None:
    kernel_id, _ = await ran(gateway, "one", "two")
    where = ["trail", "export", kernel_id, "--output", str(tmp_path / "s.jsonl")]
    act = prepared_export(parse([*where, "--format", "intoto"])[0])

    said = await asyncio.to_thread(act, gateway.endpoint())

    assert said == f"wrote {tmp_path / 's.jsonl'}"
    made = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    asked = [each["predicate"]["buildDefinition"]["externalParameters"] for each in made]
    assert [each["source"] for each in asked] == ["one", "two"]


@pytest.mark.parametrize(
    ("query", "status"), [("?signed=true", 409), ("?signed=yes", 400), ("?signed=false", 200)]
)
async def test_a_gateway_without_a_key_signs_no_statement(
    gateway: WebGateway, query: str, status: int
) -> None:
    kernel_id, _ = await ran(gateway, "one")

    answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.intoto.jsonl{query}")

    assert answer.status == status


@pytest.mark.parametrize(
    "options", [["--sign"], ["--format", "ipynb", "--sign"], ["--format", "intoto", "--with-blobs"]]
)
def test_options_that_do_not_go_together_are_said(options: list[str]) -> None:
    with pytest.raises(BadRequest, match="it is for"):
        prepared_export(parse(["trail", "export", "k", *options])[0])


async def test_an_export_that_fails_leaves_no_file(gateway: WebGateway, tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing):
        await asyncio.to_thread(
            export, gateway.endpoint(), "../../x", tmp_path / "t.ipynb", with_blobs=False
        )
    kernel_id, _ = await ran(gateway, "z" * 400_000)
    await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/head")
    store = gateway.function.store
    blobs = [(len(body), key) for (_, key), body in store.objects.items() if "/b/" in key]
    await store.put("lkg-records", max(blobs)[1], b"[]")
    with pytest.raises(ApiError):
        await asyncio.to_thread(
            export, gateway.endpoint(), kernel_id, tmp_path / "t.ipynb", with_blobs=False
        )

    assert not await asyncio.to_thread(os.listdir, tmp_path)
