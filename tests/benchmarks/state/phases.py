"""A session in one process that forks for each cell: CPU time of restore, run and save.

``python -m tests.benchmarks.state.phases`` reads jobs as JSON lines and prints results; it is a
process of its own, so that what a zygote must not do (threads, other imports) stays outside.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from lambda_kernel.child import cell_history
from lambda_kernel.child.capture import FrameChannel
from lambda_kernel.child.kernel import build_kernel
from lambda_kernel.child.side_state import Baseline
from lambda_kernel.child.state.memory import open_pagemap
from lambda_kernel.child.state.session import Session
from lambda_kernel.child.warm_up import run_warm_up, warm_stand_by, warm_up
from lambda_kernel.contract import paging
from lambda_kernel.contract.commit import CHUNK_BYTES
from lambda_kernel.contract.snapshot_report import SnapshotReport
from tests.benchmarks.state.operations import CellCost

AT_HAND_BYTES = 64 * 1024
SNAPSHOT_BYTES = 16 * 1024**3
PAGEMAP_FD = 100
PRELOAD = ("numpy", "pandas")
Piece = tuple[int, int, int]


class Store:
    """The objects of a session, as pieces of the files that cells have written."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[Piece]] = {}
        self._index = 0
        self.asked_bytes = 0

    def snapshot_in(self) -> int:
        """Return a file with what is at hand."""
        descriptor = os.memfd_create("in")
        if self._index:
            sizes = {number: _size(pieces) for number, pieces in self._pieces.items()}
            at_hand = {n for n, size in sizes.items() if size < AT_HAND_BYTES} | {self._index}
            bodies = {number: self._read(number) for number in at_hand}
            paging.write_snapshot_in(descriptor, self._index, sizes, bodies)
        return descriptor

    def commit(self, report: SnapshotReport, written: int) -> None:
        """Take what a cell wrote; ``written`` stays open."""
        pieces = {number: self._pieces[number] for number in report.keep}
        for new in report.new:
            pieces[new.id] = [(written, new.offset, new.size_bytes)]
        for patched in report.patched:
            chunks = _cut(self._pieces[patched.base])
            for number, offset in patched.chunks:
                chunks[number] = (written, offset, chunks[number][2])
            pieces[patched.id] = chunks
        self._pieces, self._index = pieces, report.index

    def answer(self, pager: socket.socket) -> None:
        """Answer until the child and its copies are gone."""
        with pager:
            while True:
                question, descriptors, _, _ = socket.recv_fds(pager, 65536, 1)
                if not question:
                    return
                wanted = json.loads(question)["want"]
                with socket.socket(fileno=descriptors[0]) as asker:
                    for position, number in enumerate(wanted):
                        self._send(asker, number, position < len(wanted) - 1)

    def _send(self, asker: socket.socket, number: int, more: bool) -> None:
        pieces = self._pieces[number]
        self.asked_bytes += _size(pieces)
        files = list(dict.fromkeys(piece[0] for piece in pieces))
        told = [[files.index(file), offset, size] for file, offset, size in pieces]
        answer = {"objects": [[number, told]], "fds": len(files), "more": more}
        socket.send_fds(asker, [json.dumps(answer).encode()], files)

    def _read(self, number: int) -> bytes:
        return b"".join(os.pread(file, size, offset) for file, offset, size in self._pieces[number])


def _size(pieces: list[Piece]) -> int:
    return sum(size for _, _, size in pieces)


def _cut(pieces: list[Piece]) -> list[Piece]:
    return [
        (file, offset + start, min(CHUNK_BYTES, size - start))
        for file, offset, size in pieces
        for start in range(0, size, CHUNK_BYTES)
    ]


class Cells:
    """One session; each cell runs in a fork of this process.

    Args:
        kernel: a warm one, as a zygote has.
        with_pagemap: whether dirty pages are found by the page table, not by comparison.
    """

    def __init__(self, kernel: Any, with_pagemap: bool = True) -> None:
        self._kernel = kernel
        self._with_pagemap = with_pagemap
        self._store = Store()
        self._count = 1
        self._written: list[int] = []

    def run(self, code: str) -> CellCost:
        """Run one cell (raises RuntimeError: it failed)."""
        snapshot_in, told = self._store.snapshot_in(), os.memfd_create("told")
        snapshot_out = os.memfd_create("out")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked_before = self._store.asked_bytes
        child = os.fork()
        if not child:
            ours.close()
            self._child(code, snapshot_in, snapshot_out, theirs.fileno(), told)
        theirs.close()
        pager = threading.Thread(target=self._store.answer, args=(ours,))
        pager.start()
        os.waitpid(child, 0)
        pager.join()
        with os.fdopen(told) as file:
            result = json.loads(os.pread(file.fileno(), 1 << 28, 0))
        os.close(snapshot_in)
        if "error" in result:
            raise RuntimeError(result["error"])
        report = SnapshotReport.from_dict(result["report"])
        self._store.commit(report, snapshot_out)
        self._written.append(snapshot_out)
        self._count += 1
        return CellCost(
            **result["times"],
            asked_bytes=self._store.asked_bytes - asked_before,
            written_bytes=report.size_bytes,
        )

    def close(self) -> None:
        """Give the memory of all cells back."""
        for descriptor in self._written:
            os.close(descriptor)

    def _child(self, code: str, snapshot_in: int, snapshot_out: int, pager: int, told: int) -> None:
        try:
            result = self._measure(code, snapshot_in, snapshot_out, pager)
        except BaseException:  # noqa: BLE001  (whatever it is, the parent tells it)
            result = {"error": traceback.format_exc()}
        os.write(told, json.dumps(result).encode())
        os._exit(0)

    def _measure(
        self, code: str, snapshot_in: int, snapshot_out: int, pager: int
    ) -> dict[str, Any]:
        shell = self._kernel.cell_shell
        # As a child that was forked ahead does while it waits.
        ahead = time.process_time()
        warm_stand_by(self._kernel)
        laps = [time.process_time()]
        began = time.perf_counter()
        pagemap = open_pagemap(PAGEMAP_FD) if self._with_pagemap else None
        baseline = Baseline.here(str(Path.cwd()), shell)
        session = Session(shell, baseline, SNAPSHOT_BYTES, {}, pagemap)
        session.restore(snapshot_in, pager)
        laps.append(time.process_time())
        cell_history.begin_cell(shell, self._count)
        gc.enable()
        content = run_warm_up(self._kernel, code)
        laps.append(time.process_time())
        if content.get("status") != "ok":
            raise RuntimeError(f"{content.get('ename')}: {content.get('evalue')}")
        report = session.save(snapshot_out)
        laps.append(time.process_time())
        wall_ms = (time.perf_counter() - began) * 1000
        names = ("restore_ms", "run_ms", "save_ms")
        spent = [(end - start) * 1000 for start, end in pairwise(laps)]
        times = dict(zip(names, spent, strict=True)) | {"wall_ms": wall_ms}
        times["ahead_ms"] = (laps[0] - ahead) * 1000
        return {"report": report.to_dict(), "times": times}


def answer_jobs() -> None:
    """Run sessions for another process: a JSON line says cells, repeats and pagemap."""
    results = os.dup(1)
    os.dup2(2, 1)
    for name in PRELOAD:
        importlib.import_module(name)
    kernel = build_kernel(FrameChannel())
    warm_up(kernel)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        cells = Cells(kernel, job["with_pagemap"])
        try:
            for code in job["setup"]:
                cells.run(code.strip())
            costs = [asdict(cells.run(job["cell"])) for _ in range(job["repeats"])]
            answer: dict[str, Any] = {"costs": costs}
        except RuntimeError as error:
            answer = {"error": str(error)}
        cells.close()
        os.write(results, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    answer_jobs()
