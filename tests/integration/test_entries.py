"""What the entries of a real session hold, and that the same seeds give the same outputs."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
from typing import TYPE_CHECKING, Any

from tests.integration.test_journal import RECORDS, journal_of

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient

CELLS = (
    "import random, numpy as np\nprint(random.random(), np.random.random(), hash('x'))",
    "deck = list(range(20)); random.shuffle(deck)\nprint(deck, np.random.default_rng().random())",
    "print(np.random.default_rng().random(), {'alpha', 'beta', 'gamma', 'delta'})",
    "import subprocess, sys\ncode = \"print(hash('x'))\"\n"
    "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)",
    "import time, os\nprint(time.tzname, os.environ['LC_ALL'], os.environ['SOURCE_DATE_EPOCH'])",
)


def events_of(gateway: Gateway, kernel_id: str) -> list[dict[str, Any]]:
    found = []
    # Answered once what has just been said is written.
    head = gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/head")
    assert head.ok, head.text
    for stored in journal_of(gateway, kernel_id):
        entry = json.loads(base64.b64decode(json.loads(stored)["payload"]))
        found.append({"type": entry["type"], **entry["event"]})
    return found


def blob(gateway: Gateway, kernel_id: str, digest: str) -> bytes:
    with gateway.owners_client("s3") as s3:
        answer = s3.get_object(Bucket=RECORDS, Key=f"audit/{kernel_id}/b/{digest}")
        body: bytes = answer["Body"].read()
    assert hashlib.sha256(body).hexdigest() == digest
    return body


def run(client: NotebookClient) -> list[str]:
    return [client.execute(code).stdout for code in CELLS]


def test_a_session_has_its_own_seeds_and_a_restart_draws_new_ones(gateway: Gateway) -> None:
    one, other = gateway.session(), gateway.session()
    first = run(one)
    second = run(other)
    assert gateway.rest("POST", f"/api/kernels/{one.kernel_id}/restart").ok
    again = run(one)
    one.close()
    other.close()

    drawn = {tuple(printed[:3]) for printed in (first, second, again)}
    assert len(drawn) == 3
    assert len({tuple(printed[3:]) for printed in (first, second, again)}) == 1
    assert first[0].split()[2] == first[3].strip()
    assert first[4] == "('UTC', 'UTC') C.UTF-8 946684800\n"
    starts = [e for e in events_of(gateway, one.kernel_id) if e["type"] == "cell_started"]
    seeds = [json.dumps(start["gateway"]["seeds"]) for start in starts]
    assert len(set(seeds[:5])) == len(set(seeds[5:])) == 1
    assert seeds[0] != seeds[-1]


def test_a_fork_goes_on_with_the_numbers_of_its_source(gateway: Gateway) -> None:
    source = gateway.session()
    source.execute("import random, numpy as np\nnp.random.default_rng().random()")
    fork = gateway.session(env={"LAMBDA_KERNEL_FROM": source.kernel_id})
    code = "random.random(), np.random.random(), np.random.default_rng().random()"

    assert fork.execute(code).result == source.execute(code).result
    assert events_of(gateway, fork.kernel_id)[1]["gateway"]["seeds"] == {}
    source.close()
    fork.close()


def test_an_entry_says_where_a_cell_ran_with_what_and_as_whom(gateway: Gateway) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "entries"})
    # Long enough for its memory to be sampled.
    client.execute(
        "import time; held = bytearray(20_000_000); time.sleep(0.3); del held\n"
        "open('in.txt', 'w').write('hello')"
    )
    client.execute("open('in.txt').read()")
    client.close()

    _, start, end, start_2, end_2 = events_of(gateway, client.kernel_id)

    assert start["gateway"]["caller"]["user_agent"].startswith("Python/")
    assert start["gateway"]["gateway_version"]
    credentials = start["gateway"]["credentials"]
    policy = blob(gateway, client.kernel_id, credentials["policy_template"]).decode()
    text = policy.replace("{request_id}", start["request_id"])
    assert hashlib.sha256(text.encode()).hexdigest() == credentials["policy_digest"]
    assert start_2["gateway"]["credentials"]["policy_template"] == credentials["policy_template"]
    said = end["handler"]
    packages = json.loads(blob(gateway, client.kernel_id, said["packages"]))["packages"]
    assert [name for name in packages if name.startswith("ipykernel-")]
    seen = said["witness"]
    assert seen["begun_ms"] <= seen["ended_ms"]
    assert seen["credentials_expire"]
    assert seen["container"]["architecture"] == platform.machine()
    assert seen["container"]["function_arn"].startswith("arn:aws:lambda:")
    assert seen["container"]["function_version"] == "$LATEST"
    assert seen["container"]["variables"]["PYTHONHASHSEED"] == "0"
    assert seen["container"]["variables"]["TZ"] == "UTC"
    assert said["inputs"]["count"] == 0
    assert said["peak_memory_bytes"] > 0
    inputs = end_2["handler"]["inputs"]
    assert (inputs["count"], inputs["as_committed"]) == (1, True)
    (file,) = end["handler"]["workspace"]["files"]
    row = [file["key"], file["version_id"], file["digest"], file["size_bytes"]]
    listed = json.dumps({"files": [row]}, separators=(",", ":")).encode()
    assert hashlib.sha256(listed).hexdigest() == inputs["digest"]
    assert file["version_id"]


def test_files_that_came_from_elsewhere_are_inputs_and_many_are_an_object(
    gateway: Gateway,
) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "entries-2"})
    client.execute("1")
    upload = gateway.rest("PUT", "/api/workspaces/entries-2/files/new.txt", data=b"from outside")
    assert upload.ok, upload.text
    client.execute("for i in range(210): open(f'f{i}', 'w').write(str(i))")
    client.execute("len(__import__('os').listdir())")
    client.close()

    ends = [e for e in events_of(gateway, client.kernel_id) if e["type"] == "cell_finished"]

    brought = ends[1]["handler"]["inputs"]
    assert brought["as_committed"] is False
    assert [file["key"].rpartition("/")[2] for file in brought["files"]] == ["new.txt"]
    assert brought["files"][0]["digest"] == hashlib.sha256(b"from outside").hexdigest()
    left, found = ends[1]["handler"]["workspace"], ends[2]["handler"]["inputs"]
    assert left["count"] == found["count"] == 211
    assert left["blob"] == found["blob"] == found["digest"]
    assert len(json.loads(blob(gateway, client.kernel_id, left["blob"]))["files"]) == 211

    fork = gateway.session(
        env={"LAMBDA_KERNEL_WORKSPACE": "entries-2", "LAMBDA_KERNEL_FROM": client.kernel_id}
    )
    fork.execute("1")
    fork.close()
    (end,) = [e for e in events_of(gateway, fork.kernel_id) if e["type"] == "cell_finished"]
    assert end["handler"]["inputs"]["blob"] == left["blob"]
    assert blob(gateway, fork.kernel_id, left["blob"])
