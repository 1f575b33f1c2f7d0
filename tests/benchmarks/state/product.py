"""The whole product: cells through a gateway, with and without latency on every AWS call."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.rows import Row
from tests.benchmarks.state.operations import ARRAY, FRAME
from tests.integration.driver import Execution, Gateway, NotebookClient, a_gateway

LATENCY_S = 0.030
SLOW_S = 0.100
INTERRUPTS = 7
READ_FRAME = "float(df['amount'].sum())"
STEPS = ("narrow", "rehydrate", "run", "persist")


class SlowStorage:
    """Stands between everybody and the unix socket of S3 and STS: each request waits first.

    Args:
        path: of the socket; it is moved aside.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._real = path.with_name("s")
        self.delay_s = 0.0
        self.requests = 0
        self.sent_bytes = 0
        self._relays: set[asyncio.Task[None]] = set()
        """From storage to its clients."""

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Relay until ``stop`` is set."""
        self._path.rename(self._real)
        server = await asyncio.start_unix_server(self._relay, self._path)
        self._path.chmod(self._real.stat().st_mode)
        ready.set()
        await stop.wait()
        server.close()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        self._real.rename(self._path)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        self._relays.add(own)
        far_reader, far_writer = await asyncio.open_unix_connection(self._real)
        fresh = [True]

        async def back() -> None:
            while chunk := await far_reader.read(1 << 18):
                fresh[0] = True
                self.sent_bytes += len(chunk)
                writer.write(chunk)
                await writer.drain()
            writer.close()

        returning = asyncio.create_task(back())
        try:
            while chunk := await reader.read(1 << 18):
                if fresh[0]:
                    # The first bytes since storage last answered: a request begins.
                    fresh[0] = False
                    self.requests += 1
                    await asyncio.sleep(self.delay_s)
                far_writer.write(chunk)
                await far_writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            # The client is gone, or all of this ends.
            pass
        finally:
            far_writer.close()
            returning.cancel()
            self._relays.discard(own)


@contextmanager
def slow_storage(gateway: Gateway) -> Iterator[SlowStorage]:
    """Relay what a gateway's storage gets and gives; the delay is none until it is set."""
    (path,) = (gateway.state_dir / "run" / "storage").glob("*.sock")
    relay, ready = SlowStorage(path), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(relay.serve(ready, stop),), daemon=True
    )
    thread.start()
    ready.wait(10)
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def measure(row: Row, folder: Path) -> None:
    """Print the rows."""
    print("\nThe whole product, wall ms (p50) over the websocket\n")
    place = folder / "product"
    with a_gateway(place) as gateway, slow_storage(gateway) as storage:
        client = gateway.session()
        for _ in range(10):
            client.execute("1+1")
        _row(row, client, storage, "1+1 in a warm container", "1+1", 20)
        client.execute(ARRAY)
        _row(row, client, storage, "1+1 beside 100 MB", "1+1", 10)
        _row(row, client, storage, "one element of 100 MB changed", "a[5] += 1", 7)
        client.execute("\n".join(f"v{i} = [{i}]" for i in range(1000)))
        _row(row, client, storage, "1,000 small variables, one changed", "v7[0] += 1", 7)
        _latency(row, client, storage)
        _interrupts(row, client, "")
        storage.delay_s = SLOW_S
        _interrupts(row, client, f"{SLOW_S * 1000:.0f} ms on every AWS call: ")
        storage.delay_s = 0.0
        client.execute(FRAME, timeout_s=300)
        _row(row, client, storage, "350 MB frame read, warm cache", READ_FRAME, 5)
        client.close()
    with a_gateway(place) as gateway, slow_storage(gateway) as storage:
        client = NotebookClient(gateway, client.kernel_id, gateway.token)
        _row(row, client, storage, "first cell in a new container, 1+1", "1+1", 1)
        _row(row, client, storage, "100 MB first touched there", "float(a[0])", 1)
        _row(row, client, storage, "350 MB frame read, cold cache", READ_FRAME, 1)
        _row(row, client, storage, "  and again", READ_FRAME, 3)
        client.close()


def _row(
    row: Row,
    client: NotebookClient,
    storage: SlowStorage,
    name: str,
    code: str,
    count: int,
    *notes: str,
) -> None:
    times: list[float] = []
    runs: list[Execution] = []
    requests, fetched = storage.requests, storage.sent_bytes
    for _ in range(count):
        began = time.perf_counter()
        run = client.execute(code, timeout_s=300)
        times.append((time.perf_counter() - began) * 1000)
        assert run.reply["status"] == "ok", run.error
        runs.append(run)
    facts = [run.reply_metadata for run in runs]
    steps = (
        f"{step} {statistics.median(f['timings_ms'].get(step, 0.0) for f in facts):.1f}"
        for step in STEPS
    )
    row(
        name,
        f"{statistics.median(times):.1f}",
        f"best {min(times):.1f}",
        *steps,
        f"sequential AWS calls {facts[-1]['aws_sequential']} of {facts[-1]['aws_calls']}",
        f"requests {(storage.requests - requests) / count:.1f}",
        f"from S3 {(storage.sent_bytes - fetched) / count / 1e6:.2f} MB a cell",
        *notes,
    )


def _latency(row: Row, client: NotebookClient, storage: SlowStorage) -> None:
    storage.delay_s = LATENCY_S
    label = f"{LATENCY_S * 1000:.0f} ms on every AWS call: "
    _row(row, client, storage, f"{label}1+1", "1+1", 7)
    _row(row, client, storage, f"{label}100 MB changed in one place", "a[5] += 1", 5)
    storage.delay_s = 0.0


def _interrupts(row: Row, client: NotebookClient, label: str) -> None:
    for name, code in (
        # CPython leaves a loop that does nothing at all by no handler.
        ("a loop", "while True: sum(range(1000))"),
        ("sleep", "time.sleep(60)"),
        ("await", "await asyncio.sleep(60)"),
        ("a subprocess", "subprocess.run(['sleep', '60'])"),
        ("input()", "input()"),
    ):
        reached_ms, replied_ms, error = [], [], ""
        for turn in range(INTERRUPTS):
            took = _interrupt(client, code, 0.5 + turn * 0.03)
            reached_ms.append(took[0])
            replied_ms.append(took[1])
            error = took[2]
        row(
            f"{label}interrupt of {name}: in the code",
            f"{statistics.median(reached_ms):.0f}",
            f"worst {max(reached_ms):.0f}   reply {statistics.median(replied_ms):.0f}   {error}",
            f"goal <= {1500 if label else 500}",
        )


def _interrupt(client: NotebookClient, code: str, after_s: float) -> tuple[float, float, str]:
    """Return after how many ms the code and the client knew, and the reply's error."""
    execution = client.submit(
        f"import asyncio, subprocess, time\nprint('runs', flush=True)\ntry:\n    {code}\n"
        "except KeyboardInterrupt:\n    print(time.time())\n    raise",
        allow_stdin=True,
    )
    while "runs" not in execution.stdout:
        message = client.receive(60)
        if message["parent_header"].get("msg_id") == execution.msg_id:
            execution.messages.append(message)
    time.sleep(after_s)
    began_s = time.time()
    client.gateway.rest("POST", f"/api/kernels/{client.kernel_id}/interrupt")
    client.wait(execution)
    reached_s = float(execution.stdout.split()[1])
    return (reached_s - began_s) * 1000, (time.time() - began_s) * 1000, execution.error
