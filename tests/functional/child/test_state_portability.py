"""Sessions that another Python version stored: data loads, definitions come from their sources."""

from __future__ import annotations

import json
import sys

import pytest

from tests.functional.child.conftest import Notebook

OTHER = "3.99"
CELLS = [
    "import dataclasses, enum, functools, numpy as np, pandas as pd",
    "from collections import namedtuple",
    "a = np.arange(500_000); frame = pd.DataFrame({'x': [1, 2], 'y': ['p', 'q']})\nfactor = 3",
    "def scaled(x, *, by=2):\n    return [i * factor * by for i in range(x)]\n\nscaled.note = 'n'",
    """
class Base:
    count = 0
    def __init__(self, size):
        self.size = size
    @property
    def double(self):
        return self.size * 2
    @staticmethod
    def plain(): return 's'

class Derived(Base):
    def __init__(self, size):
        super().__init__(size)
        type(self).count += 1
""",
    "item = Derived(4); items = [item, item]",
    """
@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = 7

point = Point(1)
""",
    "Pair = namedtuple('Pair', 'left right'); pair = Pair(1, 2)",
    """
class Colour(enum.Enum):
    RED = 1
    def shout(self): return self.name + '!'

red = Colour.RED
""",
    """
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up
up = counter()
up()
""",
    "@functools.lru_cache\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "add, double = lambda x, y: x + y, lambda x: x * 2",
    "async def later():\n    return 'later'\ndef steps():\n    yield from range(3)",
]
LOOKS = {
    "(int(a.sum()), frame.shape, frame.y[1])": "(124999750000, (2, 2), 'q')",
    "scaled(2), scaled(2, by=1), scaled.note": "([0, 6], [0, 3], 'n')",
    "(item.double, Base.plain(), Derived.count, items[0] is item)": "(8, 's', 1, True)",
    "isinstance(item, Base), type(item) is Derived, Derived(1).count": "(True, True, 2)",
    "point, Point(1, 7) == point, Point(0) < point": "(Point(x=1, y=7), True, True)",
    "pair, pair.right, Pair(3, 4).left": "(Pair(left=1, right=2), 2, 3)",
    "red is Colour.RED, red.shout()": "(True, 'RED!')",
    "up(), up()": "(2, 3)",
    "fib(30)": "832040",
    "add(1, 2), double(4)": "(3, 8)",
    "await later(), list(steps())": "('later', [0, 1, 2])",
    "In[4].startswith('def scaled')": "True",
}


def move_to_other_python(notebook: Notebook) -> None:
    """Let the session be one that another version has stored."""
    objects = notebook.objects
    index = json.loads(objects.bodies[objects.index])
    assert index["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    objects.bodies[objects.index] = json.dumps(index | {"python": OTHER}).encode()


def test_data_loads_and_definitions_are_made_from_their_sources(notebook: Notebook) -> None:
    notebook.run(*CELLS)
    move_to_other_python(notebook)

    seen = {code: notebook.run(code).text for code in LOOKS}

    assert seen == LOOKS


def test_what_is_not_read_stays_as_the_other_version_stored_it(notebook: Notebook) -> None:
    notebook.run("def f(): return 1", "def g(): return 2")
    move_to_other_python(notebook)
    notebook.run("f()")
    index = json.loads(notebook.objects.bodies[notebook.objects.index])
    numbers = {name: row[0] for row in index["components"] for name in row[1]}

    assert index["foreign"] == {str(numbers["g"]): OTHER}
    assert notebook.run("(f(), g())").text == "(1, 2)"


def test_code_without_a_source_is_a_named_loss_and_its_bytes_stay(notebook: Notebook) -> None:
    notebook.run("x = 5", "exec('def made(): return 1')", "pair = lambda x: x + 1, lambda x: x - 1")
    move_to_other_python(notebook)

    result = notebook.ask("made")

    assert result.content["ename"] == "NameError"
    assert "the source of 'made' is not stored" in result.stream("stderr")
    assert "its bytes are still stored" in result.stream("stderr")
    assert "does not tell which code is meant" in notebook.ask("pair").stream("stderr")
    assert notebook.run("x").text == "5"


@pytest.mark.parametrize("version", [1, 3, "new"])
def test_an_unknown_version_is_refused_with_what_to_do(
    notebook: Notebook, version: int | str
) -> None:
    notebook.run("x = 1")
    objects = notebook.objects
    index = json.loads(objects.bodies[objects.index])
    objects.bodies[objects.index] = json.dumps(index | {"v": version}).encode()

    result = notebook.ask("x")

    assert result.failed is not None
    assert result.failed["reason"] == "snapshot_unreadable"
    assert f"version {version!r} of the format" in result.failed["message"]
    assert "restart the kernel, which empties the namespace" in result.failed["message"]
