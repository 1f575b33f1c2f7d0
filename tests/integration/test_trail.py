"""A session's trail on real parts: exported, verified offline and against the journal."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

from tests.integration.driver import COMMAND, Gateway
from tests.integration.test_journal import RECORDS, journal_of


def command(gateway: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--state-dir", str(gateway.state_dir)]
    return subprocess.run(
        [COMMAND, *arguments, *where], capture_output=True, text=True, check=False, timeout=100
    )


def facts_of(notebook: Any, number: int) -> tuple[Any, Any]:
    """Return the two events of a code cell as its entries say them."""
    cell = [c for c in notebook["cells"] if c["cell_type"] == "code"][number]
    entries = cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    events = [json.loads(base64.b64decode(e["payload"]))["event"] for e in entries]
    return events[0], events[-1]


def test_a_session_is_proven_by_one_file(gateway: Gateway, tmp_path: Path) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "audited"})
    client.execute("x = 6 * 7\nx")
    client.execute("open('made.txt', 'w').write('hello')")
    client.execute("1 / 0")
    client.execute("print('y' * 700_000)")
    client.close()
    file, keys = tmp_path / "trail.ipynb", tmp_path / "keys.json"
    keys.write_text(command(gateway, "keys", "export").stdout)

    exported = command(
        gateway, "trail", "export", client.kernel_id, "--output", str(file), "--with-blobs"
    )
    assert exported.returncode == 0, exported.stderr
    text = file.read_text()
    trail = json.loads(text)
    nbformat.validate(nbformat.from_dict(trail))
    started, finished = facts_of(trail, 1)
    known = started["gateway"]
    assert known["session"]["workspace"] == "audited"
    assert known["caller"].pop("user_agent").startswith("Python/")
    assert known["caller"] == {
        "user": "local", "agent": None, "admin": True, "auth": "token", "client": "websocket",
    }  # fmt: skip
    assert known["environment"]["function"] == "lkg-env-default"
    assert known["credentials"]["role_arn"].endswith("sandbox-scoped-role")
    assert known["network"] == "none"
    (change,) = finished["handler"]["files"]
    assert (change["path"], change["change"]) == ("made.txt", "created")
    assert change["version_id"]
    (mirrored,) = finished["handler"]["workspace"]["files"]
    assert mirrored["digest"] == change["digest"]
    assert finished["handler"]["probe"]["tier"] == "namespaces"
    last_start, last_end = facts_of(trail, 3)
    assert {blob.name for blob in (tmp_path / "blobs" / "sha256").iterdir()} == {
        last_end["outputs"]["blob"],
        last_end["handler"]["packages"],
        last_start["gateway"]["credentials"]["policy_template"],
    }

    offline = command(gateway, "trail", "verify", str(file), "--keys", str(keys))
    assert offline.returncode == 0, offline.stdout
    assert "cut off" in offline.stdout
    whole = command(gateway, "trail", "verify", str(file), "--journal", "--json")
    assert whole.returncode == 0, whole.stdout
    assert json.loads(whole.stdout)["against_journal"] is True
    file.write_text(text.replace("1 / 0", "1 / 1", 1))
    changed = command(gateway, "trail", "verify", str(file), "--keys", str(keys))
    assert changed.returncode == 3
    assert "source-changed" in changed.stdout

    assert gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}").status_code == 204
    ended = command(gateway, "trail", "verify", client.kernel_id)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    file.write_text(text)
    older = command(gateway, "trail", "verify", str(file), "--journal")
    assert older.returncode == 3
    assert "truncated" in older.stdout


def test_a_key_that_is_rotated_under_a_running_gateway_signs_the_next_cell(
    gateway: Gateway,
) -> None:
    client = gateway.session()
    client.execute("1")
    assert command(gateway, "keys", "rotate").returncode == 0
    client.execute("2")
    client.close()

    verified = command(gateway, "trail", "verify", client.kernel_id, "--json")

    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert len(json.loads(verified.stdout)["keys"]) == 2


def test_an_entry_that_was_changed_in_the_journal_is_found(gateway: Gateway) -> None:
    client = gateway.session()
    client.execute("1")
    client.execute("2")
    client.close()
    first, *_ = journal_of(gateway, client.kernel_id)
    with gateway.owners_client("s3") as s3:
        s3.put_object(
            Bucket=RECORDS,
            Key=f"audit/{client.kernel_id}/j/00000001.json",
            Body=first.replace(b'"sig":"', b'"sig":"AAAA'),
        )

    verified = command(gateway, "trail", "verify", client.kernel_id)

    assert verified.returncode == 3
    assert "entry-changed" in verified.stdout


def test_a_notebook_that_is_no_trail_is_called_that_before_any_key_is_missed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), file)
    for words in (["trail", "verify"], ["replay"]):
        where = ["--state-dir", str(tmp_path / "none")]
        done = subprocess.run(
            [COMMAND, *words, str(file), *where],
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        assert done.returncode == 2
        assert "is a notebook, but no trail" in done.stderr
    assert not (tmp_path / "none").exists()


def test_nbconvert_opens_a_trail(gateway: Gateway, tmp_path: Path) -> None:
    client = gateway.session()
    client.execute("print('said')")
    client.close()
    command(gateway, "trail", "export", client.kernel_id, "--output", str(tmp_path / "trail.ipynb"))

    html, _ = HTMLExporter().from_filename(  # type: ignore[no-untyped-call]
        str(tmp_path / "trail.ipynb")
    )

    assert "said" in html
    assert client.kernel_id in html
