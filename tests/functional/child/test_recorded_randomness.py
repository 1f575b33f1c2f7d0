"""What a session draws at random comes again with the same seeds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

SEEDS = {"random": 1, "numpy": 2, "default_rng": 3}
CELLS = (
    "import random, numpy as np\nprint(random.random(), np.random.random())",
    "deck = list(range(20))\nrandom.shuffle(deck)\nprint(deck, np.random.default_rng().random())",
    "rng = np.random.default_rng()\nprint(rng.random(), np.random.default_rng().random())",
    "print(rng.random(), np.random.RandomState().random(), np.random.PCG64().random_raw())",
    "np.random.seed()\nprint(np.random.random(), random.sample(deck, 3))",
    "print({'alpha', 'beta', 'gamma', 'delta'}, hash('x'))",
)


@pytest.fixture
def new_session(zygote: Any, notebook: Any) -> Any:
    """Return a function that begins a session with seeds."""
    made: list[tempfile.TemporaryDirectory[str]] = []

    def begin(seeds: dict[str, int]) -> Any:
        folder = tempfile.TemporaryDirectory(prefix="lkg-child-")
        made.append(folder)
        session = type(notebook)(zygote, Path(folder.name))
        session.seeds = seeds
        return session

    yield begin
    for folder in made:
        folder.cleanup()


def printed(session: Any, cells: tuple[str, ...]) -> list[str]:
    return [session.run(code).stream("stdout") for code in cells]


def test_a_session_with_the_same_seeds_prints_the_same(new_session: Any) -> None:
    assert printed(new_session(SEEDS), CELLS) == printed(new_session(SEEDS), CELLS)


def test_sessions_with_their_own_seeds_differ_in_every_cell_that_draws(new_session: Any) -> None:
    one = printed(new_session(SEEDS), CELLS)
    other = printed(new_session({"random": 4, "numpy": 5, "default_rng": 6}), CELLS)

    assert [a == b for a, b in zip(one, other, strict=True)] == [False] * 5 + [True]


def test_it_makes_no_difference_whether_numpy_was_imported_ahead(
    new_session: Any, notebook: Any, tmp_path: Path
) -> None:
    bare = type(notebook.zygote)(tmp_path)
    late = type(notebook)(bare, tmp_path)
    late.seeds = SEEDS

    assert printed(late, CELLS) == printed(new_session(SEEDS), CELLS)
    assert bare.close() == 0


def test_no_two_generators_of_a_session_draw_the_same(new_session: Any) -> None:
    session = new_session(SEEDS)
    session.run("import numpy as np\ndrawn = {np.random.default_rng().random() for _ in range(50)}")
    session.run("drawn |= {np.random.default_rng().random() for _ in range(50)}")

    assert session.run("len(drawn)").text == "100"


def test_a_session_that_goes_on_keeps_the_seeds_it_began_with(new_session: Any) -> None:
    code = "import numpy as np\nnp.random.default_rng().random()"
    straight, forked = new_session(SEEDS), new_session(SEEDS)
    straight.run(code)
    forked.run(code)
    forked.seeds = {}

    assert forked.run(code).text == straight.run(code).text


def test_workers_that_a_cell_forks_draw_other_numbers_each_and_the_same_in_a_replay(
    new_session: Any,
) -> None:
    code = (
        "import multiprocessing, random\nimport numpy as np\n"
        "def draw(queue):\n    queue.put((np.random.default_rng().random(), random.random()))\n"
        "context = multiprocessing.get_context('fork')\n"
        "drawn = []\n"
        "for _ in range(3):\n"
        "    queue = context.SimpleQueue()\n"
        "    worker = context.Process(target=draw, args=(queue,))\n"
        "    worker.start(); drawn.append(queue.get()); worker.join()\n"
        "drawn.append((np.random.default_rng().random(), random.random()))\n"
        "print(drawn)\n[len(set(each)) for each in zip(*drawn)]"
    )
    first, second = new_session(SEEDS).run(code), new_session(SEEDS).run(code)

    assert first.text == "[4, 4]"
    assert first.stream("stdout") == second.stream("stdout")


def test_threads_that_draw_at_once_draw_other_numbers(new_session: Any) -> None:
    code = (
        "import numpy as np\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    drawn = list(pool.map(lambda _: np.random.default_rng().random(), range(400)))\n"
        "len(set(drawn))"
    )

    assert new_session(SEEDS).run(code).text == "400"


def test_an_svg_of_the_same_figure_has_the_same_bytes(new_session: Any) -> None:
    code = (
        "import hashlib, io\nimport matplotlib.pyplot as plt\n"
        "figure, axes = plt.subplots()\naxes.plot([1, 2])\nfile = io.StringIO()\n"
        "figure.savefig(file, format='svg')\nplt.close()\n"
        "hashlib.sha256(file.getvalue().encode()).hexdigest()"
    )
    session = new_session(SEEDS)

    first = session.run(code).text
    session.run("plt.rcdefaults()")

    assert session.run(code).text == first
    assert new_session({}).run(code).text == first


def test_a_salt_of_the_users_own_stays(new_session: Any) -> None:
    session = new_session(SEEDS)
    session.run("import matplotlib\nmatplotlib.rcParams['svg.hashsalt'] = 'mine'")

    assert session.run("matplotlib.rcParams['svg.hashsalt']").text == "'mine'"


def test_secrets_are_never_drawn_from_the_seeds(new_session: Any) -> None:
    code = (
        "import os, random, secrets, uuid\nimport numpy as np\nnp.random.default_rng()\n"
        "secrets.token_hex(), os.urandom(9), uuid.uuid4(), random.SystemRandom().random()"
    )

    first, second = new_session(SEEDS).run(code), new_session(SEEDS).run(code)

    drawn = [result.text.split(",") for result in (first, second)]
    assert [a != b for a, b in zip(*drawn, strict=True)] == [True] * 4
