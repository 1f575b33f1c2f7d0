"""A session's variables on the line: what is fetched and stored, and what lies."""

from __future__ import annotations

import pytest

from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.keys import commit_key
from lambda_kernel.contract.outcome import Status
from lambda_kernel.serving.memory import MemoryObjectStore
from tests.functional.serving.conftest import STACK, Kernel

# What the cell's process has beside its standard streams: as take_descriptors puts them.
OPEN = """
import array, json, os, socket, struct
numbers = sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) >= 900)
frames_fd, in_fd, out_fd, pager_fd = numbers[:4]

def say(**data):
    text = json.dumps(data).encode()
    body = struct.pack('!II', 1, len(text)) + text
    socket.socket(fileno=os.dup(frames_fd)).sendall(struct.pack('!I', len(body)) + body)

def header():
    length = int.from_bytes(os.pread(in_fd, 8, 0), 'big')
    return json.loads(os.pread(in_fd, length, 8))

def want(*ids):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(fileno=os.dup(pager_fd)) as channel:
        socket.send_fds(channel, [json.dumps({'want': ids}).encode()], [theirs.fileno()])
    theirs.close()
    text, fds, _, _ = socket.recv_fds(ours, 65536, 64)
    return json.loads(text), fds
"""


def commit_of(kernel: Kernel, store: MemoryObjectStore) -> Commit:
    body = store.body(STACK.state, commit_key(kernel.scope, kernel.kernel_id, kernel.seq))
    return Commit.from_bytes(body or b"")


def forget(kernel: Kernel) -> None:
    """Go on as in a fresh container."""
    kernel.container.snapshots._shelf.cache.clear()


def test_bytes_fetched_and_stored_are_counted(kernel: Kernel) -> None:
    first = kernel.run("x = b'0123456789' * 1_000_000").outcome
    assert first.stored_bytes >= 10_000_000
    assert first.fetched_bytes == 0
    assert kernel.run("1").outcome.fetched_bytes == 0
    forget(kernel)
    assert kernel.run("len(x)").outcome.fetched_bytes >= 10_000_000


def test_a_session_without_large_variables_costs_no_request_but_the_commit(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("x = 1")
    forget(kernel)
    store.calls.clear()
    outcome = kernel.run("x += 1").outcome
    assert (outcome.fetched_bytes, outcome.stored_bytes) == (0, 0)
    assert not [key for _, key in store.calls if "/blobs/" in key]


def test_a_cell_gets_objects_of_its_session_and_no_others(kernel: Kernel) -> None:
    kernel.run("x = bytes(300_000)")
    ids = kernel.run(OPEN + "[i for i, size, _ in header()['objects'] if size > 300_000]").result
    answer = kernel.run(OPEN + "a, fds = want(header()['objects'][0][0]); a['fds'], a['more']")
    assert ids.startswith("[")
    assert answer.result == "(1, False)"
    assert kernel.run(OPEN + "want(10**6)[0]").result == "{'error': 'there is no object 1000000'}"


FORGED = {
    "an object that never was": "size_bytes=0, index=99, keep=[99], new=[], patched=[], lost=[]",
    "bytes that were not written": "size_bytes=2**30, index=9, new=[[9, 0, 5]], lost=[]",
    "overlapping bytes": "size_bytes=4, index=9, new=[[9, 0, 4], [10, 0, 4]], lost=[]",
    "no report": "names={}",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_report_ends_the_cell_uncommitted(kernel: Kernel, name: str) -> None:
    kernel.run("x = 1")
    reply = "say(kind='reply', msg_type='execute_reply', content={'status': 'ok'}, metadata={})"
    forged = f"say(kind='snapshot', {FORGED[name]})"
    answer = kernel.run(f"{OPEN}\n{reply}\n{forged}\nos._exit(0)")
    assert answer.outcome.status is Status.PROCESS_DIED
    assert not answer.outcome.committed
    assert kernel.run("x").result == "1"


def test_a_cell_that_seals_its_own_file_ends_uncommitted(kernel: Kernel) -> None:
    kernel.run("x = 1")
    answer = kernel.run(
        f"{OPEN}\nimport fcntl\nfcntl.fcntl(out_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)"
    )
    assert answer.outcome.status is Status.PROCESS_DIED
    assert kernel.run("x").result == "1"


def test_a_map_of_a_process_that_is_swept_does_not_survive(kernel: Kernel) -> None:
    answer = kernel.run(
        f"{OPEN}\nimport mmap, time\nos.ftruncate(out_fd, 4096)\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); view = mmap.mmap(out_fd, 4096); time.sleep(60)"
    )
    assert answer.outcome.committed
    assert not answer.outcome.tainted


def test_a_flood_of_questions_ends_with_the_cell(kernel: Kernel) -> None:
    answer = kernel.run(
        f"{OPEN}\nours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "with socket.socket(fileno=os.dup(pager_fd)) as channel:\n"
        "    channel.setblocking(False)\n"
        "    for _ in range(20_000):\n"
        "        try:\n"
        "            socket.send_fds(channel, [b'{\"want\":[1]}'], [theirs.fileno()])\n"
        "        except OSError:\n"
        "            pass\n"
    )
    assert answer.outcome.committed
    assert kernel.run("1 + 1").result == "2"


def test_a_commit_names_objects_and_an_index(kernel: Kernel, store: MemoryObjectStore) -> None:
    kernel.run("x = 1")
    namespace = commit_of(kernel, store).namespace
    assert namespace.index in {stored.id for stored in namespace.objects}
