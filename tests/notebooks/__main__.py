"""Prints a table of all notebooks: ``python -m tests.notebooks [NAME…]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.integration.driver import a_gateway
from tests.notebooks.comparing import compare
from tests.notebooks.conftest import config_for
from tests.notebooks.sources import packages_python, read_sources


def main(names: list[str]) -> int:
    """Compare the notebooks whose names contain one of ``names`` (all of them without any)."""
    chosen = [s for s in read_sources() if not names or any(name in s.name for name in names)]
    python = packages_python()
    unexpected = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        config = config_for(python, folder)
        with a_gateway(folder / "state", "--config", str(config)) as gateway:
            print(f"{'notebook':32}{'cells':>6}{'raise':>6}{'equal':>6}{'stock s':>9}{'ours s':>8}")
            for source in chosen:
                place = folder / source.name
                place.mkdir()
                result = compare(source, gateway, python, place)
                equal = result.cells - len(result.differences)
                print(
                    f"{source.name:32}{result.cells:6}{result.raised:6}{equal:6}"
                    f"{result.stock_s:9.1f}{result.ours_s:8.1f}",
                    flush=True,
                )
                for difference in result.differences:
                    known = source.known.get(difference.cell)
                    unexpected += known is None
                    print(f"  {difference.cell}: {known}" if known else difference, flush=True)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
