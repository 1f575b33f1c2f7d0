"""A variable that cannot be read stays stored; what else there is goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

BIG = "import numpy as np\nbig = np.arange(1_000_000)\nsmall = [1]"


def test_while_storage_is_down_a_read_fails_and_a_later_one_works(notebook: Notebook) -> None:
    notebook.run(BIG)
    notebook.objects.error = "the storage is away"

    failed = notebook.ask("small.append(2)\nbig.sum()")
    other = notebook.run("small.append(3)\nsmall")
    notebook.objects.error = ""

    assert failed.content["ename"] == "VariableUnavailable"
    assert "'big'" in failed.content["evalue"]
    assert "the storage is away" in failed.content["evalue"]
    assert other.text == "[1, 2, 3]"
    assert notebook.run("int(big.sum()), small").text == "(499999500000, [1, 2, 3])"


def test_a_cell_that_could_not_read_may_still_overwrite_and_delete(notebook: Notebook) -> None:
    notebook.run(BIG + "\nlarge = big + 1")
    notebook.objects.error = "away"

    notebook.run("big = 'new'", "del large")
    notebook.objects.error = ""

    assert notebook.run("big, 'large' in globals()").text == "('new', False)"


def test_everything_is_listed_while_one_value_cannot_be_read(notebook: Notebook) -> None:
    notebook.run(BIG)
    notebook.objects.error = "away"

    result = notebook.ask("names = [n for n in globals() if n in ('big', 'small')]")
    notebook.objects.error = ""

    assert result.content["status"] == "ok"
    assert "small" in notebook.run("names").text
    assert notebook.run("int(big[-1])").text == "999999"


def test_a_value_whose_module_comes_back_can_be_read_again(notebook: Notebook) -> None:
    module = notebook.workdir / "coming.py"
    source = "class Thing:\n    def __init__(self, n):\n        self.n = n\n"
    module.write_text(source)
    notebook.run("import coming\nt, other = coming.Thing(3), [1]\ndel coming")
    module.unlink()

    gone = notebook.ask("t")
    notebook.run("other.append(2)")
    module.write_text(source)
    back = notebook.run("t.n, other")

    assert gone.content["ename"] == "NameError"
    assert "coming" in gone.stream("stderr")
    assert back.text == "(3, [1, 2])"


def test_a_class_that_raises_when_it_is_read_can_be_read_later(notebook: Notebook) -> None:
    (notebook.workdir / "moody.py").write_text(
        "import os\n"
        "class Moody:\n"
        "    def __setstate__(self, state):\n"
        "        if os.path.exists('bad day'):\n"
        "            raise RuntimeError('not today')\n"
        "        self.__dict__.update(state)\n"
    )
    notebook.run("import moody\nm = moody.Moody()\nm.x = 4\npair = [m]\nalone = 1")
    (notebook.workdir / "bad day").touch()

    failed = notebook.ask("m.x")
    assert notebook.run("alone").text == "1"
    (notebook.workdir / "bad day").unlink()

    assert failed.content["ename"] == "NameError"
    assert "not today" in failed.stream("stderr")
    assert notebook.run("m.x, pair[0] is m").text == "(4, True)"


def test_damaged_bytes_harm_their_own_variables_only(notebook: Notebook) -> None:
    notebook.run("big = [str(n) for n in range(300_000)]\nsmall = [1]")
    objects = notebook.objects
    (large,) = [number for number, body in objects.bodies.items() if len(body) > 1_000_000]
    good = objects.bodies[large]
    objects.bodies[large] = b"\x00" * len(good)

    failed = notebook.ask("big[0]")
    assert notebook.run("small").text == "[1]"
    objects.bodies[large] = good

    assert failed.content["ename"] == "NameError"
    assert "'big'" in failed.stream("stderr")
    assert notebook.run("big[7]").text == "'7'"


def test_a_class_that_ends_the_process_when_read_harms_its_own_cell_only(
    notebook: Notebook,
) -> None:
    (notebook.workdir / "deadly.py").write_text(
        "import os\n"
        "class Deadly:\n"
        "    def __setstate__(self, state):\n"
        "        if os.path.exists('bad day'):\n"
        "            raise SystemExit('bye')\n"
    )
    notebook.run("import deadly\nd = deadly.Deadly()\nd.x = 1\nsmall = [1]")
    (notebook.workdir / "bad day").touch()

    failed = notebook.ask("d")

    assert failed.content["status"] == "error"
    assert notebook.run("small").text == "[1]"


def test_a_function_survives_that_a_definition_it_reads_cannot_be_read(notebook: Notebook) -> None:
    module = notebook.workdir / "basis.py"
    module.write_text("class Base:\n    pass\n")
    notebook.run(
        "from basis import Base\nclass Heir(Base):\n    pass\nh = Heir()\ndef f(): return 2"
    )
    module.unlink()

    failed = notebook.ask("h")
    kept = notebook.run("f()")
    module.write_text("class Base:\n    pass\n")

    assert failed.content["status"] == "error"
    assert kept.text == "2"
    assert notebook.run("isinstance(h, Heir), isinstance(h, Base)").text == "(True, True)"


def test_a_value_that_cannot_be_read_can_be_deleted(notebook: Notebook) -> None:
    module = notebook.workdir / "going.py"
    module.write_text("class Thing:\n    pass\n")
    notebook.run("import going\nt, other = going.Thing(), [1]\ndel going")
    module.unlink()

    notebook.run("del t\n'after'")

    assert notebook.ask("t").content["evalue"] == "name 't' is not defined"
    assert notebook.run("'t' in dir(), other").text == "(False, [1])"
