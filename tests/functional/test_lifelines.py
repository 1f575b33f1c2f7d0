"""Locks that end with the process that holds them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from kernel_gateway.errors import NotFound
from kernel_gateway.lifelines import KERNELS_FOLDER, Lifelines

HOLD = """
import asyncio, sys
from pathlib import Path
from kernel_gateway.lifelines import Lifelines
lifelines = Lifelines(Path(sys.argv[1]))
used = asyncio.run(lifelines.use())
held = lifelines.hold("held")
print("held", flush=True)
sys.stdin.read()
"""


def a_holder(run_dir: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


async def test_a_kernel_ends_with_its_process_and_not_before(tmp_path: Path) -> None:
    lifelines = Lifelines(tmp_path)
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def shutdown(kernel_id: str) -> None:
        ended.put_nowait(kernel_id)

    own = lifelines.hold("own")
    watch = asyncio.create_task(lifelines.watch(shutdown))
    for _ in range(2):
        with a_holder(tmp_path) as holder:
            holder.kill()
        assert await ended.get() == "held"
    own.close()
    with a_holder(tmp_path) as holder:
        holder.kill()
    assert await ended.get() == "held"
    watch.cancel()
    assert ended.empty()


async def test_a_kernel_that_is_gone_already_is_forgotten(tmp_path: Path) -> None:
    lifelines = Lifelines(tmp_path)
    asked = asyncio.Event()

    async def shutdown(kernel_id: str) -> None:
        asked.set()
        raise NotFound(kernel_id)

    with a_holder(tmp_path) as holder:
        holder.kill()
    watch = asyncio.create_task(lifelines.watch(shutdown))
    await asked.wait()
    await asyncio.sleep(0)
    watch.cancel()
    assert list((tmp_path / KERNELS_FOLDER).iterdir()) == []


async def test_a_gateway_is_unused_when_the_last_process_is_gone(tmp_path: Path) -> None:
    lifelines = Lifelines(tmp_path)
    with a_holder(tmp_path) as one, a_holder(tmp_path) as two:
        unused = asyncio.create_task(lifelines.until_unused(0))
        one.kill()
        one.wait()
        done, _ = await asyncio.wait({unused}, timeout=1.5)
        assert not done
        two.kill()
        ending = await unused
    # Who comes now waits until the gateway has ended.
    use = asyncio.create_task(lifelines.use())
    done, _ = await asyncio.wait({use}, timeout=0.3)
    assert not done
    ending.close()
    (await use).close()


async def test_what_is_no_lock_ends_no_watch(tmp_path: Path) -> None:
    lifelines = Lifelines(tmp_path)
    ended = asyncio.Event()

    async def shutdown(kernel_id: str) -> None:
        assert kernel_id == "held"
        ended.set()

    (tmp_path / KERNELS_FOLDER / "a-folder").mkdir(parents=True)
    (tmp_path / KERNELS_FOLDER / "a-link").symlink_to("nowhere")
    with a_holder(tmp_path) as holder:
        holder.kill()
    watch = asyncio.create_task(lifelines.watch(shutdown))

    await ended.wait()

    watch.cancel()
