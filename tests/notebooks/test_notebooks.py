"""Public notebooks give what they give in stock ipykernel, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.driver import Gateway
from tests.notebooks.comparing import compare
from tests.notebooks.sources import Source, read_sources

SOURCES = read_sources()


def check(source: Source, made: tuple[Gateway, str], folder: Path) -> None:
    gateway, python = made
    result = compare(source, gateway, python, folder)

    differing = {difference.cell: difference for difference in result.differences}
    unknown = [str(differing[cell]) for cell in differing if cell not in source.known]
    assert not unknown, "\n\n".join(unknown)
    assert set(source.known) <= set(differing), "a known difference is gone: take it out"


@pytest.mark.parametrize("source", [s for s in SOURCES if s.quick], ids=lambda s: s.name)
def test_a_quick_notebook_gives_what_it_gives_in_ipykernel(
    source: Source, own_gateway: tuple[Gateway, str], tmp_path: Path
) -> None:
    check(source, own_gateway, tmp_path)


@pytest.mark.notebooks
@pytest.mark.parametrize("source", [s for s in SOURCES if not s.quick], ids=lambda s: s.name)
def test_a_notebook_gives_what_it_gives_in_ipykernel(
    source: Source, packages_gateway: tuple[Gateway, str], tmp_path: Path
) -> None:
    check(source, packages_gateway, tmp_path)
