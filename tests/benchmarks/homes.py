"""What HOMEs and the download cache cost: by themselves, and through the whole product."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import manifest, mirror, storing
from lambda_kernel.serving.cache import DownloadCache
from lambda_kernel.serving.homes import HomeLimits, Homes
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.mirror import Mirrored, MirrorPlan
from lambda_kernel.serving.parallel import CallCount, Pool
from tests.integration.driver import TOKENS, Execution, Gateway, a_gateway, identities_toml

Row = Callable[..., object]
FILES, FILE_BYTES = 5_000, 28_000
"""As many, and together as large, as pandas with what it needs."""
SCOPE, OTHER = Scope(user="u1"), Scope(user="u1", agent="a1")
INSTALL = """
import os, subprocess, sys
done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--user", "--no-index",
    "--ignore-installed", "--find-links", "wheels", "pandas"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
"""


def ms(action: Callable[[], object]) -> str:
    """Return how long something takes once, in milliseconds."""
    began = time.perf_counter()
    action()
    return f"{(time.perf_counter() - began) * 1000:.1f}"


def measure(row: Row) -> None:
    """Measure what is ours: storage is in memory, files are on tmpfs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        _homes(row, Path(folder))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        _cache(row, Path(folder))


def _homes(row: Row, folder: Path) -> None:
    store, pool = MemoryObjectStore(), Pool(CallCount())
    own = Homes(store, "state", pool, str(folder), HomeLimits(dormant_bytes=1024**3))
    home = Path(own.restore(SCOPE, own.fetch_head(SCOPE)))
    for i in range(FILES):
        path = home / f"d{i // 50}" / f"f{i}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(i.to_bytes(4, "big") * (FILE_BYTES // 4))

    def commit() -> None:
        saved = own.save(SCOPE)
        assert saved is not None
        own.publish(SCOPE, saved)

    def restore() -> None:
        own.restore(SCOPE, own.fetch_head(SCOPE))

    size = f"{FILES:,} files, {FILES * FILE_BYTES / 1e6:.0f} MB"
    row(f"HOME of {size}: saved, storage in memory", ms(commit))
    packs = sum("/packs/" in key for key in store.keys("state"))
    row("  objects", str(len(store.keys("state"))), f"packs {packs}")
    row("  unchanged: found to be so", ms(lambda: own.save(SCOPE)))
    (home / "f").write_text("x")
    row("  one file changed: saved", ms(commit))
    own.distrust(SCOPE)
    row("  put right after a cell that did not commit", ms(restore))
    row("  parked", ms(lambda: own.clear_others(OTHER)))
    row("  brought back from there", ms(restore))
    own.discard(SCOPE)
    row("  restored in a cold container", ms(restore))
    pool.close()


def _cache(row: Row, folder: Path) -> None:
    store, pool = MemoryObjectStore(), Pool(CallCount())
    for name, count, size in (("10,000 files", 10_000, 10), ("3 files of 100 MB", 3, 10**8)):
        for i in range(count):
            store.put("w", f"users/u1/{name}/{i}", i.to_bytes(2, "big") * (size // 2))
        cache = DownloadCache.open(folder / "cache", 1024**3)
        cache.claim("u1")
        plan = MirrorPlan(
            bucket="w", root=f"users/u1/{name}/", workdir=str(folder / "w"), max_bytes=1024**3
        )

        def empty(plan: MirrorPlan = plan) -> None:
            subprocess.run(["rm", "-rf", plan.workdir], check=True)
            Path(plan.workdir).mkdir()

        def fill(plan: MirrorPlan = plan, cache: DownloadCache = cache) -> Mirrored:
            listing = mirror.list_stored(store, plan, pool, cache.bounds)
            return mirror.mirror_in(store, plan, listing, cache, pool)

        empty()
        mirrored = fill()
        cache.settle()
        cache.cell_ran()
        empty()
        row(f"workspace of {name}: verified again, linked", ms(fill))
        empty()
        row("  the same, verified since the last cell", ms(fill))
        cache.cell_ran()
        row(
            "  compared after the cell",
            ms(
                lambda plan=plan, cache=cache, mirrored=mirrored: manifest.difference(  # type: ignore[misc]
                    mirrored.tree, storing.scan(plan, mirrored, cache)[0]
                )
            ),
        )
    pool.close()


def pandas(row: Row, folder: Path) -> None:
    """Measure `pip install --user` of pandas from wheels in the workspace, and what follows."""
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels), "pandas"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        row("pip install --user of pandas", "-", "no package index")
        return
    file = folder / "config.toml"
    file.write_text(
        identities_toml()
        + "[KernelGateway]\nmax_containers = 1\n"
        + '[[environment]]\nid = "default"\ntier = "process"\n'
    )
    state = folder / "pandas-state"
    with a_gateway(state, "--config", str(file)) as gateway:
        for wheel in wheels.iterdir():
            path = f"/api/workspaces/default/files/wheels/{wheel.name}"
            gateway.rest("PUT", path, token=TOKENS["u1"], data=wheel.read_bytes())
        _use_pandas(row, gateway)
    with a_gateway(state, "--config", str(file)) as gateway:
        client = gateway.session(token=TOKENS["u1"])
        run = client.execute("import pandas; print(pandas.__file__)", timeout_s=300)
        assert "/home-" in run.stdout
        row("  imported in a cold container", *_steps(run))
        client.close()


def _use_pandas(row: Row, gateway: Gateway) -> None:
    client, other = gateway.session(token=TOKENS["u1"]), gateway.session(token=TOKENS["u1-a1"])
    client.execute("1", timeout_s=300)
    row("pip install --user of pandas from wheels", *_steps(client.execute(INSTALL, timeout_s=600)))
    for name, code in (
        ("  imported in the next cell", "__import__('pandas').__file__"),
        ("  HOME unchanged", "1"),
        ("  HOME unchanged", "1"),
        ("  one file in HOME changed", "open(os.path.expanduser('~/f'), 'w').write('x')"),
    ):
        row(name, *_steps(client.execute(code, timeout_s=300)))
    row("  another scope's cell (parks the HOME)", *_steps(other.execute("1", timeout_s=300)))
    row("  the first scope's cell (brings it back)", *_steps(client.execute("1", timeout_s=300)))
    client.close()
    other.close()


def _steps(run: Execution) -> tuple[str, ...]:
    assert run.reply["status"] == "ok", run.error
    facts = run.reply_metadata
    timings = facts["timings_ms"]
    total = sum(timings.get(step, 0) for step in ("narrow", "rehydrate", "run", "persist"))
    steps = tuple(f"{step} {timings[step]:.0f}" for step in ("rehydrate", "run", "persist"))
    return (f"{total:.0f}", *steps, f"requests {facts['aws_calls']}")
