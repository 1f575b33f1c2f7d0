"""Very many variables: what most cells leave alone is described once, and stays right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lambda_kernel.child.state.index import Index

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

MANY = "\n".join(f"v{i} = [{i}]" for i in range(1000))
PLACES = "sorted(n for n in globals() if n[0] == 'v' and n[1:].isdigit())"


def described(notebook: Notebook) -> tuple[int, list[int]]:
    """How many variables the index itself describes, and how many gone ones each part has."""
    index = json.loads(notebook.objects.bodies[notebook.objects.index])
    return len(index["components"]), [len(gone) for _, gone in index["settled"]]


def test_what_a_cell_leaves_alone_is_not_described_again(notebook: Notebook) -> None:
    notebook.run(MANY)
    objects = notebook.objects.bodies.keys()
    result = notebook.run("1")

    assert described(notebook)[0] < 10
    assert result.report is not None
    assert sum(new.size_bytes for new in result.report.new) < 20_000
    assert objects & notebook.objects.bodies.keys()


def test_what_cells_change_is_as_in_one_process(notebook: Notebook) -> None:
    notebook.run(MANY, "v1[0] = 'changed'", "v2 = v3", "del v4", "v5", "v6.append(v7)")
    notebook.run("_ + [1]", "v1000 = v1", "v4 = 'again'")

    assert notebook.run("len([*v1, v1000 is v1, v2 is v3, v4, v5, v6[1] is v7])").text == "6"
    assert notebook.run("v1, v1000 is v1, v2 is v3, v4, v5, v6[1] is v7").text == (
        "(['changed'], True, True, 'again', [5], True)"
    )
    assert notebook.run(f"len({PLACES})").text == "1001"
    assert notebook.run("all(globals()[f'v{i}'] == [i] for i in range(8, 1000))").text == "True"
    assert described(notebook)[1] == [7]


def test_many_deletions_and_many_cells_keep_the_description_small(notebook: Notebook) -> None:
    for start in range(0, 3000, 300):
        notebook.run("\n".join(f"v{i} = [{i}]" for i in range(start, start + 300)))
    assert len(described(notebook)[1]) <= 7
    notebook.run("for i in range(0, 2500): del globals()[f'v{i}']", "1", "2")

    rows, gone = described(notebook)
    assert rows + sum(gone) < 1000
    assert notebook.run(f"len({PLACES}), v2999").text == "(500, [2999])"


def test_reading_everything_changes_nothing(notebook: Notebook) -> None:
    notebook.run(MANY, "1")
    before = described(notebook)
    notebook.run(f"len({PLACES})", "%who_ls", "%state")

    assert described(notebook)[1] == before[1]


def test_of_a_large_pickle_only_the_changed_chunks_are_written(notebook: Notebook) -> None:
    notebook.run("l = ['%011d' % i for i in range(1_000_000)]")
    result = notebook.run("l[700_000] = 'x' * 11")

    assert result.report is not None
    (patched,) = result.report.patched
    assert len(patched.chunks) == 1
    assert notebook.run("l[700_000], l[699_999], l[700_001], len(l)").text == (
        "('xxxxxxxxxxx', '00000699999', '00000700001', 1000000)"
    )
    longer = notebook.run("l[0] = 'longer than it was'")
    assert longer.report is not None
    assert longer.report.patched == ()
    assert notebook.run("l[0], l[-1]").text == "('longer than it was', '00000999999')"


def test_what_another_python_wrote_is_known_after_it_has_settled() -> None:
    rows = {n: [n, {f"v{n}": "int"}, None, [], [], [2, n, 10], [], 10, 4] for n in range(1, 400)}
    index = Index(python="3.10", rows=rows)
    stored: dict[int, bytes] = {}

    def write(body: bytes) -> int:
        stored[9] = body
        return 9

    index.settle(write)
    index.read_by("3.11")
    again = Index.from_bytes(index.to_bytes())
    again.read_settled(stored.__getitem__)

    assert again.rows == {}
    assert again.is_foreign(5)
    assert again.component(5).names == {"v5": "int"}
