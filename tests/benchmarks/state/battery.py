"""The battery of objects with everybody: how many each carries, loses, gets wrong, hangs on."""

from __future__ import annotations

import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.rows import Row
from tests.benchmarks.state.peers import PeerFailed, Peers
from tests.functional.child.conftest import Notebook, Zygote

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[2] / "functional/child/state_battery.toml").read_text("utf-8")
)["case"]
LIMIT_S = 20.0
OUTCOMES = ("carried", "lost", "wrong", "hang")


def measure(row: Row, peers: Peers) -> None:
    """Print one line for each."""
    print(f"\nThe battery of {len(CASES)} objects and situations (those they have installed)\n")
    row("", "carried", "lost", "wrong", "hang")
    _print(row, "ours", Counter(_ours()), "goal >= 80 of 91")
    for peer in ("dill", "cloudpickle"):
        if not peers.python:
            row(peer, "-", peers.why)
            continue
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(partial(_theirs, peers, peer), CASES))
        _print(row, f"{peer} {peers.versions[peer]}", Counter(found))


def _print(row: Row, name: str, counts: Counter[str], *notes: str) -> None:
    carried, *others = (str(counts[outcome]) for outcome in OUTCOMES)
    missing = counts["not for it"]
    row(name, carried, *(o.rjust(4) for o in others), *notes)
    if missing:
        row("  needs IPython, or a library that is not beside it", str(missing))


def _ours() -> list[str]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        zygote = Zygote(Path(name), "numpy", "pandas", "matplotlib.pyplot")
        for case in CASES:
            with tempfile.TemporaryDirectory(prefix="lkg-child-") as folder:
                found.append(_our_case(Notebook(zygote, Path(folder)), case))
        zygote.close()
    return found


def _our_case(notebook: Notebook, case: dict[str, Any]) -> str:
    told: set[str] = set()
    try:
        for code in [*case["cells"], "pass"]:
            result = notebook.run(code.strip())
            assert result.report is not None
            told.update(loss.name for loss in result.report.lost)
        if "failing" in case:
            notebook.ask(case["failing"])
        answer = notebook.ask(case["check"].strip())
    except AssertionError as error:
        return "hang" if "hangs" in str(error) else "lost"
    if answer.content["status"] != "ok":
        return "lost"
    if answer.text != "True":
        return "wrong"
    return "lost" if told else "carried"


def _theirs(peers: Peers, peer: str, case: dict[str, Any]) -> str:
    try:
        outcome: str = peers.do(peer, case, LIMIT_S)
    except PeerFailed as failure:
        return "hang" if "not done" in str(failure) else "lost"
    if "ModuleNotFoundError" in outcome or "SyntaxError" in outcome:
        return "not for it"
    # Its check states what is told of a loss: a peer tells nothing, and carried nothing.
    if outcome == "carried" and "lost" in case:
        return "lost"
    return outcome.partition(":")[0]
