"""Recorded sessions replayed on real parts: identical where they can be, and confined."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests

from kernel_gateway.audit.chain import digest_of
from tests.functional.conftest import wait_until
from tests.integration.driver import Execution, Gateway, a_gateway
from tests.integration.test_trail import command

SESSION = (
    "import random, os\nimport numpy as np\nx = 6 * 7",
    "random.random(), np.random.rand(2), np.random.default_rng().integers(1000), os.getcwd()",
    "data = open('in.csv').read()\nopen('made.txt', 'w').write(data)\ndata",
    "open('in.csv', 'a').write('more')\nos.remove('made.txt')\nsorted(os.listdir())",
    "1 / 0",
    "print(x, {'a', 'b', 'c', 'd'}, open('in.csv').read())",
)


@pytest.fixture(scope="module")
def recorded(gateway: Gateway) -> tuple[str, str]:
    """The kernel and workspace of a session with files, random numbers and an error."""
    workspace = f"replayed-{uuid.uuid4().hex[:8]}"
    put(gateway, workspace, "in.csv", b"recorded;")
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    statuses = [client.execute(code).reply["status"] for code in SESSION]
    assert statuses == ["ok"] * 4 + ["error", "ok"]
    client.close()
    # Newer than what was recorded: a replay must not see it.
    put(gateway, workspace, "in.csv", b"newer")
    put(gateway, workspace, "later.txt", b"newer")
    return client.kernel_id, workspace


def put(gateway: Gateway, workspace: str, path: str, body: bytes) -> None:
    answer = gateway.rest("PUT", f"/api/workspaces/{workspace}/files/{path}", data=body)
    assert answer.status_code == 201, answer.text


def replayed(gateway: Gateway, kernel_id: str, **how: Any) -> dict[int, str]:
    """Return what became of each cell."""
    answer = gateway.rest("POST", "/api/replays", json={"kernel_id": kernel_id, **how})
    assert answer.status_code == 200, answer.text
    return {cell["number"]: cell["standing"] for cell in answer.json()["cells"]}


def versions(gateway: Gateway, bucket: str, prefix: str) -> set[tuple[str, str]]:
    """Return every version of every object under a prefix, delete markers too."""
    with gateway.owners_client("s3") as s3:
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
        return {
            (found["Key"], found["VersionId"])
            for page in pages
            for kind in ("Versions", "DeleteMarkers")
            for found in page.get(kind, ())
            if ".replays/" not in found["Key"]
        }


@pytest.mark.parametrize(
    ("how", "numbers"),
    [
        ({}, range(1, 7)),
        ({"mode": "pinned"}, range(1, 7)),
        ({"begin": 3}, range(3, 7)),
        ({"only": [2, 4]}, [2, 4]),
    ],
)
def test_a_replay_is_identical(
    gateway: Gateway, recorded: tuple[str, str], how: dict[str, Any], numbers: Iterable[int]
) -> None:
    assert replayed(gateway, recorded[0], **how) == dict.fromkeys(numbers, "identical")


def test_it_changes_nothing_but_its_own_folder(gateway: Gateway, recorded: tuple[str, str]) -> None:
    before = [versions(gateway, bucket, "users/") for bucket in ("lkg-workspaces", "lkg-state")]

    for mode in ("sequential", "pinned"):
        replayed(gateway, recorded[0], mode=mode)

    after = [versions(gateway, bucket, "users/") for bucket in ("lkg-workspaces", "lkg-state")]
    assert after == before


ATTACK = """
import os, pathlib, glob
open(os.path.expanduser('~/planted'), 'w').write('home')
tried = []
for place in ('..', '../..', '/tmp', os.path.expanduser('~'), *glob.glob('/tmp/.*')):
    for path in (f'{place}/%s/in.csv', f'{place}/in.csv', f'{place}/users/local/%s/in.csv'):
        try:
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(path).write_text('attacked')
        except OSError as problem:
            tried.append(type(problem).__name__)
try:
    os.symlink('../../%s', 'link')
    pathlib.Path('link/in.csv').write_text('attacked')
except OSError as problem:
    tried.append(type(problem).__name__)
pathlib.Path('in.csv').write_text('attacked')
[name for name in os.environ if 'AWS_' in name or 'CONN_' in name]
"""


@pytest.mark.parametrize("mode", ["sequential", "pinned"])
def test_a_replayed_cell_cannot_write_into_the_real_workspace_or_home(
    gateway: Gateway, mode: str
) -> None:
    workspace = f"victim-{uuid.uuid4().hex[:8]}"
    put(gateway, workspace, "in.csv", b"recorded")
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    assert client.execute(ATTACK.replace("%s", workspace)).reply["status"] == "ok"
    client.execute("open('in.csv').read()")
    client.close()
    put(gateway, workspace, "in.csv", b"mine")
    before = [versions(gateway, bucket, "users/") for bucket in ("lkg-workspaces", "lkg-state")]

    cells = replayed(gateway, client.kernel_id, mode=mode)

    assert cells[2] == "identical"
    after = [versions(gateway, bucket, "users/") for bucket in ("lkg-workspaces", "lkg-state")]
    assert after == before
    file = gateway.rest("GET", f"/api/workspaces/{workspace}/files/in.csv")
    assert file.content == b"mine"


ATTACK_ON_SHARED_INPUTS = """
import os, pathlib
if not os.path.exists(os.path.expanduser('~/recording')):
    for change in (
        lambda: os.chmod('in.csv', 0o777),
        lambda: pathlib.Path('in.csv').write_text('attacked'),
        lambda: os.utime('in.csv', ns=(1, 1)),
        lambda: [cached.write_text('attacked') for cached in pathlib.Path('/tmp').rglob('*')
                 if cached.is_file() and os.access(cached, os.W_OK)],
        lambda: os.remove('folder/kept.txt'),
        lambda: pathlib.Path('planted.txt').write_text('attacked'),
    ):
        try:
            change()
        except OSError:
            pass
    state[0] = 'attacked'
"""
LOOK = "state, open('in.csv').read(), os.stat('in.csv').st_mtime_ns, sorted(os.listdir('folder'))"


def test_what_a_pinned_cell_does_to_inputs_and_variables_no_other_cell_sees(
    gateway: Gateway,
) -> None:
    workspace = f"shared-{uuid.uuid4().hex[:8]}"
    put(gateway, workspace, "in.csv", b"recorded")
    put(gateway, workspace, "folder/kept.txt", b"recorded")
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    # Only HOME tells that it is no replay: then the attack does nothing, and all find the same.
    mark = "import os; open(os.path.expanduser('~/recording'), 'w').close(); state = ['recorded']"
    session = [mark, *[ATTACK_ON_SHARED_INPUTS, LOOK, LOOK] * 3]
    for code in session:
        assert client.execute(code).reply["status"] == "ok"
    client.close()

    cells = replayed(gateway, client.kernel_id, mode="pinned")

    looks = [number for number, code in enumerate(session, 1) if code == LOOK]
    assert {number: cells[number] for number in looks} == dict.fromkeys(looks, "identical")
    assert {cells[number] for number in (2, 5, 8)} == {"different"}


def test_a_version_that_is_gone_is_unavailable_and_not_replaced_by_a_newer_one(
    gateway: Gateway,
) -> None:
    workspace = f"pruned-{uuid.uuid4().hex[:8]}"
    put(gateway, workspace, "in.csv", b"recorded")
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": workspace})
    client.execute("open('in.csv').read()")
    client.execute("1 + 1")
    client.execute("import os; os.remove('in.csv')")
    client.execute("sorted(os.listdir())")
    client.close()
    key = f"users/local/{workspace}/in.csv"
    with gateway.owners_client("s3") as s3:
        (only,) = s3.list_object_versions(Bucket="lkg-workspaces", Prefix=key)["Versions"]
        put(gateway, workspace, "in.csv", b"newer")
        s3.delete_object(Bucket="lkg-workspaces", Key=key, VersionId=only["VersionId"])

    cells = replayed(gateway, client.kernel_id, mode="pinned")
    assert cells == {1: "unavailable", 2: "unavailable", 3: "unavailable", 4: "identical"}
    # In one session what does not need the file is compared all the same.
    answer = gateway.rest("POST", "/api/replays", json={"kernel_id": client.kernel_id}).json()
    found = {
        cell["number"]: (cell["standing"], [reason["code"] for reason in cell["reasons"]])
        for cell in answer["cells"]
    }
    assert {number: standing for number, (standing, _) in found.items()} == {
        1: "unavailable", 2: "identical", 3: "unavailable", 4: "identical",
    }  # fmt: skip
    assert found[2][1] == ["input-missing", "after-input-missing"]
    assert found[4][1] == ["after-input-missing"]


def test_differences_tampering_and_parameters_have_their_exit_codes(
    gateway: Gateway, tmp_path: Path
) -> None:
    client = gateway.session()
    request = {"code": "rate = 2", "silent": False, "store_history": True}
    msg_id = client.send("execute_request", request, metadata={"tags": ["parameters"]})
    client.wait(Execution(msg_id))
    client.execute("print(rate * 10)")
    client.close()
    file, report = tmp_path / "trail.ipynb", tmp_path / "report"
    exported = command(gateway, "trail", "export", client.kernel_id, "--output", str(file))
    assert exported.returncode == 0, exported.stderr

    same = command(gateway, "replay", str(file), "--discard", "--json")
    assert same.returncode == 0, same.stderr
    found = json.loads(same.stdout)
    assert [cell["standing"] for cell in found["cells"]] == ["identical"] * 2
    with gateway.owners_client("s3") as s3:
        kept = s3.list_objects_v2(Bucket="lkg-workspaces", Prefix=found["prefix"])
    assert kept["KeyCount"] == 0
    changed = command(gateway, "replay", str(file), "-p", "rate", "3", "--report", str(report))
    assert changed.returncode == 1, changed.stderr
    assert "replayed: 30" in changed.stdout
    assert "[2/2] print(rate * 10)" in changed.stderr
    assert {path.name for path in report.iterdir()} == {
        "report.json", "report.html", "replay.ipynb",
    }  # fmt: skip
    assert json.loads((report / "report.json").read_text())["parameters"] == {"rate": 3}
    file.write_text(file.read_text().replace("rate * 10", "rate * 11"))
    tampered = command(gateway, "replay", str(file))
    assert tampered.returncode == 3
    assert "source-changed" in tampered.stderr
    file.write_text('{"cells": []')
    assert command(gateway, "replay", str(file)).returncode == 2


def test_parameters_reach_the_tagged_cell_of_a_notebook_that_was_executed(
    gateway: Gateway, tmp_path: Path
) -> None:
    sources = ("import math", "rate = 2", "print(math.floor(rate * 10))")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[1].metadata["tags"] = ["parameters"]
    file = tmp_path / "tagged.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), file)
    executed = command(gateway, "run", str(file))
    assert executed.returncode == 0, executed.stderr
    listed = json.loads(command(gateway, "trail", "list", "--limit", "1", "--json").stdout)
    kernel_id = listed["cells"][0]["kernel_id"]

    replay = command(gateway, "replay", kernel_id, "-p", "rate", "3", "--discard")

    assert replay.returncode == 1, replay.stderr
    assert "cell 3 [3] different" in replay.stdout
    assert "replayed: 30" in replay.stdout
    assert "No cell is tagged" not in replay.stdout
    trail = gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb").json()
    code = [cell for cell in trail["cells"] if cell["cell_type"] == "code"]
    assert [cell["metadata"]["lambda_kernel"]["cell_id"] for cell in code] == [
        cell["id"] for cell in cells
    ]


def test_a_trail_whose_signatures_were_cut_off_says_so_and_cannot_be_changed(
    gateway: Gateway, recorded: tuple[str, str], tmp_path: Path
) -> None:
    trail = gateway.rest("GET", f"/api/kernels/{recorded[0]}/trail.ipynb").json()
    for cell in trail["cells"]:
        for entry in _entries(cell):
            entry["signatures"] = []
    file = tmp_path / "cut.ipynb"
    file.write_text(json.dumps(trail))

    same = command(gateway, "replay", str(file), "--from", "6")

    assert same.returncode == 0, same.stderr
    assert "WARNING: nobody has signed this trail" in same.stdout
    # Now as a stranger's program, by its kernel that is not here.
    kernel_id, previous = str(uuid.uuid4()), ""
    trail["cells"] = trail["cells"][:2]
    trail["cells"][1]["outputs"] = []
    del _entries(trail["cells"][1])[1:]
    trail["cells"][1]["metadata"]["lambda_kernel"]["status"] = "incomplete"
    for entry in (found for cell in trail["cells"] for found in _entries(cell)):
        told = json.loads(base64.b64decode(entry["payload"]))
        payload = json.dumps(told | {"kernel_id": kernel_id, "previous": previous}).encode()
        entry["payload"], previous = base64.b64encode(payload).decode(), digest_of(payload)
    trail["metadata"]["lambda_kernel"].pop("trail")
    file.write_text(json.dumps(trail))
    refused = command(gateway, "replay", str(file))
    assert refused.returncode == 3
    assert "--unsigned" in refused.stderr


def test_files_of_a_discarded_replay_go_although_its_gateway_was_killed(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as killed:
        put(killed, "default", "ü b%20+&.csv", b"recorded")
        client = killed.session()
        # Only in the replay, which sets a parameter, the second cell waits.
        tagged = client.send(
            "execute_request", {"code": "import time; s = 0"}, metadata={"tags": ["parameters"]}
        )
        client.wait(Execution(tagged))
        client.execute("time.sleep(s)")
        client.close()
        with requests.post(
            f"{killed.url}/api/replays",
            json={"kernel_id": client.kernel_id, "keep_files": False, "parameters": {"s": 600}},
            headers={"Authorization": f"token {killed.token}", "Accept": "text/event-stream"},
            stream=True,
            timeout=120,
        ) as answer:
            # Held: when nothing reads them any more the connection closes, and the replay ends.
            lines = answer.iter_lines()
            assert any(line == b"event: cell" for line in lines)
            assert _replay_files(killed)
            killed.process.kill()
    with a_gateway(tmp_path / "state") as following:
        wait_until(lambda: not _replay_files(following))
        with following.owners_client("s3") as s3:
            noted = s3.list_objects_v2(Bucket="lkg-records", Prefix="replays/")
            assert noted["KeyCount"] == 0


def _replay_files(gateway: Gateway) -> list[str]:
    with gateway.owners_client("s3") as s3:
        found = s3.list_objects_v2(Bucket="lkg-workspaces", Prefix="users/local/.replays/")
        return [each["Key"] for each in found.get("Contents", ())]


def _entries(cell: dict[str, Any]) -> list[Any]:
    entries: list[Any] = (
        cell["metadata"].get("lambda_kernel", {}).get("audit", {}).get("entries", [])
    )
    return entries


def test_a_replay_has_a_trail_that_says_what_it_is_derived_from_and_verifies(
    gateway: Gateway, recorded: tuple[str, str]
) -> None:
    body = {"kernel_id": recorded[0], "only": [1]}
    (kernel_id,) = gateway.rest("POST", "/api/replays", json=body).json()["kernels"]
    trail = gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")
    assert recorded[0] in json.dumps([_payload(cell) for cell in trail.json()["cells"]])
    assert command(gateway, "trail", "verify", kernel_id).returncode == 0
    # A replay of a replay: what is derived from what is not followed.
    assert replayed(gateway, kernel_id) == {1: "identical"}
    listed = {kernel["id"] for kernel in gateway.rest("GET", "/api/kernels").json()}
    assert kernel_id not in listed


def _payload(cell: dict[str, Any]) -> list[Any]:
    entries = cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    events = [json.loads(base64.b64decode(entry["payload"]))["event"] for entry in entries]
    return [
        event["gateway"]["session"]["derived_from"]
        for event in events
        if "session" in (event.get("gateway") or {})
    ]


def test_a_cell_that_asked_its_user_is_given_the_recorded_answer(gateway: Gateway) -> None:
    client = gateway.session()
    client.execute("print(input('n? '))", answers=["5"])
    client.execute("1 + 1")
    client.close()
    assert replayed(gateway, client.kernel_id) == {1: "identical", 2: "identical"}
