"""Public notebooks give what they give in stock ipykernel, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.driver import Gateway
from tests.notebooks.comparing import compare
from tests.notebooks.sources import Source, read_sources

# Sockets of the stock kernel's client are left to the garbage collector.
pytestmark = [
    pytest.mark.notebooks,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("source", read_sources(), ids=lambda source: source.name)
def test_a_notebook_gives_what_it_gives_in_ipykernel(
    source: Source, packages_gateway: tuple[Gateway, str], tmp_path: Path
) -> None:
    gateway, python = packages_gateway
    result = compare(source, gateway, python, tmp_path)

    differing = {difference.cell: difference for difference in result.differences}
    unknown = [str(differing[cell]) for cell in differing if cell not in source.known]
    assert not unknown, "\n\n".join(unknown)
    assert set(source.known) <= set(differing), "a known difference is gone: take it out"
