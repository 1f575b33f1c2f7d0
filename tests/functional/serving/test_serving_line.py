"""One invocation from narrow to outcome, with real children and storage in memory."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lambda_kernel.contract import control, frames, keys
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.frames import FrameKind
from lambda_kernel.contract.invocation import Invocation, Limits
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Status
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import handler, leftovers
from lambda_kernel.serving.container import Container
from lambda_kernel.serving.credentials import Credentials
from lambda_kernel.serving.errors import CredentialsExpired, StorageUnavailable
from lambda_kernel.serving.line import Cell
from lambda_kernel.serving.memory import MemoryObjectStore, MemoryRoleAssumer
from lambda_kernel.serving.runtime_api import Event
from tests.functional.serving.conftest import plain, tell

STACK = Stack()
SAY = """
import os, socket, struct, time
def say(text):
    body = struct.pack("!II", 1, len(text)) + text
    socket.socket(fileno=os.dup(900)).sendall(struct.pack("!I", len(body)) + body)
    time.sleep(20)
"""
GARBAGE = ("process_died", "sent garbage")
BAD_REPLY = b'{"kind":"reply","msg_type":"execute_reply","content":{"status":"ok","payload":3}}'
BAD_MESSAGES = [
    ("stream", {"name": "stdout", "text": 1}),
    ("stream", {"name": "x", "text": "1"}),
    ("display_data", {"data": 1}),
    ("error", {"ename": 1, "evalue": "", "traceback": "x"}),
    ("comm_open", {"comm_id": 1}),
    ("status", {"execution_state": "idle"}),
]
TOO_DEEP = ("process_died", "nested too deeply")
ROOT = "users/u1/default/"
Kernel = Any


def commit_of(store: MemoryObjectStore, kernel: Kernel, seq: int) -> Commit | None:
    body = store.body(STACK.state, keys.commit_key(kernel.scope, kernel.kernel_id, seq))
    return None if body is None else Commit.from_bytes(body)


def test_variables_files_and_home_are_there_in_the_next_cell(kernel: Kernel) -> None:
    kernel.run(
        "from pathlib import Path; x = 41; Path('a.txt').write_text('file')\n"
        "Path.home().joinpath('h').write_text('home')"
    )
    answer = kernel.run("x + 1, Path('a.txt').read_text(), Path.home().joinpath('h').read_text()")
    assert answer.result == "(42, 'file', 'home')"
    assert answer.outcome.status is Status.OK


def test_the_reply_follows_the_commit_and_the_outcome_is_last(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    answer = kernel.run("print('hi')")
    assert answer.kinds == ["STARTED", "MESSAGE", "REPLY", "OUTCOME"]
    commit = commit_of(store, kernel, 1)
    assert commit is not None
    assert commit.reply["content"]["status"] == "ok"
    assert commit.outcome is not None


def test_a_cell_that_raises_commits_what_ran_before(kernel: Kernel) -> None:
    answer = kernel.run("y = 1\n1 / 0")
    assert (answer.outcome.status, answer.outcome.committed) == (Status.ERROR, True)
    assert answer.contents("error")[0]["ename"] == "ZeroDivisionError"
    assert kernel.run("y").result == "1"


def test_only_changed_files_are_stored(kernel: Kernel, store: MemoryObjectStore) -> None:
    kernel.run("open('a', 'w').write('1'); open('b', 'w').write('1')")
    answer = kernel.run("open('a').read(); open('b', 'w').write('2'); open('c', 'w').write('3')")
    told = {change.path: change.change for change in answer.outcome.files}
    assert told == {"b": "modified", "c": "created"}
    assert store.keys(STACK.workspaces) == [f"{ROOT}{name}" for name in "abc"]


def test_a_deleted_file_stays_deleted_and_recoverable(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("open('a', 'w').write('1')")
    kernel.run("import os; os.remove('a')")
    assert kernel.run("os.listdir('.')").result == "[]"
    assert [v.body for v in store.versions[STACK.workspaces, f"{ROOT}a"]] == [b"1", None]


def test_empty_folders_modes_and_times_survive(kernel: Kernel) -> None:
    kernel.run(
        "import os; os.makedirs('d/e'); open('s', 'w').write('x'); os.chmod('s', 0o755)\n"
        "os.utime('s', ns=(5, 1_000_000_007))"
    )
    answer = kernel.run(
        "s = os.stat('s'); os.path.isdir('d/e'), oct(s.st_mode & 0o777), s.st_mtime_ns"
    )
    assert answer.result == "(True, '0o755', 1000000007)"


def test_a_shared_mapping_that_changes_no_time_is_seen(kernel: Kernel) -> None:
    kernel.run("open('m', 'wb').write(b'0' * 4096)")
    kernel.run(
        "import mmap\nwith open('m', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "    m[0]; m[0:1] = b'1'"
    )
    assert kernel.run("open('m', 'rb').read(2)").result == "b'10'"


def test_what_is_not_mirrored_is_never_deleted(kernel: Kernel, store: MemoryObjectStore) -> None:
    for name in ("p/a", "q/b"):
        store.put(STACK.workspaces, ROOT + name, b"1")
    answer = kernel.run("import os; sorted(os.listdir('.'))", projects=("p",))
    assert answer.result == "['p']"
    assert store.keys(STACK.workspaces) == [f"{ROOT}p/a", f"{ROOT}q/b"]


def test_special_files_are_named_and_not_followed(kernel: Kernel, store: MemoryObjectStore) -> None:
    answer = kernel.run(
        "import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe')\n"
        "open('a\\nb', 'w').close()"
    )
    assert store.keys(STACK.workspaces) == []
    notices = answer.text("stderr")
    assert "'link'" in notices
    assert "'pipe'" in notices
    assert "control characters" in notices


def test_a_workspace_that_does_not_fit_names_its_largest_folders(
    kernel: Kernel, container: Container, store: MemoryObjectStore
) -> None:
    store.put(STACK.workspaces, f"{ROOT}big/x", b"x" * 2000)
    store.put(STACK.workspaces, f"{ROOT}small", b"x")
    kernel.container = replace(
        container, settings=replace(container.settings, ephemeral_bytes=1000)
    )
    outcome = kernel.run("1").outcome
    assert (outcome.status, outcome.started) == (Status.WORKSPACE_TOO_LARGE, False)
    assert "big/" in outcome.message


def test_objects_of_a_run_are_tagged(kernel: Kernel, store: MemoryObjectStore) -> None:
    kernel.scope = Scope(user="u1", agent="a1")
    kernel.run("open('r', 'w').write('1')", run="r1")
    (version,) = store.versions[STACK.workspaces, f"{ROOT}runs/r1/r"]
    assert version.tags == {"run": "r1", "kernel": kernel.kernel_id, "agent": "a1"}


def test_each_invocation_has_its_own_narrowed_session(kernel: Kernel, container: Container) -> None:
    kernel.run("1")
    kernel.run("1")
    assumer = container.assumer
    assert isinstance(assumer, MemoryRoleAssumer)
    names = [name for name, _, _ in assumer.assumed]
    assert len(set(names)) == 2
    assert all("users/u1/" in policy for _, policy, _ in assumer.assumed)


def test_an_unreachable_sts_means_that_nothing_started(
    kernel: Kernel, container: Container
) -> None:
    kernel.container = replace(container, assumer=MemoryRoleAssumer(refuse=True))
    answer = kernel.run("1")
    assert (answer.outcome.status, answer.outcome.started) == (Status.STORAGE_UNAVAILABLE, False)
    assert answer.kinds == ["OUTCOME"]


def test_a_container_whose_own_credentials_have_run_out_ends_itself(
    kernel: Kernel, container: Container
) -> None:
    class Expired:
        def assume(self, session_name: str, policy: str, duration_s: int) -> Credentials:
            raise CredentialsExpired("they have run out")

    kernel.container = replace(container, assumer=Expired())
    answer = kernel.run("1")
    assert (answer.outcome.status, answer.outcome.started) == (Status.STORAGE_UNAVAILABLE, False)
    assert not answer.usable


def test_a_failed_commit_undoes_its_files_and_lists_their_versions(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("x = 1; open('a', 'w').write('old')")

    def refuse(operation: str, key: str) -> None:
        if operation == "put" and "/kernels/" in key:
            raise StorageUnavailable("S3 did not answer")

    store.refuse = refuse
    answer = kernel.run("x = 2; open('a', 'w').write('new'); open('b', 'w').write('new')")
    store.refuse = lambda operation, key: None
    assert (answer.outcome.status, answer.outcome.committed) == (Status.STORAGE_UNAVAILABLE, False)
    assert answer.outcome.started
    assert "a (v" in answer.outcome.message
    assert "REPLY" not in answer.kinds
    assert kernel.run("import os; x, open('a').read(), os.listdir('.')").result == (
        "(1, 'old', ['a'])"
    )


def test_a_number_that_is_taken_is_a_conflict(kernel: Kernel, store: MemoryObjectStore) -> None:
    store.put(STACK.state, keys.commit_key(kernel.scope, kernel.kernel_id, 1), b"void")
    assert kernel.run("1").outcome.status is Status.COMMIT_CONFLICT


def test_a_commit_that_was_sent_twice_meets_itself(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    original = store.put

    def twice(bucket: str, key: str, body: Any, **fields: Any) -> Any:
        if "/kernels/" in key:
            original(bucket, key, body, **fields)
        return original(bucket, key, body, **fields)

    store.put = twice  # type: ignore[method-assign]
    assert kernel.run("1").outcome.committed


def test_a_changed_home_is_not_kept_by_a_cell_that_did_not_commit(kernel: Kernel) -> None:
    kernel.run("from pathlib import Path; Path.home().joinpath('h').write_text('1')")
    kernel.run("Path.home().joinpath('h').write_text('2'); import os; os._exit(1)")
    assert kernel.run("Path.home().joinpath('h').read_text()").result == "'1'"


def test_no_other_scope_finds_a_home_on_disk(kernel: Kernel, container: Container) -> None:
    kernel.run("from pathlib import Path; Path.home().joinpath('h').write_text('1')")
    (first,) = container.homes.on_disk
    other = type(kernel)(container, scope=Scope(user="u1", agent="a1"))
    answer = other.run(f"import os; os.path.exists({first!r}), os.listdir(os.path.expanduser('~'))")
    assert answer.result == "(False, [])"
    assert kernel.run("Path.home().joinpath('h').read_text()").result == "'1'"


def test_an_execution_scope_begins_with_an_empty_home(kernel: Kernel) -> None:
    kernel.scope = Scope(user="u1", execution=kernel.kernel_id)
    kernel.run("import os; p = os.path.expanduser('~/h'); open(p, 'w').write('1')")
    assert kernel.run("os.path.exists(p)").result == "False"


def test_a_container_with_a_failed_probe_runs_nothing(kernel: Kernel, container: Container) -> None:
    kernel.container = replace(container, probe=replace(container.probe, non_dumpable=False))
    outcome = kernel.run("1").outcome
    assert (outcome.status, outcome.started) == (Status.PROBE_FAILED, False)


def test_a_completion_changes_nothing(kernel: Kernel, store: MemoryObjectStore) -> None:
    kernel.run("counted = 1")
    answer = kernel.run("count", kind="complete", commit=False)
    assert answer.frames[-2].data["content"]["matches"][0] == "counted"
    assert commit_of(store, kernel, 2) is None


def test_what_runs_for_a_question_is_not_heard(kernel: Kernel) -> None:
    kernel.run(
        "import os\n"
        "class Loud:\n"
        "    def __dir__(self):\n"
        "        print('printed'); display(1); os.write(2, b'written')\n"
        "        return ['said']\n"
        "loud = Loud()"
    )

    answer = kernel.run("loud.sa", kind="complete", commit=False)

    assert answer.reply["matches"] == ["said"]
    assert "MESSAGE" not in answer.kinds


def test_a_question_beside_a_running_cell_does_not_undo_its_uploads(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("open('f', 'w').write('1')")
    running = kernel.invocation("open('f', 'w').write('2')")
    key = f"{running.write_prefix}f"
    stamp = {"cell": leftovers.stamp(running)}
    store.put(STACK.workspaces, key, b"of the running cell", metadata=stamp)

    kernel.run("import", kind="complete", commit=False)

    assert store.get(STACK.workspaces, key) == b"of the running cell"


def test_a_request_that_went_through_the_overflow_bucket_is_verified(
    kernel: Kernel, container: Container, store: MemoryObjectStore
) -> None:
    invocation = kernel.invocation("1 + 1")
    body = json.dumps(invocation.to_dict()).encode()
    store.put(STACK.overflow, keys.request_key(invocation.request_id), body)
    pointer = {
        "request_id": invocation.request_id,
        "digest": hashlib.sha256(body).hexdigest(),
        "size_bytes": len(body),
    }
    sent: list[bytes] = []

    class Stream:
        def send(self, chunk: bytes) -> None:
            sent.append(chunk)

    event = {"schema": 1, "pointer": pointer}
    handler.handle(
        Event(aws_request_id="r", deadline_ms=0, body=json.dumps(event).encode()),
        Stream(),
        container,
    )
    key = frames.invocation_key(container.frame_key, invocation.request_id, invocation.nonce)
    *_, last = frames.FrameReader(key).feed(b"".join(sent))
    assert last.data["status"] == "ok"


def test_an_invalid_invocation_is_refused_with_the_field_named(
    kernel: Kernel, container: Container
) -> None:
    invocation = kernel.invocation("1")
    data = invocation.to_dict() | {"workspace": "../x"}
    sent: list[bytes] = []

    class Stream:
        def send(self, chunk: bytes) -> None:
            sent.append(chunk)

    handler.handle(
        Event(aws_request_id="r", deadline_ms=0, body=json.dumps(data).encode()),
        Stream(),
        container,
    )
    key = frames.invocation_key(container.frame_key, invocation.request_id, invocation.nonce)
    (frame,) = frames.FrameReader(key).feed(b"".join(sent))
    assert frame.data["status"] == "invalid_request"
    assert "workspace" in frame.data["message"]


def test_a_foreign_write_prefix_is_refused(kernel: Kernel) -> None:
    answer = kernel.run("1", write_prefix="users/u1/other/")
    assert answer.outcome.status is Status.INVALID_REQUEST


def test_nothing_is_left_of_the_working_directory(kernel: Kernel) -> None:
    kernel.run("import os; os.makedirs('a/b'); os.chmod('a', 0)")
    assert not Path(f"/tmp/.aa-work-{kernel.workdir_name}").exists()


def test_a_cell_that_touches_no_file_costs_one_list_one_get_and_one_put(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("x = 1")
    parent = store.body(STACK.state, keys.commit_key(kernel.scope, kernel.kernel_id, 1)) or b""
    store.calls.clear()
    kernel.run("x", manifest=base64.b64encode(parent).decode())
    operations = [operation for operation, key in store.calls if not key.startswith("control/")]
    assert sorted(operations) == ["get", "list", "put"]


def order(store: MemoryObjectStore, invocation: Invocation, name: str) -> None:
    tell(store, invocation, control.INTERRUPT, {"order": name})


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(600)",
        "while True: pass",
        "import asyncio; await asyncio.sleep(600)",
        "import asyncio, time; await asyncio.sleep(0); time.sleep(600)",
        "import asyncio, time\nasync def f(): time.sleep(600)\nawait asyncio.create_task(f())",
        "import asyncio; await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))",
    ],
)
def test_an_interrupt_ends_the_cell_and_commits_what_it_did(
    kernel: Kernel, store: MemoryObjectStore, code: str
) -> None:
    invocation = kernel.invocation(
        f"x = 1; open('f', 'w').close(); print('go', flush=True)\n{code}"
    )
    kernel.on_text["go"] = lambda: order(store, invocation, "interrupt")
    answer = kernel.send(invocation)
    assert (answer.outcome.status, answer.outcome.committed) == (Status.ERROR, True)
    (error,) = answer.contents("error")
    assert error["ename"] == answer.reply["ename"] == "KeyboardInterrupt"
    assert code.splitlines()[-1] in plain("".join(error["traceback"]))
    assert kernel.run("import os; x, os.listdir('.')").result == "(1, ['f'])"


def test_an_order_to_kill_ends_the_cell_and_commits_nothing(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    invocation = kernel.invocation("x = 1; print('go', flush=True)\nimport time; time.sleep(600)")
    kernel.on_text["go"] = lambda: order(store, invocation, "kill")
    outcome = kernel.send(invocation).outcome
    assert (outcome.status, outcome.committed) == (Status.INTERRUPTED, False)
    assert store.keys(STACK.overflow) == []


STUBBORN = """
import time
x = 2
while True:
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        print("no", flush=True)
"""


def test_code_that_goes_on_after_an_interrupt_is_killed_by_the_second(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    invocation = kernel.invocation(f"print('go', flush=True)\n{STUBBORN}")
    kernel.on_text["go"] = lambda: order(store, invocation, "interrupt")
    kernel.on_text["no"] = lambda: order(store, invocation, "kill")
    answer = kernel.send(invocation)
    assert (answer.outcome.status, answer.outcome.committed) == (Status.INTERRUPTED, False)
    assert answer.text("stdout") == "go\nno\n"
    assert "it went on after an interrupt" in answer.outcome.message


def test_code_that_goes_on_after_its_time_is_killed(kernel: Kernel) -> None:
    kernel.run("x = 1")
    answer = kernel.run(STUBBORN, limits=Limits(timeout_s=12, commit_grace_s=8))
    assert (answer.outcome.status, answer.outcome.committed) == (Status.TIMEOUT, False)
    assert answer.text("stdout") == "no\n"
    assert kernel.run("x").result == "1"


@pytest.mark.parametrize("code", ["time.sleep(600)", "subprocess.run(['sleep', '600'])"])
def test_a_cell_whose_time_is_over_commits_what_it_did(kernel: Kernel, code: str) -> None:
    kernel.run("'what comes first takes longer'")
    answer = kernel.run(
        f"import subprocess, time\nx = 1; open('f', 'w').close()\n{code}",
        limits=Limits(timeout_s=20, commit_grace_s=16),
    )
    (error,) = answer.contents("error")
    assert (answer.outcome.status, answer.outcome.committed) == (Status.ERROR, True)
    assert error["ename"] == answer.reply["ename"] == "CellTimeout"
    assert "did not finish within 4 s" in error["evalue"]
    assert "up to the interrupt are kept" in error["evalue"]
    assert "sleep" in "".join(error["traceback"])
    assert kernel.run("import os; x, os.listdir('.')").result == "(1, ['f'])"


def test_an_error_that_the_time_limit_caused_is_told_beside_it(kernel: Kernel) -> None:
    code = "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    1 / 0"
    answer = kernel.run(code, limits=Limits(timeout_s=20, commit_grace_s=16))
    assert answer.reply["ename"] == "CellTimeout"
    assert "its own error was ZeroDivisionError: division by zero" in answer.reply["evalue"]


def test_an_error_that_came_before_the_time_was_over_is_the_users(kernel: Kernel) -> None:
    answer = kernel.run("1 / 0", limits=Limits(timeout_s=60, commit_grace_s=6))
    assert answer.reply["ename"] == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("source", "limits", "status", "said"),
    [
        (
            "import signal, time; signal.signal(2, signal.SIG_DFL); time.sleep(600)",
            Limits(timeout_s=2, commit_grace_s=1),
            "timeout",
            "1 s",
        ),
        ("import os; os._exit(3)", Limits(), "process_died", "exit status 3"),
        ("import os; os.kill(os.getpid(), 11)", Limits(), "process_died", "SIGSEGV"),
        (
            "b = bytearray(700 * 1024**2)\nimport time; time.sleep(600)",
            Limits(memory_bytes=300 * 1024**2),
            "out_of_memory",
            "limit",
        ),
        (f"{SAY}say(b'{{\"kind\":' + b'[' * 900 + b']' * 900 + b'}}')", Limits(), *TOO_DEEP),
        (f"{SAY}say(b'{{\"kind\": NaN}}')", Limits(), "process_died", "sent garbage"),
        (f'{SAY}say(b\'{{"kind": "message", "n": 1e999}}\')', Limits(), *GARBAGE),
        (f"{SAY}say({BAD_REPLY!r})", Limits(), "process_died", "sent a malformed reply"),
        (
            f'{SAY}say(b\'{{"kind": "snapshot", "size_bytes": "1"}}\')',
            Limits(),
            "process_died",
            "sent a malformed snapshot report",
        ),
        (
            "import os; b = os.urandom(10**6)",
            Limits(snapshot_bytes=10**5),
            "snapshot_too_large",
            "workspace; what the cell did to variables is lost: x (changed), os (added), "
            "b (added); what it changed: files: late (created)",
        ),
    ],
)
def test_a_cell_that_does_not_end_well_leaves_the_session_as_it_was(
    kernel: Kernel, source: str, limits: Limits, status: str, said: str
) -> None:
    kernel.run("x = 1")
    outcome = kernel.run(f"x = 2; open('late', 'w').close()\n{source}", limits=limits).outcome
    assert (outcome.status.value, outcome.committed, outcome.started) == (status, False, True)
    assert said in outcome.message
    assert kernel.run("import os; x, os.listdir('.')").result == "(1, [])"


def test_messages_that_no_client_could_read_are_left_out_and_told(kernel: Kernel) -> None:
    said = [
        json.dumps({"kind": "message", "msg_type": msg_type, "content": content}).encode()
        for msg_type, content in BAD_MESSAGES
    ]
    say = SAY.replace("time.sleep(20)", "")
    answer = kernel.run(f"{say}for text in {said!r}: say(text)\nprint('on')")

    shown = [f.data["msg_type"] for f in answer.frames if f.kind is FrameKind.MESSAGE]
    assert set(shown) == {"stream"}
    assert answer.text("stdout") == "on\n"
    assert answer.text("stderr") == "[output] 6 malformed messages of the cell were left out\n"
    assert answer.outcome.committed


def test_lines_that_are_flushed_one_by_one_come_in_few_messages(kernel: Kernel) -> None:
    answer = kernel.run("for i in range(30_000): print(i, flush=True)")
    assert answer.text("stdout") == "".join(f"{i}\n" for i in range(30_000))
    assert len(answer.contents("stream")) < 3000


def test_a_killed_zygote_is_replaced(kernel: Kernel) -> None:
    kernel.run("x = 1")
    outcome = kernel.run("import os; os.kill(os.getppid(), 9); os._exit(0)").outcome
    assert outcome.status is Status.PROCESS_DIED
    assert kernel.run("x").result == "1"


def test_a_stopped_zygote_costs_no_committed_cell(kernel: Kernel) -> None:
    answer = kernel.run("import os; x = 5; os.kill(os.getppid(), 19)")
    assert answer.outcome.committed
    assert kernel.run("x").result == "5"


def test_an_output_flood_is_cut_with_a_notice_and_its_error_is_seen(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    answer = kernel.run(
        "import os\nfor _ in range(200): os.write(1, b'z' * 10000)\n1 / 0",
        limits=Limits(output_bytes=100_000),
    )
    assert len(answer.text("stdout")) <= 100_000
    assert "[output] the limit of 0.1 MB was reached" in answer.text("stderr")
    assert answer.contents("error")[0]["ename"] == "ZeroDivisionError"
    key = keys.output_key(kernel.scope, kernel.kernel_id, kernel.seq)
    assert store.body(STACK.state, key) == b"z" * 1024**2
    assert "its first 1.0 MB are kept: GET /api/kernels/" in answer.text("stderr")


def test_raw_output_is_decoded_across_reads(kernel: Kernel) -> None:
    answer = kernel.run("import os; os.write(1, 'é'.encode()[:1]); os.write(1, 'é'.encode()[1:])")
    assert answer.text("stdout") == "é"


def test_threads_and_descriptors_do_not_grow_from_cell_to_cell(kernel: Kernel) -> None:
    for _ in range(3):
        kernel.run("1")
    before = (len(list(Path("/proc/self/fd").iterdir())), threading.active_count())
    for _ in range(5):
        kernel.run("1")
    after = (len(list(Path("/proc/self/fd").iterdir())), threading.active_count())
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 8
    assert os.getpid() not in kernel.container.sweeper.strangers()


def test_nothing_holds_a_cell_that_was_answered(kernel: Kernel) -> None:
    kernel.run("import os; os.write(1, b'x'); y = 1")
    kernel.run("y")
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Cell)]


def test_a_home_with_its_own_version_of_a_package_gets_a_zygote_without_it(
    kernel: Kernel, container: Container
) -> None:
    first = kernel.run("import os; os.getppid()").result
    kernel.run(
        "import site, sys, pathlib; v = f'python{sys.version_info[0]}.{sys.version_info[1]}'\n"
        "p = pathlib.Path.home() / '.local' / 'lib' / v / 'site-packages'\n"
        "p.mkdir(parents=True); (p / 'colorsys.py').write_text('mine = 1')"
    )
    kernel.container = replace(container, shadowable=frozenset({"colorsys"}))
    assert kernel.run("os.getppid()").result != first
    kernel.container = container
    assert kernel.run("os.getppid()").result == first
