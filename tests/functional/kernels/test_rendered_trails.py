"""The notebook that stands beside a kernel's journal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from kernel_gateway.audit.chain import KernelRestarted, SessionClosed
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.shelf import TrailShelf
from kernel_gateway.errors import NotFound, StorageError
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract import keys

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World

KERNEL = "11111111-1111-4111-8111-111111111111"
BUCKET = "records"
KEY = keys.rendered_trail_key(KERNEL)


class CountingStore(MemoryObjectStore):
    """Counts the notebooks that are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.is_down = False
        self.asked = asyncio.Event()

    async def put_file(self, bucket: str, key: str, path: Path) -> None:
        self.count += 1
        try:
            if self.is_down:
                raise StorageError("S3 did not answer")
            await super().put_file(bucket, key, path)
        finally:
            self.asked.set()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def journal(store: CountingStore) -> Journal:
    return Journal(store, BUCKET, KERNEL, is_new=True)


async def restart(journal: Journal) -> None:
    await journal.append(KernelRestarted(), epoch=1, time="2026-01-01T00:00:00Z")


async def shown(store: MemoryObjectStore) -> int:
    """Return up to which entry the stored notebook goes."""
    notebook = json.loads((await store.get(BUCKET, KEY)).body)
    nbformat.validate(notebook)
    count: int = notebook["metadata"]["lambda_kernel"]["trail"]["entries"]
    return count


async def test_changes_that_come_together_are_rendered_once(
    store: CountingStore, journal: Journal
) -> None:
    shelf = TrailShelf(store, BUCKET, quiet_s=0.05)
    for _ in range(3):
        await restart(journal)
    for _ in range(3):
        shelf.changed(KERNEL)
    await store.asked.wait()

    assert await shown(store) == 3

    await restart(journal)
    shelf.changed(KERNEL)
    await shelf.close()

    assert await shown(store) == 4
    assert store.count == 2


async def test_what_waits_at_the_end_is_rendered(store: CountingStore, journal: Journal) -> None:
    shelf = TrailShelf(store, BUCKET)
    await journal.append(SessionClosed(reason="over"), epoch=1, time="2026-01-01T00:00:01Z")
    shelf.changed(KERNEL)

    await shelf.close()

    assert await shown(store) == 1


async def test_a_gateway_renders_what_its_kernels_ran(world: World) -> None:
    client = await world.client()
    await client.run("print a")

    await world.registry.close()

    stored = await world.store.get("lkg-records", keys.rendered_trail_key(client.kernel.kernel_id))
    notebook = json.loads(stored.body)
    (cell,) = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cell["source"] == "print a"


async def test_one_that_cannot_be_stored_is_rendered_with_the_next_change(
    store: CountingStore, journal: Journal
) -> None:
    shelf = TrailShelf(store, BUCKET, quiet_s=0)
    await restart(journal)
    store.is_down = True
    shelf.changed(KERNEL)
    await store.asked.wait()
    with pytest.raises(NotFound):
        await store.get(BUCKET, KEY)

    store.is_down = False
    shelf.changed(KERNEL)
    await shelf.close()

    assert await shown(store) == 1


async def test_what_a_rendering_took_is_forgotten_with_the_kernel(
    store: CountingStore, journal: Journal
) -> None:
    # With a pause of nothing every rendering is a long one.
    shelf = TrailShelf(store, BUCKET, quiet_s=0)
    await restart(journal)
    shelf.changed(KERNEL)
    await shelf.close()
    assert shelf.slow_kernels == {KERNEL}

    await journal.append(SessionClosed(reason="over"), epoch=1, time="2026-01-01T00:00:01Z")
    shelf.changed(KERNEL)
    await shelf.close()

    assert shelf.slow_kernels == set()
