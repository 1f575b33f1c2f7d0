"""Gateways for the notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver import Gateway, a_gateway
from tests.notebooks.sources import packages_python


def config_for(python: str, folder: Path) -> Path:
    """Write a configuration whose default environment is ``python``, and return its path."""
    config = folder / "config.toml"
    config.write_text(f'[[environment]]\nid = "default"\npython = {json.dumps(python)}\n')
    return config


@pytest.fixture(scope="session")
def packages_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str]]:
    """A gateway with the notebooks' packages, and their interpreter."""
    python = packages_python()
    folder = tmp_path_factory.mktemp("packages")
    with a_gateway(folder / "state", "--config", str(config_for(python, folder))) as running:
        yield running, python
