"""Prints what suites that other people wrote say: ``python -m tests.conformance [SUITE…]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance.suites import SUITES


def main(names: list[str]) -> int:
    """Run the suites of these names (all of them without any); 1 where a failure is unexplained."""
    unexplained = 0
    for name in names or list(SUITES):
        suite = SUITES[name]
        with tempfile.TemporaryDirectory() as folder:
            verdict = suite.run(Path(folder))
        print(f"{name}: {verdict} (goal {suite.goal})", flush=True)
        for test, why in verdict.failed.items():
            reason = suite.reason(test)
            unexplained += reason is None
            print(f"  failed: {test}: {reason or why}")
        for test, why in verdict.skipped.items():
            print(f"  skipped: {test}: {why}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
