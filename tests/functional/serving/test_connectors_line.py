"""Connector values in one invocation: where they are, and where they must not be."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Status
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.connectors import Connectors
from lambda_kernel.serving.container import Container
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.memory import MemoryObjectStore, MemorySecretReader

STACK = Stack()
TOKEN = "ghp_0123456789abcdef"
LABEL = "[CONN_gh_TOKEN]"
Kernel = Any
SHOW = "import os; sorted(n for n in os.environ if n.startswith('CONN_'))"

TAKES = """
import os, sys, subprocess
from IPython.display import HTML, display
token = os.environ['CONN_gh_TOKEN']
"""
PRINTS = """
print(token, file=sys.stderr)
display(HTML(token))
raise ValueError(token)
"""


@pytest.fixture
def agent(kernel: Kernel, secrets_reader: MemorySecretReader) -> Kernel:
    """A kernel of an agent that has two connectors."""
    stored = {"gh": {"TOKEN": TOKEN, "USER": "bob"}, "jira": {"KEY": "jira-key-value"}}
    secrets_reader.secrets[STACK.connector_secret("a1")] = json.dumps(stored)
    kernel.scope = Scope(user="u1", agent="a1")
    return kernel


def test_a_cell_of_the_agent_has_its_connectors(agent: Kernel) -> None:
    assert agent.run(SHOW).result == "['CONN_gh_TOKEN', 'CONN_gh_USER', 'CONN_jira_KEY']"
    assert agent.run(f"os.environ['CONN_gh_TOKEN'] == {TOKEN!r}").result == "True"


def test_a_role_that_may_not_read_the_secret_is_told_once_and_the_cell_runs(
    agent: Kernel, secrets_reader: MemorySecretReader
) -> None:
    secrets_reader.refused.add(STACK.connector_secret("a1"))
    answer = agent.run(SHOW)
    assert answer.result == "[]"
    told = answer.text("stderr")
    assert told.count("[connectors]") == 1
    assert "secretsmanager:GetSecretValue" in told
    assert STACK.scoped_role in told


def test_only_named_connectors_come_and_missing_ones_are_told(agent: Kernel) -> None:
    answer = agent.run(SHOW, connectors=("jira", "slack"))
    assert answer.result == "['CONN_jira_KEY']"
    assert "[connectors] connector slack is not set" in answer.text("stderr")


def test_without_an_agent_nothing_is_asked(
    kernel: Kernel, secrets_reader: MemorySecretReader
) -> None:
    assert kernel.run(SHOW).result == "[]"
    assert secrets_reader.asked == []


def test_an_agent_without_connectors_has_none(
    kernel: Kernel, secrets_reader: MemorySecretReader
) -> None:
    kernel.scope = Scope(user="u1", agent="a10")
    answer = kernel.run(SHOW)
    assert (answer.result, answer.text("stderr")) == ("[]", "")
    assert secrets_reader.asked == ["lkg-connector-creds-a10"]


def test_another_scope_on_the_same_container_finds_nothing(agent: Kernel) -> None:
    agent.run("import os; token = os.environ['CONN_gh_TOKEN'].upper()")
    agent.scope, agent.kernel_id, agent.head = Scope(user="u1"), agent.kernel_id[:-1] + "3", None
    assert agent.run(SHOW).result == "[]"


def test_a_secret_that_cannot_be_read_means_that_nothing_starts(
    kernel: Kernel, container: Container
) -> None:
    class Unreachable:
        def read(self, name: str) -> None:
            raise StorageUnavailable(f"Secrets Manager did not answer for {name}")

    kernel.scope = Scope(user="u1", agent="a1")
    kernel.container = replace(container, connectors=Connectors(Unreachable(), STACK))
    answer = kernel.run("1")
    assert (answer.outcome.status, answer.outcome.started) == (Status.STORAGE_UNAVAILABLE, False)
    assert "Secrets Manager" in answer.outcome.message
    assert answer.kinds == ["OUTCOME"]


def test_values_are_masked_in_all_that_a_cell_says(agent: Kernel) -> None:
    answer = agent.run(TAKES + PRINTS)
    said = [frame.data for frame in answer.frames]
    assert TOKEN not in json.dumps(said)
    assert answer.text("stderr").count(LABEL) == 1
    assert answer.contents("display_data")[0]["data"]["text/html"] == LABEL
    (error,) = answer.contents("error")
    assert error["evalue"] == LABEL
    assert answer.outcome.status is Status.ERROR


@pytest.mark.parametrize(
    "prints",
    [
        "for letter in token:\n    print(letter, end='', flush=True)",
        "os.write(1, token[:5].encode())\nos.write(1, token[5:].encode())",
        "_ = subprocess.run(['printenv', 'CONN_gh_TOKEN'])",
    ],
    ids=["letter by letter", "two writes to the descriptor", "a program"],
)
def test_values_are_masked_where_they_come_in_pieces(agent: Kernel, prints: str) -> None:
    answer = agent.run(TAKES + prints)
    assert answer.text("stdout").strip() == LABEL


def test_results_and_replies_are_masked(agent: Kernel) -> None:
    invocation = agent.invocation("import os; os.environ['CONN_gh_TOKEN']")
    content = {**invocation.msg.content, "user_expressions": {"t": "os.environ['CONN_gh_TOKEN']"}}
    answer = agent.send(replace(invocation, msg=replace(invocation.msg, content=content)))
    assert answer.result == f"'{LABEL}'"
    (reply,) = [f.data for f in answer.frames if f.kind.name == "REPLY"]
    assert reply["content"]["user_expressions"]["t"]["data"]["text/plain"] == f"'{LABEL}'"


def test_masking_can_be_switched_off(agent: Kernel, container: Container) -> None:
    settings = replace(container.settings, mask_connectors=False)
    agent.container = replace(container, settings=settings)
    assert agent.run("import os; os.environ['CONN_gh_TOKEN']").result == repr(TOKEN)


def variables_of(kernel: Kernel, store: MemoryObjectStore) -> bytes:
    """Return the kernel's stored variables, unpacked."""
    body = store.body(STACK.state, keys.commit_key(kernel.scope, kernel.kernel_id, kernel.seq))
    namespace = Commit.from_bytes(body or b"").namespace
    session = kernel.container.snapshots.open(kernel.scope, namespace)
    try:
        found = session.places(stored.id for stored in namespace.objects)
        return b"".join(place.read() for _, places in found for place in places)
    finally:
        session.close()


def test_nothing_that_is_stored_or_logged_holds_a_value(
    agent: Kernel, store: MemoryObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    agent.run(
        "import os\nfrom pathlib import Path\n"
        "token = os.environ['CONN_gh_TOKEN']; everything = dict(os.environ)\n"
        "os.environ['MINE'] = 'kept'; Path.home().joinpath('f').write_text('x')\n"
        "print(token); Path('out.txt').write_text('y')"
    )
    assert agent.run("os.environ['MINE'], 'everything' in globals()").result == "('kept', False)"
    stored = b"".join(v.body or b"" for versions in store.versions.values() for v in versions)
    stored += variables_of(agent, store)
    assert b"kept" in stored
    for text in (stored, caplog.text.encode(), repr(caplog.records).encode()):
        assert TOKEN.encode() not in text
        assert b"jira-key-value" not in text


def test_the_governed_prefix_is_there_read_only_and_never_stored(
    kernel: Kernel, container: Container, store: MemoryObjectStore
) -> None:
    stack = Stack(governed_read_prefix="shared/reference/")
    kernel.container = replace(container, settings=replace(container.settings, stack=stack))
    for name in ("a.csv", "deep/b.csv", "c.csv"):
        store.put(stack.workspaces, f"shared/reference/{name}", b"1")
    answer = kernel.run(
        "import os; from pathlib import Path\n"
        "files = sorted(Path('.governed').rglob('*.csv'))\n"
        "[f.name for f in files], {oct(f.stat().st_mode & 0o777) for f in files}"
    )
    assert answer.result == "(['a.csv', 'c.csv', 'b.csv'], {'0o444'})"
    assert answer.text("stderr") == ""
    answer = kernel.run(
        "a = Path('.governed/a.csv'); a.chmod(0o644); a.write_text('changed')\n"
        "Path('.governed/new').write_text('x'); Path('.governed/c.csv').unlink()"
    )
    notice = answer.text("stderr")
    assert "changes under .governed/ are not stored" in notice
    for name in ("a.csv", "new", "c.csv"):
        assert f"'.governed/{name}'" in notice
    assert answer.outcome.files == ()
    assert store.keys(stack.workspaces, "users/") == []
    assert store.body(stack.workspaces, "shared/reference/a.csv") == b"1"
    answer = kernel.run("Path('.governed/a.csv').read_text(), sorted(os.listdir('.governed'))")
    assert answer.result == "('1', ['a.csv', 'c.csv', 'deep'])"
    assert answer.text("stderr") == ""


def test_a_folder_called_governed_is_reserved_and_told(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    answer = kernel.run("import os; os.mkdir('.governed'); open('.governed/x', 'w').write('1')")
    assert "'.governed/x'" in answer.text("stderr")
    assert store.keys(STACK.workspaces) == []
    answer = kernel.run("open('.governed-mine', 'w').write('1'); 2")
    assert store.keys(STACK.workspaces) == [
        f"{keys.workspace_prefix('u1', 'default')}.governed-mine"
    ]


def test_restored_files_of_a_run_keep_its_tags(kernel: Kernel, store: MemoryObjectStore) -> None:
    kernel.run("open('r', 'w').write('old')", run="r1")

    def refuse(operation: str, key: str) -> None:
        if operation == "put" and "/kernels/" in key:
            raise StorageUnavailable("S3 did not answer")

    store.refuse = refuse
    kernel.run("open('r', 'w').write('new')", run="r1")
    versions = store.versions[STACK.workspaces, "users/u1/default/runs/r1/r"]
    assert [v.body for v in versions] == [b"old", b"new", b"old"]
    assert all(v.tags == {"run": "r1", "kernel": kernel.kernel_id} for v in versions)


SCAN = """
import ctypes
mark, rest = bytes(c ^ 1 for c in {mark!r}), {rest!r}
hits = 0
for line in open('/proc/self/maps'):
    span, mode, *_ = line.split()
    if not mode.startswith('rw') or '[v' in line:
        continue
    start, end = (int(part, 16) for part in span.split('-'))
    data = ctypes.string_at(start, end - start)
    at = data.find(mark)
    while at >= 0:
        tail = data[at + len(mark):at + len(mark) + len(rest)]
        hits += bytes(c ^ 1 for c in tail) == rest
        at = data.find(mark, at + 1)
    del data
hits
"""


def test_the_zygotes_memory_has_nothing_of_the_cells_before(agent: Kernel) -> None:
    flipped = bytes(c ^ 1 for c in TOKEN.encode())
    scan = SCAN.format(mark=flipped[:5], rest=flipped[5:])
    assert int(agent.run(scan).result) > 0, "a cell of the agent finds its own value"
    agent.scope, agent.kernel_id, agent.head = Scope(user="u1"), agent.kernel_id[:-1] + "3", None
    assert agent.run(scan).result == "0"
    assert agent.run(scan).result == "0"
