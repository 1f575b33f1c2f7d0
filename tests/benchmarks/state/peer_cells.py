"""One operation, or one case of the battery, with a peer; run by an interpreter that has it.

``python peer_cells.py PEER`` reads one job as JSON and prints one result as JSON. ``dill`` and
``cloudpickle`` keep a session as a whole: load the namespace, run the cell, dump the namespace.
``kishu`` runs in one living shell, as it is made for: the cell with its commit, then a checkout of
the commit before.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Namespace = dict[str, Any]


def measured(action: Callable[[], object]) -> tuple[float, float]:
    """Return what ``action`` takes: CPU and wall milliseconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return (time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000


def run_cell(code: str, namespace: Namespace) -> Any:
    """Run a cell; returns the value of a last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), namespace)
    if last is None:
        return None
    expression = ast.Expression(last.value)  # type: ignore[attr-defined]
    return eval(compile(expression, "<cell>", "eval"), namespace)


def fresh_namespace() -> Namespace:
    """Return the namespace of a new ``__main__``, as a notebook's code has it."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return vars(module)


def whole_load(peer: Any, path: Path) -> Namespace:
    """Return a new namespace with what was dumped."""
    namespace = fresh_namespace()
    if path.exists():
        namespace.update(peer.loads(path.read_bytes()))
    return namespace


def whole_dump(peer: Any, path: Path, namespace: Namespace) -> None:
    """Write everything that has a name."""
    kept = {name: value for name, value in namespace.items() if not name.startswith("__")}
    path.write_bytes(peer.dumps(kept))


def in_a_fork(action: Callable[[], object]) -> Any:
    """Return what ``action`` gives in a process of its own (raises RuntimeError: it failed)."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = {"ok": action()}
        except BaseException as error:  # noqa: BLE001  (whatever it is, the parent tells it)
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    result = json.loads(text) if text else {"error": "the process ended"}
    if "error" in result:
        raise RuntimeError(result["error"])
    return result["ok"]


def whole_cell(peer: Any, path: Path, code: str, may_fail: bool = False) -> dict[str, float]:
    """Load, run, dump; returns what it took."""

    def cell() -> None:
        namespace = whole_load(peer, path)
        with suppress(*((Exception,) if may_fail else ())):
            run_cell(code, namespace)
        whole_dump(peer, path, namespace)

    cpu, wall = measured(cell)
    return {"cpu_ms": cpu, "wall_ms": wall, "written_bytes": path.stat().st_size}


def whole_operation(name: str, job: Job, folder: Path) -> list[dict[str, float]]:
    """Measure one operation with dill or cloudpickle."""
    peer, path = importlib.import_module(name), folder / "session"
    for module in ("numpy", "pandas"):
        importlib.import_module(module)
    for code in job["setup"]:
        in_a_fork(partial(whole_cell, peer, path, code.strip()))
    return [in_a_fork(lambda: whole_cell(peer, path, job["cell"])) for _ in range(job["repeats"])]


def whole_case(name: str, job: Job, folder: Path) -> str:
    """Return what became of one case of the battery: carried, wrong or lost (why)."""
    peer, path = importlib.import_module(name), folder / "session"
    os.chdir(folder)
    try:
        for code in [*job["cells"], "pass"]:
            in_a_fork(partial(whole_cell, peer, path, code.strip()))
        if "failing" in job:
            in_a_fork(partial(whole_cell, peer, path, job["failing"], may_fail=True))
    except RuntimeError as error:
        return f"lost: {error}"

    def check() -> bool:
        return bool(run_cell(job["check"].strip(), whole_load(peer, path)))

    try:
        return "carried" if in_a_fork(check) else "wrong"
    except RuntimeError as error:
        return f"lost: {error}"


def kishu_operation(job: Job, folder: Path) -> list[dict[str, float]]:
    """Measure one operation with Kishu; its test mode does not wait for a notebook's page."""
    notebook = folder / "bench.ipynb"
    os.environ |= {"TEST_NOTEBOOK_PATH": str(notebook), "ENV_KISHU_TEST_MODE": "1"}
    os.environ |= {"KISHU_PATH_ROOT": str(folder), "IPYTHONDIR": str(folder / "ipython")}
    nbformat: Any = importlib.import_module("nbformat")
    nbformat.write(nbformat.v4.new_notebook(), notebook)
    for module in ("numpy", "pandas"):
        importlib.import_module(module)
    shell: Any = importlib.import_module(
        "IPython.core.interactiveshell"
    ).InteractiveShell.instance()
    importlib.import_module("builtins").get_ipython = lambda: shell  # type: ignore[attr-defined]

    def run(code: str) -> None:
        shell.run_cell(code, store_history=True).raise_error()

    run(f"from kishu import init_kishu\ninit_kishu({str(notebook)!r})")
    database, results = notebook.with_suffix(".kishudb"), []
    for code in job["setup"]:
        run(code.strip())
    run("pass")
    kishu = shell.user_ns["_kishu"]
    for _ in range(job["repeats"]):
        before = database.stat().st_size
        head = str(kishu._kishu_branch.get_head().commit_id)
        cpu, wall = measured(lambda: run(job["cell"]))
        grown = max(0, database.stat().st_size - before)
        back_cpu, back_wall = measured(partial(kishu.checkout, head, skip_notebook=True))
        results.append(
            {"cpu_ms": cpu, "wall_ms": wall, "written_bytes": grown}
            | {"back_cpu_ms": back_cpu, "back_wall_ms": back_wall}
        )
    return results


def main() -> None:
    """Do one job."""
    peer, job = sys.argv[1], json.loads(sys.stdin.readline())
    results = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as name, redirect_stdout(io.StringIO()):
        try:
            if "check" in job:
                answer: Any = whole_case(peer, job, Path(name))
            elif peer == "kishu":
                answer = kishu_operation(job, Path(name))
            else:
                answer = whole_operation(peer, job, Path(name))
        except Exception as error:  # noqa: BLE001  (a peer may fail in any way)
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.chdir("/")
    os.write(results, json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
