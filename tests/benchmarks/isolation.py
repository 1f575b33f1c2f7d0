"""What isolation costs: the start of a container, each tier per cell, the sweep, the probe."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.driver import Gateway, a_gateway
from tests.isolation.conftest import InContainer
from tests.isolation.tiers import CONFIG, TIERS

Row = Callable[..., object]
CELLS = 20

IN_CONTAINER = """
import json, statistics, subprocess, time
from lambda_kernel.isolation import interpreter, probe
from lambda_kernel.serving.sweep import Sweeper

def ms(action, count=1):
    times = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)

sweeper = Sweeper.create(lambda_machine=False)
def daemons():
    for _ in range(20):
        subprocess.Popen(["sleep", "600"], start_new_session=True)

told = {"idle": ms(sweeper.sweep_processes, 100), "files": ms(sweeper.sweep_files, 100)}
daemons()
told["daemons"] = ms(sweeper.sweep_processes)
told["interpreter"] = ms(interpreter.open_exec_only)
other = interpreter.spawn(interpreter.open_exec_only(), ["-c", "input()"], {}, {})
told["probe"] = ms(lambda: probe.attack_all([other, other]), 5)
print(json.dumps(told))
"""


def measure(row: Row, folder: Path) -> None:
    """Print one row for each measure."""
    told = InContainer().result(IN_CONTAINER)
    row("sweep of processes, nothing left", f"{told['idle']:.2f}")
    row("  20 daemons left", f"{told['daemons']:.1f}")
    row("sweep of files, nothing left", f"{told['files']:.2f}")
    row("execute-only interpreter, once per process", f"{told['interpreter']:.0f}")
    row("capability probe, once per container: 2 targets", f"{told['probe']:.0f}")
    config = folder / "tiers.toml"
    config.write_text(CONFIG)
    with a_gateway(folder / "tiers", "--config", str(config)) as gateway:
        for tier, name in TIERS.items():
            _tier(row, gateway, tier, name)


def _tier(row: Row, gateway: Gateway, tier: str, name: str) -> None:
    client = gateway.session(name=name)
    began = time.perf_counter()
    client.execute("1", timeout_s=120)
    first_ms = (time.perf_counter() - began) * 1000
    for _ in range(15):
        client.execute("1")
    runs = [client.execute("1").reply_metadata["timings_ms"] for _ in range(CELLS)]
    client.close()
    steps = [f"{s} {statistics.median(r[s] for r in runs):.1f}" for s in ("run", "persist")]
    median = statistics.median(r["invoke"] for r in runs)
    # The default environment's container was started beforehand.
    start = "its container was ready" if tier == "namespaces" else "with its container's start"
    row(f"cell in the tier {tier}", f"{median:.1f}", *steps, f"first {first_ms:.0f}, {start}")
