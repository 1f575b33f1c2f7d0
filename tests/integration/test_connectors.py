"""Connectors, the governed prefix and run tags through the whole product."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.driver import COMMAND, TOKENS, a_gateway, identities_toml

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient

VALUE = "ghp_a-value-that-must-stay-in-the-cell"
LABEL = "[CONN_gh_TOKEN]"
SHOW = "import os; sorted(n for n in os.environ if n.startswith('CONN_'))"
GOVERNED = "shared/reference/"


def connectors(
    state_dir: Path, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "connectors", *arguments, "--state-dir", str(state_dir)],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with agents, a connector of one of them, and a governed prefix."""
    folder = tmp_path_factory.mktemp("connectors")
    state = folder / "state"
    config = folder / "gateway.toml"
    config.write_text(identities_toml() + f'[KernelGateway]\ngoverned_read_prefix = "{GOVERNED}"\n')
    assert connectors(state, "set", "a1", "gh", text=f"TOKEN={VALUE}\n").returncode == 0
    with a_gateway(state, "--config", str(config)) as running:
        with running.owners_client("s3") as s3:
            s3.put_object(Bucket="lkg-workspaces", Key=f"{GOVERNED}table.csv", Body=b"1,2")
        yield running


@pytest.fixture
def agent(shared: Gateway) -> Iterator[NotebookClient]:
    client = shared.session(token=TOKENS["u1-a1"])
    yield client
    client.close()


def test_the_agents_cells_have_its_connector_and_nobody_elses_do(
    shared: Gateway, agent: NotebookClient
) -> None:
    assert agent.execute(SHOW).result == "['CONN_gh_TOKEN']"
    # Not by its value: the trail holds what is typed.
    seen = agent.execute(
        "import hashlib; hashlib.sha256(os.environ['CONN_gh_TOKEN'].encode()).hexdigest()"
    )
    assert seen.result == repr(hashlib.sha256(VALUE.encode()).hexdigest())
    for token in ("u1", "u1-a2", "u10"):
        other = shared.session(token=TOKENS[token])
        assert other.execute(SHOW).result == "[]"
        other.close()


def test_connectors_cost_no_sequential_request(shared: Gateway, agent: NotebookClient) -> None:
    user = shared.session(token=TOKENS["u1"])
    for client in (agent, user):
        client.execute("what = 'the governed files are in the cache now'")
    costs = [client.execute("1").reply_metadata for client in (agent, user)]
    user.close()
    assert [cost["aws_sequential"] for cost in costs] == [3, 3]
    record = shared.state_dir / "logs" / "aws" / "secretsmanager" / "get-secret-value.jsonl"
    asked = [json.loads(line)["principal"] for line in record.read_text().splitlines()]
    assert len([name for name in asked if f"/lkg-{agent.kernel_id[:8]}-" in name]) == 2
    assert [name for name in asked if f"/lkg-{user.kernel_id[:8]}-" in name] == []


def test_a_new_value_counts_from_the_next_cell(shared: Gateway, agent: NotebookClient) -> None:
    assert connectors(shared.state_dir, "set", "a1", "jira", text="KEY=k").returncode == 0
    assert agent.execute(SHOW).result == "['CONN_gh_TOKEN', 'CONN_jira_KEY']"
    listed = connectors(shared.state_dir, "list").stdout
    assert listed == "a1  gh  TOKEN\na1  jira  KEY\n"
    assert connectors(shared.state_dir, "delete", "a1", "jira").returncode == 0
    assert agent.execute(SHOW).result == "['CONN_gh_TOKEN']"


def test_a_gateway_elsewhere_keeps_its_own_connectors(tmp_path: Path) -> None:
    refused = connectors(tmp_path, "list", "--gateway-url", "http://127.0.0.1:1")
    assert refused.returncode == 2
    assert "Secrets Manager" in refused.stderr


def test_a_value_that_a_cell_prints_is_masked_in_all_that_a_client_gets(
    agent: NotebookClient,
) -> None:
    run = agent.execute(
        "import os, sys, subprocess\ntoken = os.environ['CONN_gh_TOKEN']\n"
        "for letter in token: print(letter, end='', flush=True)\n"
        "print(token, file=sys.stderr); subprocess.run(['printenv', 'CONN_gh_TOKEN'])\n"
        "raise RuntimeError(token)"
    )
    assert VALUE not in json.dumps(run.messages)
    assert run.stdout.count(LABEL) == 2


def test_a_value_reaches_the_records_by_no_way_that_a_cell_says_something(
    shared: Gateway, agent: NotebookClient
) -> None:
    """What the serving process masks is all that the gateway gets, and so all that it records."""
    agent.execute(
        "import getpass, os, sys, warnings, ipywidgets\n"
        "token = os.environ['CONN_gh_TOKEN']\n"
        "os.write(1, token.encode()); warnings.warn(token)\n"
        "display({'text/plain': 'x'}, raw=True, metadata={'alt': token})\n"
        "handle = display(1, display_id=True); handle.update(token)\n"
        "display(ipywidgets.Text(value=token, description=token))\n"
        "getpass.getpass(token); input(token)\n"
        "class Stuck:\n    def __reduce__(self): raise ValueError(token)\n"
        "lost = Stuck(); token",
        user_expressions={"a": "token", "b": "1/0 if token else 1", "c": "{token: token}"},
        answers=("typed-as-a-password", "typed-by-the-user"),
    )
    agent.execute("raise type(os.environ['CONN_gh_TOKEN'], (Exception,), {})(token)")
    # Where a cell is stopped while it holds back what may be the beginning of a value.
    agent.execute(f"print({VALUE[:-1]!r}, end=''); os._exit(1)", stop_on_error=True)
    trail = shared.rest("GET", f"/api/kernels/{agent.kernel_id}/trail.ipynb", token=TOKENS["root"])
    assert trail.status_code == 200
    entries = [
        base64.b64decode(entry["payload"]).decode()
        for cell in trail.json()["cells"]
        for entry in cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    ]
    # Who opened it, two of each cell, and one that connectors can be read from the first on.
    assert len(entries) == 8
    assert sum(text.count(LABEL) for text in entries) >= 8
    assert VALUE not in trail.text
    assert not any(VALUE in text or "typed-as-a-password" in text for text in entries)
    with shared.owners_client("s3") as s3:
        assert objects_with(VALUE, s3) == []


def test_a_value_is_in_the_cells_process_and_nowhere_else(
    shared: Gateway, agent: NotebookClient
) -> None:
    agent.execute(
        "import os, pathlib\ntoken = os.environ['CONN_gh_TOKEN']; everything = dict(os.environ)\n"
        "print(token); (pathlib.Path.home() / 'x').write_text('y'); open('x', 'w').write('y')"
    )
    inside = agent.execute(
        "import glob\nfound = []\n"
        "for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try:\n        found += [path] * (b'CONN_' in open(path, 'rb').read())\n"
        "    except OSError: pass\nfound"
    )
    assert inside.result == "[]"
    assert processes_with(VALUE) == []
    assert files_with(VALUE, shared.state_dir) == ["secrets/lkg-connector-creds-a1.json"]
    with shared.owners_client("s3") as s3:
        assert objects_with(VALUE, s3) == []


def processes_with(text: str) -> list[str]:
    """Return the files of this machine's processes that hold ``text``, as far as we may read."""
    found = []
    for path in [*Path("/proc").glob("[0-9]*/environ"), *Path("/proc").glob("[0-9]*/cmdline")]:
        try:
            if text.encode() in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found


def files_with(text: str, folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    )


def objects_with(text: str, s3: Any) -> list[str]:
    found = []
    for bucket in ("lkg-workspaces", "lkg-state", "lkg-records", "lkg-overflow"):
        for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
            if text.encode() in body:
                found.append(entry["Key"])
    return found


def test_a_replay_sees_the_value_only_with_connectors_and_says_it_nowhere(
    shared: Gateway, agent: NotebookClient
) -> None:
    agent.execute("1 + 1")
    seen = agent.execute(
        "import hashlib, os\ntoken = os.environ['CONN_gh_TOKEN']\n"
        "print(token); hashlib.sha256(token.encode()).hexdigest()"
    )
    assert seen.result == repr(hashlib.sha256(VALUE.encode()).hexdigest())
    reports = {}
    for connected in (False, True):
        body = {"kernel_id": agent.kernel_id, "connectors": connected}
        answer = shared.rest("POST", "/api/replays", token=TOKENS["u1"], json=body)
        assert answer.status_code == 200, answer.text
        assert VALUE not in answer.text
        reports[connected] = answer.json()

    withheld, given = (reports[connected]["cells"] for connected in (False, True))
    assert [cell["standing"] for cell in withheld] == ["identical", "unavailable"]
    assert ("connector-withheld", "gh") in [(r["code"], r["where"]) for r in withheld[1]["reasons"]]
    # The digest of the very value, by a cell of the replay.
    assert [cell["standing"] for cell in given] == ["identical", "identical"]
    for kernel_id in (kernel for report in reports.values() for kernel in report["kernels"]):
        path = f"/api/kernels/{kernel_id}/trail.ipynb"
        trail = shared.rest("GET", path, token=TOKENS["root"])
        assert trail.status_code == 200
        assert VALUE not in trail.text
    with shared.owners_client("s3") as s3:
        assert objects_with(VALUE, s3) == []
    for token in ("u10", "root"):
        body = {"kernel_id": agent.kernel_id, "connectors": True}
        refused = shared.rest("POST", "/api/replays", token=TOKENS[token], json=body)
        assert refused.status_code in (403, 404)


def test_every_session_is_short_named_after_its_cell_and_used_once(
    shared: Gateway, agent: NotebookClient
) -> None:
    agent.execute("1")
    agent.execute("2")
    text = (shared.state_dir / "logs" / "aws" / "sts" / "assume-role.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    cells = [r for r in records if r["role_arn"].endswith("sandbox-scoped-role")]
    names = [record["role_session_name"] for record in cells]
    assert len(names) == len(set(names)) >= 2
    assert all(re.fullmatch(r"[\w+=,.@-]{2,64}", name) for name in names)
    assert any(name.startswith(f"lkg-{agent.kernel_id[:8]}-") for name in names)
    assert {record["duration_s"] for record in cells} == {1020}
    assert all(json.loads(record["policy"])["Statement"] for record in cells)


def test_the_governed_prefix_is_mirrored_read_only(shared: Gateway, agent: NotebookClient) -> None:
    run = agent.execute(
        "import os; p = '.governed/table.csv'; open(p).read(), oct(os.stat(p).st_mode & 0o777)"
    )
    assert run.result == "('1,2', '0o444')"
    run = agent.execute("os.chmod(p, 0o644); open(p, 'w').write('changed')")
    assert "changes under .governed/ are not stored: '.governed/table.csv'" in json.dumps(
        run.messages
    )
    assert agent.execute("open(p).read()").result == "'1,2'"
    with shared.owners_client("s3") as s3:
        listed = s3.list_object_versions(Bucket="lkg-workspaces", Prefix=GOVERNED)
        assert [v["Key"] for v in listed["Versions"]] == [f"{GOVERNED}table.csv"]


def test_objects_of_a_run_are_tagged_with_run_kernel_and_agent(shared: Gateway) -> None:
    client = shared.session(token=TOKENS["u1-a1"], env={"LAMBDA_KERNEL_RUN": "r-7"})
    client.execute("import os; open('small', 'w').write('x'); os.makedirs('empty')")
    client.close()
    with shared.owners_client("s3") as s3:
        prefix = "users/u1/default/runs/r-7/"
        listed = s3.list_objects_v2(Bucket="lkg-workspaces", Prefix=prefix)["Contents"]
        tags = {
            entry["Key"].removeprefix(prefix): s3.get_object_tagging(
                Bucket="lkg-workspaces", Key=entry["Key"]
            )["TagSet"]
            for entry in listed
        }
    assert set(tags) == {"small", "empty/"}
    # SeaweedFS keeps no tags of a folder's own object.
    assert {tag["Key"]: tag["Value"] for tag in tags["small"]} == {
        "run": "r-7",
        "kernel": client.kernel_id,
        "agent": "a1",
    }
