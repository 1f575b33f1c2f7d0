"""Redaction, removal and Object Lock of a session's journal, on real parts."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.integration.driver import COMMAND, Gateway, a_gateway
from tests.integration.test_journal import RECORDS
from tests.integration.test_trail import command

KEY = "sk-live-0123456789abcdef"
AUDIT = """
[audit]
removable = true
redact = { api-key = "sk-live-[0-9a-f]{16}" }
"""


@contextmanager
def configured(folder: Path, text: str) -> Iterator[Gateway]:
    config = folder / "config.toml"
    config.write_text(text)
    with a_gateway(folder / "state", "--config", str(config)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with configured(tmp_path_factory.mktemp("kept"), AUDIT) as gateway:
        yield gateway


def start(state_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a gateway that refuses to start."""
    return subprocess.run(
        [COMMAND, "--port", "0", "--state-dir", str(state_dir), *arguments],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def recorded(gateway: Gateway) -> list[str]:
    """Return all that the bucket has of cells, entries as they were signed."""
    with gateway.owners_client("s3") as s3:
        found = s3.list_objects_v2(Bucket=RECORDS).get("Contents", ())
        bodies = [s3.get_object(Bucket=RECORDS, Key=each["Key"])["Body"].read() for each in found]
    return [
        base64.b64decode(json.loads(body)["payload"]).decode() if body.startswith(b'{"payload"')
        else body.decode()
        for body in bodies
    ]  # fmt: skip


def test_a_pattern_never_reaches_the_records_and_the_client_sees_all(
    kept: Gateway, tmp_path: Path
) -> None:
    client = kept.session()
    run = client.execute(
        f"key = '{KEY}'\n"
        "import sys, os, subprocess, warnings\n"
        "print(key, flush=True)\n"
        "for part in key: print(part, end='', flush=True)\n"
        "os.write(1, key.encode()); print(key, file=sys.stderr)\n"
        "subprocess.run(['echo', key]); warnings.warn(key)\n"
        "display({'text/html': f'<b>{key}</b>'}, raw=True, metadata={'alt': key})\n"
        "open(f'{key}.txt', 'w').write('x')\n"
        "raise ValueError(key)",
        user_expressions={"a": "key"},
    )
    # What they find, are more files than an entry holds.
    client.execute("for number in range(210): open(f'f{number}', 'w').write('x')")
    client.execute("open('another', 'w').write('x')")
    client.close()
    file = tmp_path / "s.jsonl"
    where = ["--format", "intoto", "--output", str(file)]
    exported = command(kept, "trail", "export", client.kernel_id, *where)
    assert exported.returncode == 0, exported.stderr
    found = command(kept, "trail", "list", "--path", "[redacted:api-key].txt")
    assert client.kernel_id in found.stdout

    assert KEY in run.stdout
    assert KEY in run.error
    stored = [*recorded(kept), file.read_text(), found.stdout]
    lists = [json.loads(text)["files"] for text in stored if text.startswith('{"files":[')]
    assert [name for rows in lists for name, *_ in rows if "[redacted:api-key]" in name]
    assert not any(KEY in text for text in stored)
    assert sum(text.count("[redacted:api-key]") for text in stored) >= 12
    verified = command(kept, "trail", "verify", client.kernel_id)
    assert verified.returncode == 0, verified.stdout


def test_what_a_cell_said_is_removed_and_the_trail_verifies(kept: Gateway, tmp_path: Path) -> None:
    client = kept.session()
    client.execute("print('the patient is called', 'Meyer')")
    client.execute("print('another')")
    client.close()
    command(kept, "trail", "verify", client.kernel_id)  # waits until the end is written
    assert any("the patient is called Meyer" in text for text in recorded(kept))

    removed = command(
        kept, "trail", "remove-content", client.kernel_id, "--cell", "1", "--reason", "Art. 17"
    )

    assert removed.returncode == 0, removed.stderr
    assert not any("the patient is called Meyer" in text for text in recorded(kept))
    file = tmp_path / "trail.ipynb"
    exported = command(
        kept, "trail", "export", client.kernel_id, "--output", str(file), "--with-blobs"
    )
    assert exported.returncode == 0, exported.stderr
    verified = command(kept, "trail", "verify", str(file))
    assert verified.returncode == 0, verified.stdout
    assert "content-removed: cell 2 of the file, [1]: local removed" in verified.stdout
    assert "Art. 17" in verified.stdout
    # Without an entry that says so, it is not a removal.
    with kept.owners_client("s3") as s3:
        prefix = f"audit/{client.kernel_id}/b/"
        for each in s3.list_objects_v2(Bucket=RECORDS, Prefix=prefix)["Contents"]:
            body = s3.get_object(Bucket=RECORDS, Key=each["Key"])["Body"].read()
            if b"another" in body:
                s3.delete_object(Bucket=RECORDS, Key=each["Key"])
    missing = command(kept, "trail", "verify", client.kernel_id)
    assert missing.returncode == 3
    assert "content-missing" in missing.stdout


def test_object_lock_holds_what_was_written(tmp_path: Path) -> None:
    lock = '[audit]\nremovable = true\nretention_days = 1\nobject_lock = "GOVERNANCE:7d"\n'
    with configured(tmp_path, lock) as gateway:
        client = gateway.session()
        client.execute("print('kept')")
        client.close()
        # Which also waits until the cell's end is written.
        verified = command(gateway, "trail", "verify", client.kernel_id)
        assert verified.returncode == 0, verified.stdout
        with gateway.owners_client("s3") as s3:
            entries = s3.list_objects_v2(Bucket=RECORDS, Prefix=f"audit/{client.kernel_id}/")
            found = [each["Key"] for each in entries["Contents"]]
            held = [key for key in found if not key.endswith("trail.ipynb")]
            # Three entries; what was said, the session policy, the list of packages.
            assert len(held) == 6
            for key in held:
                head = s3.head_object(Bucket=RECORDS, Key=key)
                assert head["ObjectLockMode"] == "GOVERNANCE"
                with pytest.raises(ClientError) as refused:
                    s3.delete_object(Bucket=RECORDS, Key=key, VersionId=head["VersionId"])
                assert refused.value.response["Error"]["Code"] == "AccessDenied"

        removed = command(gateway, "trail", "remove-content", client.kernel_id, "--reason", "x")

        assert removed.returncode == 1
        assert "Object Lock" in removed.stderr


def test_a_bucket_that_was_made_without_it_is_refused_at_the_start(kept: Gateway) -> None:
    folder = kept.state_dir.parent
    config = folder / "lock.toml"
    config.write_text('[audit]\nobject_lock = "GOVERNANCE:7d"\n')

    deployment = kept.state_dir / "run" / "deployment.json"
    refused = start(folder / "other", "--config", str(config), "--deployment", str(deployment))

    assert refused.returncode == 2
    assert "was not made for Object Lock" in refused.stderr
    assert "start with another --state-dir" in refused.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('redact = ["(a"]', "audit.redact '1': '(a' is no regular expression of RE2"),
        ("needed = true", "audit.needed"),
    ],
)
def test_a_wrong_option_is_a_clear_error_at_the_start(tmp_path: Path, text: str, why: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[audit]\n{text}\n")

    refused = start(tmp_path / "state", "--config", str(config))

    assert refused.returncode == 2
    assert why in refused.stderr
    assert str(config) in refused.stderr
