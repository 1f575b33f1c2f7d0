"""A web server with two users, two agents and an admin, over a function in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.functional.web.server import WebGateway, a_web_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[WebGateway]:
    """A fresh server, no kernels."""
    async with a_web_gateway(tmp_path) as running:
        yield running
