"""``%state`` tells what of the session is stored, what changed, and why something is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lambda_kernel.child.state_magics import shown_size

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook


def printed(notebook: Notebook, code: str) -> str:
    messages = notebook.run(code).messages
    return "".join(
        each["content"]["text"]
        for each in messages
        if each["msg_type"] == "stream" and each["content"]["name"] == "stdout"
    )


def rows(text: str) -> list[list[str]]:
    return [line.split(maxsplit=5) for line in text.splitlines()[2:]]


def test_a_new_session_has_nothing(notebook: Notebook) -> None:
    assert printed(notebook, "%state") == "nothing is stored yet\n"
    assert printed(notebook, "%state diff") == "cell [1] changed nothing\n"


def test_the_table_is_sorted_by_size_and_reads_nothing(notebook: Notebook) -> None:
    notebook.run("small = [1]; large = 'x' * 20_000; g = (n for n in small)\nclass Point: pass")
    notebook.run("small.append(2)")

    found = printed(notebook, "small\n%state")

    assert found.startswith("after cell [2]\n")
    assert rows(found)[0] == ["large", "str", "20.0", "kB", "[1]", "yes"]
    assert ["small", "list", "27", "B", "[2]", "yes     yes"] in rows(found)
    assert [row[0] for row in rows(found)] == ["large", "Point", "small", "g"]
    assert rows(found)[-1][:4] == ["g", "generator", "[1]", "no:"]


def test_the_difference_is_that_of_the_cell_before(notebook: Notebook) -> None:
    notebook.run("a = [1]; b = [2]; c = [3]; g = (n for n in a)")
    notebook.run("a.append(4); del b; d = 5; h = (n for n in a)")

    found = printed(notebook, "%state diff")

    assert found.splitlines() == [
        "cell [2] changed",
        "  added: d",
        "  changed: a",
        "  removed: b",
        "  lost: h",
    ]
    assert printed(notebook, "%state diff") == "cell [3] changed nothing\n"


def test_the_story_of_a_name_says_what_it_shares_and_needs(notebook: Notebook) -> None:
    notebook.run("class Point: pass\na = [Point()]; b = a; g = (n for n in a)")

    a = printed(notebook, "%state why a")
    point = printed(notebook, "%state why Point")

    assert a.startswith("'a' (list) was stored by cell [1], ")
    assert "it shares objects with 'b': they are stored as one" in a
    assert "it needs 'Point', which is kept as long as it is" in a
    assert "it is needed by 'a', 'b'" in point
    assert "was a generator made in In[1]" in printed(notebook, "%state why g")
    assert printed(notebook, "new = 1\n%state why new").startswith("'new' (int) is not stored yet")
    assert printed(notebook, "%state why nothing") == "the session has no 'nothing'\n"


def test_stored_bytes_of_what_cannot_be_read_any_more_can_be_had(notebook: Notebook) -> None:
    module = notebook.workdir / "gone.py"
    module.write_text("class Thing: pass")
    notebook.run("import gone; thing = gone.Thing(); thing.word = 'precious'; del gone")
    module.unlink()

    assert "cannot be read" in printed(notebook, "%state export thing\n%state")
    assert b"precious" in (notebook.workdir / "thing.pickle").read_bytes()
    assert "reading it failed" in printed(notebook, "%state why thing")


def test_large_buffers_are_written_beside_the_pickle(notebook: Notebook) -> None:
    notebook.run("import numpy as np; a = np.arange(10**5)")

    found = printed(notebook, "%state export a copy.bin")

    files = {path.name: path.stat().st_size for path in notebook.workdir.iterdir()}
    assert files["copy.buffer1"] == 800_000
    assert files["copy.bin"] < 1000
    assert "buffers out of band; it holds a" in found


@pytest.mark.parametrize("line", ["bogus", "why", "why a b", "export", "export nothing", "diff x"])
def test_anything_else_is_a_usage_error(notebook: Notebook, line: str) -> None:
    notebook.run("x = 1")
    assert notebook.ask(f"%state {line}").content["ename"] == "UsageError"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (3 * 10**12, "3000.0 GB")],
)
def test_sizes_are_for_people(size_bytes: int, text: str) -> None:
    assert shown_size(size_bytes) == text
