"""Nothing is lost when the client, or the gateway, goes away: on real parts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernel_gateway.audit.chain import CellFinished, CellStarted, verified
from kernel_gateway.audit.grouping import incomplete
from lambda_kernel.contract.keys import journal_key
from tests.integration.driver import COMMAND, Execution, Gateway, NotebookClient, a_gateway
from tests.integration.storage_tap import Trap, tapped_storage

RECORDS = "lkg-records"
LINES = """
import time
for n in range(40):
    print(n)
    time.sleep(0.05)
"""


def journal_of(gateway: Gateway, kernel_id: str) -> list[bytes]:
    with gateway.owners_client("s3") as s3:
        found = s3.list_objects_v2(Bucket=RECORDS, Prefix=f"audit/{kernel_id}/j/")["Contents"]
        return [s3.get_object(Bucket=RECORDS, Key=o["Key"])["Body"].read() for o in found]


def again(client: NotebookClient, gateway: Gateway) -> NotebookClient:
    """Return a client of the same session."""
    return NotebookClient(gateway, client.kernel_id, gateway.token, session_id=client.session_id)


def cells_of(gateway: Gateway, kernel_id: str, last: int = 100) -> list[dict[str, object]]:
    answer = gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?last={last}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()
    return found


def test_a_client_that_goes_away_in_a_long_cell_misses_nothing(gateway: Gateway) -> None:
    client = gateway.session()
    run = client.submit(LINES)
    while "10\n" not in run.stdout:
        run.messages.append(client.receive(60))
    client.close()
    client = again(client, gateway)
    # It goes once more, and comes back when the cell may have ended.
    while "20\n" not in run.stdout:
        run.messages.append(client.receive(60))
    client.close()
    other = NotebookClient(gateway, client.kernel_id, gateway.token)
    other.execute("1")
    client = again(client, gateway)
    client.wait(run)
    lines = "".join(f"{n}\n" for n in range(40))
    assert run.stdout == lines
    assert run.reply["status"] == "ok"
    ids = [m["header"]["msg_id"] for m in run.messages]
    assert len(ids) == len(set(ids))
    new = NotebookClient(gateway, client.kernel_id, gateway.token, query="&replay=2")
    past = Execution(run.msg_id)
    new.wait(past)
    assert past.stdout == lines
    first, second = cells_of(gateway, client.kernel_id)
    assert first["outputs"] == [{"output_type": "stream", "name": "stdout", "text": lines}]
    assert (first["status"], second["code"]) == ("ok", "1")
    shown = subprocess.run(
        [COMMAND, "cells", client.kernel_id, "--gateway-url", gateway.url, "--token",
         gateway.token],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert lines.strip() in shown.stdout
    for each in (client, other, new):
        each.close()


def test_a_flood_of_output_is_kept_within_bounds(gateway: Gateway) -> None:
    client = gateway.session()
    client.execute("print('x' * 20_000_000)")
    (cell,) = cells_of(gateway, client.kernel_id)
    assert cell["status"] == "ok"
    assert 5_000_000 < len(json.dumps(cell["outputs"])) < 20_000_000
    entries = verified(client.kernel_id, journal_of(gateway, client.kernel_id))
    end = entries[-1].event
    assert isinstance(end, CellFinished)
    assert end.outputs.blob is not None
    client.close()


@pytest.mark.parametrize("has_committed", [False, True])
def test_a_killed_gateways_cell_is_told_truthfully_by_the_next(
    tmp_path: Path, has_committed: bool
) -> None:
    state = tmp_path / "state"
    with a_gateway(state) as first, tapped_storage(first) as tap:
        client = first.session()
        client.execute("x = 1")
        if has_committed:
            tap.begin(Trap("PUT commit", 0, "after", first.process.kill))
            run = client.submit("x = 2; print('said')")
            first.process.wait(60)
        else:
            run = client.submit("x = 2; print('here', flush=True); import time; time.sleep(600)")
            while "here" not in run.stdout:
                run.messages.append(client.receive(60))
            first.process.kill()
            first.process.wait(60)
    run.messages.clear()
    with a_gateway(state) as second:
        client = again(client, second)
        client.wait(run)
        if has_committed:
            assert run.reply["status"] == "ok"
            assert run.reply_metadata["adopted"]
            assert "some of its output may be missing" in run.stderr
        else:
            assert run.reply["ename"] == "CellLost"
            assert "variables and files are as after cell [1]" in run.reply["evalue"]
        cell = cells_of(second, client.kernel_id)[-1]
        assert cell["msg_id"] == run.msg_id
        assert cell["status"] == ("ok" if has_committed else "lost")
        assert cell["outputs_complete"] is False
        assert client.execute("x").result == ("2" if has_committed else "1")
        # The list waits until what was just added is written.
        assert [c["status"] for c in cells_of(second, client.kernel_id)][-1] == "ok"
        entries = verified(client.kernel_id, journal_of(second, client.kernel_id))
        assert incomplete(entries) == []
        assert len([e for e in entries if isinstance(e.event, CellStarted)]) == 3
        client.close()


def test_a_cell_that_the_journal_does_not_take_is_refused_before_it_starts(
    gateway: Gateway,
) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "journal"})
    client.execute("open('before', 'w').close()")
    cells_of(gateway, client.kernel_id)
    with gateway.owners_client("s3") as s3:
        s3.put_object(Bucket=RECORDS, Key=journal_key(client.kernel_id, 4), Body=b"another's")
    refused = client.execute("open('after', 'w').close()")
    assert refused.reply["ename"] == "AuditUnavailable"
    assert "entry 4" in refused.reply["evalue"]
    assert "was written by another gateway" in refused.reply["evalue"]
    assert "Started: no" in refused.reply["evalue"]
    files = gateway.rest("GET", "/api/workspaces/journal/files/").text
    assert "before" in files
    assert "after" not in files
    client.close()
