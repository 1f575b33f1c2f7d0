"""HOME and workspace where something goes wrong, with real children and storage in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Status
from lambda_kernel.serving.container import Container
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.homes import HomeLimits, Homes
from lambda_kernel.serving.memory import MemoryObjectStore

STACK = Stack()
ROOT = "users/u1/default/"
Kernel = Any


def other_container(kernel: Kernel, store: MemoryObjectStore, tmp_path: Path) -> Container:
    root = tmp_path / "elsewhere"
    root.mkdir(exist_ok=True)
    own: Container = kernel.container
    return replace(own, homes=Homes(store, STACK.state, own.pool, str(root)))


def test_a_home_whose_head_was_not_written_is_that_of_the_commit(
    kernel: Kernel, store: MemoryObjectStore, tmp_path: Path
) -> None:
    def refuse(operation: str, key: str) -> None:
        if operation == "put" and key.endswith("home/head"):
            raise StorageUnavailable("S3 did not answer")

    store.refuse = refuse
    answer = kernel.run("from pathlib import Path; (Path.home() / 'h').write_text('1')")
    store.refuse = lambda operation, key: None
    assert answer.outcome.status is Status.OK
    kernel.container = other_container(kernel, store, tmp_path)
    assert kernel.run("(Path.home() / 'h').read_text()").result == "'1'"


def test_a_home_of_a_cell_whose_commit_failed_is_as_before_it(
    kernel: Kernel, store: MemoryObjectStore, tmp_path: Path
) -> None:
    kernel.run("from pathlib import Path; (Path.home() / 'h').write_text('1')")

    def refuse(operation: str, key: str) -> None:
        if operation == "put" and "/kernels/" in key:
            raise StorageUnavailable("S3 did not answer")

    store.refuse = refuse
    kernel.run("(Path.home() / 'h').write_text('2'); (Path.home() / 'new').mkdir()")
    store.refuse = lambda operation, key: None
    source = "(Path.home() / 'h').read_text(), len(list(Path.home().iterdir()))"
    assert kernel.run(source).result == "('1', 1)"
    kernel.container = other_container(kernel, store, tmp_path)
    assert kernel.run(source).result == "('1', 1)"


def test_a_home_that_is_too_large_is_told_and_as_before_in_the_next_cell(
    kernel: Kernel, store: MemoryObjectStore, tmp_path: Path
) -> None:
    own = other_container(kernel, store, tmp_path)
    limits = HomeLimits(saved_bytes=10_000)
    homes = Homes(store, STACK.state, own.pool, str(tmp_path / "elsewhere"), limits)
    kernel.container = replace(own, homes=homes)
    answer = kernel.run(
        "from pathlib import Path; (Path.home() / 'big').write_bytes(bytes(20_000))"
    )
    assert answer.outcome.committed
    assert "[home] HOME measures" in answer.text("stderr")
    assert "not saved" in answer.outcome.message
    assert kernel.run("list(Path.home().iterdir())").result == "[]"


def test_a_completion_leaves_no_trace_in_home(kernel: Kernel) -> None:
    kernel.run(
        "from pathlib import Path\n"
        "class Evil:\n"
        "    def __dir__(self):\n"
        "        (Path.home() / 'h').write_text('1')\n"
        "        return ['abc']\n"
        "evil = Evil()"
    )
    kernel.run("evil.a", kind="complete", commit=False)
    assert kernel.run("list(Path.home().iterdir())").result == "[]"


def test_a_file_that_another_kernel_changed_meanwhile_is_told(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    original = store.put

    def overtake(bucket: str, key: str, body: Any, **fields: Any) -> Any:
        store.put = original  # type: ignore[method-assign]
        original(STACK.workspaces, f"{ROOT}f", b"theirs")
        return original(bucket, key, body, **fields)

    store.put = overtake  # type: ignore[method-assign]
    answer = kernel.run("open('f', 'w').write('ours')")
    assert "changed by somebody else while the cell ran" in answer.text("stderr")
    assert [v.body for v in store.versions[STACK.workspaces, f"{ROOT}f"]] == [b"theirs", b"ours"]


def test_what_a_killed_serving_process_had_stored_is_no_part_of_the_session(
    kernel: Kernel, store: MemoryObjectStore
) -> None:
    kernel.run("open('a', 'w').write('committed')")
    lost = kernel.invocation("1")
    stamp = f"{lost.kernel_id}/{lost.seq}/{lost.request_id}"
    for name in "ab":
        store.put(STACK.workspaces, ROOT + name, b"lost", metadata={"cell": stamp})
    answer = kernel.run("import os; open('a').read(), os.listdir('.')")
    assert answer.result == "('committed', ['a'])"
    assert "stored or deleted by a cell that was lost" in answer.text("stderr")
