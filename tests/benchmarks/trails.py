"""What an audit trail costs: `python -m tests.benchmarks.trails`.

A real cell's entries stand 1,000 times in the journal of a real gateway; times are of this machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import psutil

from kernel_gateway.audit.chain import CellFinished, CellStarted
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.verifying import OK, verify
from kernel_gateway.config import Deployment
from kernel_gateway.objects import S3ObjectStore
from kernel_gateway.settings import read_deployment
from lambda_kernel.contract import keys
from tests.benchmarks.rows import row
from tests.integration.driver import Gateway, a_gateway

CELLS = 1000
RECORDS = "lkg-records"


async def write_cells(gateway: Gateway, kernel_id: str, deployment: Deployment) -> str:
    """Return the id of a kernel that has ended, whose journal has 1,000 cells."""
    store, signing = S3ObjectStore.create(deployment), KeyFolder(gateway.state_dir)
    real = Journal(store, RECORDS, kernel_id, is_new=False)
    started, finished = (await real.entry(4)).event, (await real.entry(5)).event
    assert isinstance(started, CellStarted)
    assert isinstance(finished, CellFinished)
    made = str(uuid.uuid4())
    for digest in await real.stored_blobs():
        blob = keys.audit_blob_key(made, digest)
        await store.put(RECORDS, blob, await real.blob(digest))
    journal = Journal(store, RECORDS, made, is_new=True, sealer=signing)
    times_ms = []
    for number in range(1, CELLS + 1):
        request_id = uuid.uuid4().hex
        for event in (
            replace(started, request_id=request_id, execution_count=number, seq=number),
            replace(finished, request_id=request_id),
        ):
            began = time.perf_counter()
            await journal.append(event, epoch=0, time="2026-01-01T00:00:00.000000Z")
            times_ms.append((time.perf_counter() - began) * 1000)
    row("journal: an entry written, p50 (ms)", f"{statistics.median(times_ms):.2f}")
    payload = (await journal.entry(2)).to_bytes()
    began = time.perf_counter()
    for _ in range(CELLS):
        await signing.seal(payload)
    sign_ms = (time.perf_counter() - began) / CELLS * 1000
    row("  of it the signature (ms)", f"{sign_ms:.2f}", f"{len(payload):,} bytes")
    store.close()
    return made


def export(gateway: Gateway, kernel_id: str) -> bytes:
    """Return the trail, the quickest of three."""
    server = psutil.Process(gateway.process.pid)
    times, data = [], b""
    for _ in range(3):
        began, cpu_began = time.perf_counter(), sum(server.cpu_times()[:2])
        answer = gateway.rest("GET", f"/api/kernels/{kernel_id}/trail.ipynb")
        assert answer.status_code == 200, answer.text
        data = answer.content
        times.append((time.perf_counter() - began, sum(server.cpu_times()[:2]) - cpu_began))
    wall_s, cpu_s = min(times)
    size, load = f"{len(data) / 1e6:.1f} MB", f"load {os.getloadavg()[0]:.1f}"
    row(
        "export of 1,000 cells (s)",
        f"{wall_s:.2f}",
        "goal <= 3",
        f"CPU of the gateway {cpu_s:.2f} s",
        size,
        load,
    )
    return data


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, a_gateway(Path(folder) / "state") as gateway:
        client = gateway.session()
        client.execute("import pandas as pd")
        client.execute("pd.DataFrame({'a': range(5)})")
        gateway.rest("GET", f"/api/kernels/{client.kernel_id}/cells")
        client.close()
        deployment = read_deployment(str(gateway.state_dir / "run" / "deployment.json"))
        assert deployment is not None
        kernel_id = asyncio.run(write_cells(gateway, client.kernel_id, deployment))
        data = export(gateway, kernel_id)
        trusted = KeyFolder(gateway.state_dir).keys()
        began, cpu_began = time.perf_counter(), time.process_time()
        report = verify(read_trail(data), trusted)
        verify_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        assert report.exit_code == OK, report.problems
        row(
            "verification of 1,000 cells (s)",
            f"{verify_s:.2f}",
            "goal <= 1.5",
            f"CPU {cpu_s:.2f} s",
        )


if __name__ == "__main__":
    main()
