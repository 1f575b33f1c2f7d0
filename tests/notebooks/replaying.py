"""Records public notebooks, replays them, and prints what became of the cells.

python -m tests.notebooks.replaying [NAME…]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_gateway.client import Gateway as Client
from tests.integration.driver import COMMAND, Gateway, a_gateway
from tests.notebooks.comparing import CELL_TIMEOUT_S
from tests.notebooks.conftest import config_for
from tests.notebooks.sources import Source, packages_python, read_sources

AS_RECORDED = ("identical", "equivalent")


def record(source: Source, gateway: Gateway) -> str:
    """Run a notebook's cells, as they are, and return the id of the kernel that did."""
    workspace = f"w{uuid.uuid4().hex[:12]}"
    with (
        Client(gateway.url, gateway.token) as client,
        client.kernel(workspace=workspace) as kernel,
    ):
        for cell in source.obtain().cells:
            kernel.execute(cell.source, timeout_s=CELL_TIMEOUT_S, stop_on_error=False)
        return kernel.kernel_id


def replay(kernel_id: str, gateway: Gateway, folder: Path) -> list[dict[str, Any]]:
    """Replay a kernel's trail and return the report's cells."""
    command = [COMMAND, "replay", kernel_id, "--state-dir", str(gateway.state_dir)]
    process = subprocess.run([*command, "--report", str(folder)], capture_output=True, text=True)
    assert process.returncode in (0, 1), process.stdout + process.stderr
    cells: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["cells"]
    return cells


def main(names: list[str]) -> int:
    """Replay the notebooks whose names contain one of ``names``, all of them without any."""
    chosen = [s for s in read_sources() if not names or any(name in s.name for name in names)]
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        config = config_for(packages_python(), folder)
        with a_gateway(folder / "state", "--config", str(config)) as gateway:
            print(f"{'notebook':32}{'cells':>6}{'identical':>10}{'equivalent':>11}{'others':>7}")
            for source in chosen:
                cells = replay(record(source, gateway), gateway, folder / source.name)
                counts = Counter(cell["verdict"] for cell in cells)
                total += counts
                others = [c for c in cells if c["verdict"] not in AS_RECORDED]
                print(
                    f"{source.name:32}{len(cells):6}{counts['identical']:10}"
                    f"{counts['equivalent']:11}{len(others):7}",
                    flush=True,
                )
                for cell in others:
                    said = {name: cell[name] for name in ("verdict", "reasons", "first_difference")}
                    print(f"  [{cell['execution_count']}] {json.dumps(said)[:600]}")
    share = sum(total[name] for name in AS_RECORDED) / max(1, total.total())
    print(f"{total.total()} cells, {share:.2%} identical or equivalent; {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
