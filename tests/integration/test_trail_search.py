"""Cells are found in all trails on real parts: by what they wrote, used, and when they ran."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from securesystemslib import dsse
from websockets.sync.client import connect

from kernel_gateway.audit.signing import imported
from kernel_gateway.web.cell_events import CELL_EXECUTED
from tests.integration.driver import COMMAND, TOKENS, Gateway, a_gateway, identities_toml
from tests.integration.jupyter_server import TOKEN, a_server
from tests.integration.test_extension import new_session
from tests.integration.test_journal import RECORDS

SALES = b"city,sold\nOslo,42\n"


def command(
    gateway: Gateway, *arguments: str, token: str = "root"
) -> subprocess.CompletedProcess[str]:
    where = ["--gateway-url", gateway.url, "--token", TOKENS[token]]
    return subprocess.run(
        [COMMAND, "trail", *arguments, *where],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def found(gateway: Gateway, *arguments: str, token: str = "root") -> list[Any]:
    answer = command(gateway, "list", *arguments, "--json", token=token)
    assert answer.returncode == 0, answer.stderr
    cells: list[Any] = json.loads(answer.stdout)["cells"]
    return cells


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with two users and two agents, one of which has a connector."""
    folder = tmp_path_factory.mktemp("search")
    config = folder / "gateway.toml"
    config.write_text(identities_toml())
    subprocess.run(
        [COMMAND, "connectors", "set", "a1", "crm", "--state-dir", str(folder / "state")],
        input="TOKEN=a-value\n",
        text=True,
        check=True,
        timeout=60,
    )
    with a_gateway(folder / "state", "--config", str(config)) as running:
        yield running


def test_who_wrote_a_file_is_found_by_its_digest_and_its_path(shared: Gateway) -> None:
    agent = shared.session(token=TOKENS["u1-a1"])
    other = shared.session(token=TOKENS["u10"])
    agent.execute("import os; os.mkdir('out')")
    agent.execute(f"open('out/sales.csv', 'wb').write({SALES!r})")
    other.execute("open('unrelated.csv', 'w').write('x')")
    for client, token in ((agent, "u1-a1"), (other, "u10")):
        client.close()
        path = f"/api/kernels/{client.kernel_id}"
        assert shared.rest("DELETE", path, token=TOKENS[token]).status_code == 204
    digest = hashlib.sha256(SALES).hexdigest()

    for filters in (["--contains-digest", digest], ["--path", "out/sales.csv"]):
        (cell,) = found(shared, *filters)
        assert (cell["kernel_id"], cell["execution_count"]) == (agent.kernel_id, 2)
        assert (cell["user"], cell["agent"], cell["status"]) == ("u1", "a1", "ok")
        assert cell["matched"] == ["created out/sales.csv"]
        assert found(shared, *filters, token="u1") == [cell]
        assert found(shared, *filters, token="u10") == found(shared, *filters, token="u1-a2") == []
    table = command(shared, "list", "--path", "out/").stdout
    assert f"kernel-gateway trail export {agent.kernel_id}" in table


def test_statements_about_cells_are_signed_by_the_key_that_is_exported(
    shared: Gateway, tmp_path: Path
) -> None:
    client = shared.session(token=TOKENS["u1"])
    client.execute(f"open('sales.csv', 'wb').write({SALES!r})")
    client.execute("open('read.txt', 'w').write(open('sales.csv').read())")
    client.execute("open('sales.csv', 'a').write('Rome,1')")
    client.close()
    file = tmp_path / "s.jsonl"
    arguments = ["export", client.kernel_id, "--format", "intoto", "--sign", "--output", str(file)]
    made = command(shared, *arguments, token="u1")
    assert made.returncode == 0, made.stderr
    exported = subprocess.run(
        [COMMAND, "keys", "export", "--state-dir", str(shared.state_dir)],
        capture_output=True, text=True, check=True, timeout=100,
    ).stdout  # fmt: skip

    keys = list(imported(exported, "keys").values())
    envelopes = [
        dsse.Envelope.from_dict(json.loads(line)) for line in file.read_text().splitlines()
    ]
    for envelope in envelopes:
        assert envelope.verify(keys, 1)
    wrote, *readers = (json.loads(envelope.payload) for envelope in envelopes)
    digest = hashlib.sha256(SALES).hexdigest()
    (subject,) = [each for each in wrote["subject"] if each["name"] == "sales.csv"]
    # Also of the cell that changed it: it began with the version before.
    for each in readers:
        inputs = each["predicate"]["buildDefinition"]["resolvedDependencies"]
        (mirrored,) = [found for found in inputs if found.get("uri") == subject["uri"]]
        assert subject["digest"] == mirrored["digest"] == {"sha256": digest}
    assert "versionId=" in subject["uri"]


def test_which_cells_got_a_connector(shared: Gateway) -> None:
    has = "import os; sorted(name for name in os.environ if name.startswith('CONN_'))"
    every = shared.session(token=TOKENS["u1-a1"])
    assert every.execute(has).result == "['CONN_crm_TOKEN']"
    without = shared.session(token=TOKENS["u1-a2"])
    assert without.execute(has).result == "[]"
    every.close()
    without.close()

    cells = found(shared, "--connector", "crm")

    assert every.kernel_id in {cell["kernel_id"] for cell in cells}
    assert {cell["agent"] for cell in cells} == {"a1"}
    assert {said for cell in cells for said in cell["matched"]} == {"connector crm"}
    assert found(shared, "--connector", "mail") == []
    assert len(found(shared, "--agent", "a2")) == 1


def test_a_gateway_that_was_killed_leaves_nothing_unfound(tmp_path: Path) -> None:
    with a_gateway(tmp_path / "state") as first:
        client = first.session()
        client.execute("open('before.txt', 'w').write('kill')")
        running = client.submit("print('runs', flush=True); import time; time.sleep(600)")
        while client.receive(60)["header"]["msg_type"] != "stream":
            pass
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(20)
        client.close()
    assert not running.done

    with a_gateway(tmp_path / "state") as second:
        where = ["--state-dir", str(second.state_dir), "--json"]
        listed = subprocess.run(
            [COMMAND, "trail", "list", *where], capture_output=True, check=True, timeout=100
        )
        with second.owners_client("s3") as s3:
            index = s3.list_objects_v2(Bucket=RECORDS, Prefix="trail-index/")["Contents"]
            for each in index:
                s3.put_object(Bucket=RECORDS, Key=each["Key"], Body=b"damaged")
        again = subprocess.run(
            [COMMAND, "trail", "list", *where], capture_output=True, check=True, timeout=100
        )
        said = subprocess.run(
            [COMMAND, "trail", "reindex", *where[:2]],
            capture_output=True, check=True, text=True, timeout=100,
        ).stdout  # fmt: skip

    cells = json.loads(listed.stdout)["cells"]
    assert [(c["execution_count"], c["status"]) for c in cells] == [(2, "incomplete"), (1, "ok")]
    assert json.loads(again.stdout) == json.loads(listed.stdout)
    assert said.startswith("indexed 4 entries of 1 journals")


def test_the_event_of_a_cell_reaches_the_bus_of_a_jupyter_server(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        session_id, client = new_session(server, "a.ipynb", "lambda-python")
        url = f"{server.url.replace('http', 'ws', 1)}/api/events/subscribe?token={TOKEN}"
        with connect(url) as socket:
            client.execute("hidden = 'not to be told'; open('f.txt', 'w').write('x')")
            event: dict[str, Any] = {"schema_id": ""}
            while event["schema_id"] != CELL_EXECUTED:
                event = json.loads(socket.recv(timeout=60))
        client.close()
        assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204

    assert event["kernel_id"] == client.kernel_id
    assert event["files"] == {"created": 1, "modified": 0, "deleted": 0}
    assert not {"hidden", "not to be told", "f.txt"} & set(json.dumps(event).split('"'))
