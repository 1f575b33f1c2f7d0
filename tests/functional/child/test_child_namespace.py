"""What survives from one cell to the next, each cell in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lambda_kernel.contract.cell_protocol import CellLimits

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook


def test_variables_survive_three_cells(notebook: Notebook) -> None:
    result = notebook.run("x = [1]", "x.append(2)", "x.append(3)\nx")

    assert result.text == "[1, 2, 3]"
    assert result.names == {"x": "list"}


def test_showing_all_outputs_is_no_output(notebook: Notebook) -> None:
    notebook.run("41 + 1", "'b'", "pass")

    assert notebook.run("Out").text == "{1: 42, 2: 'b'}"
    assert notebook.run("_, __").text == "('b', 42)"


def test_a_deleted_variable_stays_deleted(notebook: Notebook) -> None:
    notebook.run("x = 1", "del x")

    assert notebook.ask("x").content["ename"] == "NameError"


def test_a_function_sees_a_global_that_is_rebound_later(notebook: Notebook) -> None:
    notebook.run("n = 1\ndef f():\n    return n", "n = 2")

    assert notebook.run("f()").text == "2"


def test_a_function_sets_a_global_that_later_cells_see(notebook: Notebook) -> None:
    notebook.run("def f():\n    global made\n    made = 'here'", "f()")

    assert notebook.run("made").text == "'here'"


def test_a_function_sees_another_that_is_defined_later(notebook: Notebook) -> None:
    notebook.run("def outer():\n    return inner()", "def inner():\n    return 'inner'")

    assert notebook.run("outer()").text == "'inner'"


def test_recursive_functions_and_closures_work(notebook: Notebook) -> None:
    notebook.run(
        "def make():\n    def fact(n):\n        return 1 if n < 2 else n * fact(n - 1)\n"
        "    return fact\nfact = make()",
        "pass",
    )

    assert notebook.run("fact(5)").text == "120"


def test_two_closures_keep_sharing_their_cell(notebook: Notebook) -> None:
    notebook.run(
        "def make():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n"
        "    def get():\n        return n\n    return up, get\nup, get = make()",
        "up()",
        "up()",
    )

    assert notebook.run("get()").text == "2"


def test_function_attributes_defaults_and_annotations_survive(notebook: Notebook) -> None:
    notebook.run("def f(a: int, b=[1], *, c='c') -> str:\n    'doc'\nf.tag = 1\nf.me = f")

    shown = "f.__defaults__, f.__kwdefaults__, f.__annotations__, f.__doc__, f.tag, f.me is f"
    expected = "(([1],), {'c': 'c'}, {'a': int, 'return': str}, 'doc', 1, True)"
    assert " ".join(notebook.run(shown).text.split()) == expected


def test_a_cached_function_survives_with_an_empty_cache(notebook: Notebook) -> None:
    notebook.run(
        "import functools\n@functools.lru_cache(maxsize=7)\ndef fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(10)"
    )

    assert notebook.run("fib(20), fib.cache_info().maxsize, fib.__name__").text == (
        "(6765, 7, 'fib')"
    )


def test_a_class_keeps_its_identity(notebook: Notebook) -> None:
    notebook.run(
        "class Base:\n    def hello(self):\n        return greeting\n"
        "class Child(Base):\n    def hello(self):\n        return super().hello() + '!'",
        "c = Child()",
        "greeting = 'hi'",
    )

    assert notebook.run("isinstance(c, Child), type(c) is Child, c.hello()").text == (
        "(True, True, 'hi!')"
    )


def test_dataclasses_enums_and_named_tuples_survive(notebook: Notebook) -> None:
    notebook.run(
        "import dataclasses, enum, typing\n"
        "@dataclasses.dataclass(frozen=True)\nclass D:\n    x: int\n"
        "class E(enum.Enum):\n    A = 1\n"
        "class N(typing.NamedTuple):\n    y: int\n"
        "d, e, n = D(1), E.A, N(2)",
        "pass",
    )

    assert notebook.run("d == D(1), e is E.A, n == N(2), type(n) is N").text == (
        "(True, True, True, True)"
    )


def test_two_names_for_one_object_stay_two_names(notebook: Notebook) -> None:
    notebook.run("a = []\nb = a\nholder = {'a': a}", "a.append(1)")

    assert notebook.run("a is b, holder['a'] is a, b").text == "(True, True, [1])"


def test_names_for_the_namespace_itself_stay_what_they_are(notebook: Notebook) -> None:
    notebook.run("g = globals()\nh = In\nimport os\ne = os.environ\nme = get_ipython()")

    text = notebook.run("g is globals(), h is In, e is os.environ, me is get_ipython()").text
    assert text == "(True, True, True, True)"


def test_modules_and_partly_imported_names_survive(notebook: Notebook) -> None:
    notebook.run("import numpy as np\nfrom math import sqrt\nimport os.path as p")

    assert notebook.run("np.arange(3).sum(), sqrt(4), p.join('a', 'b')").text == (
        "(np.int64(3), 2.0, 'a/b')"
    )


def test_in_out_and_underscores_continue(notebook: Notebook) -> None:
    notebook.run("1 + 1", "_ * 10", "__ + _")

    result = notebook.run("_, __, ___, Out[1], _2, In[1], _i1, _i")

    assert result.text == "(22, 20, 2, 2, 20, '1 + 1', '1 + 1', '__ + _')"


def test_input_numbers_keep_their_place_where_a_cell_was_lost(notebook: Notebook) -> None:
    notebook.run("'first'")
    notebook.ask("import os\nos._exit(1)")

    assert notebook.run("In[1], In[2], In[3][:5]").text == "(\"'first'\", '', 'In[1]')"


def test_a_lost_variable_is_named_once_and_a_later_name_error_tells(notebook: Notebook) -> None:
    lost = notebook.run("g = (i for i in range(3))\nkept = 1")
    quiet = notebook.run("kept")
    result = notebook.ask("print(g)")

    assert lost.stream("stderr").startswith(
        "[state] 'g' (generator) will not exist in the next cell: a running generator"
    )
    assert "g = list(g)" in lost.stream("stderr")
    assert lost.report is not None
    assert [(n.name, n.type) for n in lost.report.lost] == [("g", "generator")]
    assert quiet.stream("stderr") == ""
    assert result.content["ename"] == "NameError"
    assert result.content["evalue"].startswith(
        "name 'g' is not defined\n'g' was a generator made in In[1]."
    )
    assert "run In[1] again" in result.of_type("error")[0]["content"]["traceback"][-1]


def test_the_story_of_a_lost_variable_ends_when_it_is_made_again(notebook: Notebook) -> None:
    notebook.run("g = iter(x for x in 'ab')", "g = 'fine'", "del g")

    assert notebook.ask("g").content["evalue"] == "name 'g' is not defined"


@pytest.mark.parametrize(
    ("code", "type_name", "reason"),
    [
        ("import socket\nv = socket.socket()", "socket.socket", "connection"),
        ("async def f(): pass\nv = f()", "coroutine", "coroutine"),
        ("v = []\nfor _ in range(300_000):\n    v = [v]", "list", "nested too deeply"),
        (
            "class Bad:\n    def __reduce__(self):\n        raise SystemExit('no')\nv = Bad()",
            "Bad",
            "SystemExit: no",
        ),
    ],
)
def test_what_cannot_be_carried_is_named_and_the_rest_is_carried(
    notebook: Notebook, code: str, type_name: str, reason: str
) -> None:
    result = notebook.run(f"before = 1\n{code}\nafter = 2")

    assert result.report is not None
    (loss,) = result.report.lost
    assert (loss.name, loss.type) == ("v", type_name)
    assert reason in loss.why
    assert notebook.run("before, after").text == "(1, 2)"


def test_names_that_share_with_a_lost_one_keep_sharing(notebook: Notebook) -> None:
    notebook.run("shared = []\nlost = (shared, (i for i in ()))\na = [shared]\nb = [shared]")

    assert notebook.run("a[0] is b[0] is shared").text == "True"


def test_a_value_whose_module_is_gone_is_named_and_the_rest_is_there(notebook: Notebook) -> None:
    module = notebook.workdir / "passing.py"
    module.write_text("class Thing:\n    pass\n")
    notebook.run(
        "from passing import Thing\nbefore = [1]\nt = Thing()\npair = [before, t]\nafter = [before]"
    )
    module.unlink()

    result = notebook.run("before, after, after[0] is before")
    error = notebook.ask("pair")

    assert result.text == "([1], [[1]], True)"
    assert "'t'" in result.stream("stderr")
    assert "the module 'passing' cannot be imported" in result.stream("stderr")
    assert result.report is not None
    assert {loss.name for loss in result.report.lost} == {"t", "pair"}
    assert "'pair' was a list" in error.content["evalue"]


def test_the_environment_follows_but_never_its_secrets(notebook: Notebook) -> None:
    notebook.environment = {"CONN_DB_URL": "postgres://first", "PLAIN": "1", "GONE": "1"}
    notebook.run(
        "import os\nos.environ.update(MINE='a', CONN_X='b', AWS_TOKEN='c', PLAIN='2')\n"
        "del os.environ['GONE']"
    )
    notebook.environment["CONN_DB_URL"] = "postgres://second"

    names = ("MINE", "CONN_X", "AWS_TOKEN", "PLAIN", "GONE", "CONN_DB_URL")
    result = notebook.run(f"[os.environ.get(n) for n in {names}]")

    assert result.text == "['a', None, None, '2', None, 'postgres://second']"
    assert all(b"postgres://" not in body for body in notebook.objects.bodies.values())


def test_a_variable_that_holds_a_secret_is_not_stored(notebook: Notebook) -> None:
    notebook.environment = {"CONN_DB_URL": "postgres://user:hunter2@db"}

    result = notebook.run("import os\nurl = {'u': os.environ['CONN_DB_URL'] + '/x'}\nother = 1")

    assert all(b"hunter2" not in body for body in notebook.objects.bodies.values())
    assert result.report is not None
    assert [loss.name for loss in result.report.lost] == ["url"]
    assert "CONN_DB_URL" in result.report.lost[0].why
    assert "hunter2" not in result.stream("stderr")


def test_the_current_directory_and_import_paths_follow(notebook: Notebook) -> None:
    notebook.run("import os, sys\nos.mkdir('sub')\nos.chdir('sub')\nsys.path.insert(0, '/front')")

    result = notebook.run("os.path.relpath(os.getcwd(), os.environ['PWD']), sys.path[0]")

    assert result.text == "('sub', '/front')"


def test_a_current_directory_that_is_gone_is_a_notice(notebook: Notebook) -> None:
    notebook.run("import os\nos.mkdir('sub')\nos.chdir('sub')")
    (notebook.workdir / "sub").rmdir()

    result = notebook.run("os.getcwd() == os.environ['PWD']")

    assert result.text == "True"
    assert "'sub' is gone" in result.stream("stderr")


def test_random_numbers_continue_as_in_one_process(notebook: Notebook) -> None:
    draw = "(random.random(), float(np.random.random()))"
    notebook.run("import random, numpy as np\nrandom.seed(1)\nnp.random.seed(1)")
    drawn = [notebook.run(draw).text, notebook.run(draw).text]

    expected = notebook.run(f"random.seed(1)\nnp.random.seed(1)\n{draw}, {draw}").text

    assert f"({drawn[0]}, {drawn[1]})" == " ".join(expected.split())


def test_a_snapshot_over_its_limit_is_refused_after_the_reply(notebook: Notebook) -> None:
    notebook.limits = CellLimits(snapshot_bytes=100_000)

    result = notebook.ask("x = bytes(200_000)\n'done'")

    assert result.text == "'done'"
    assert result.content["status"] == "ok"
    assert result.failed is not None
    assert result.failed["reason"] == "snapshot_too_large"
    assert result.report is None


def test_a_snapshot_that_is_cut_short_is_refused(notebook: Notebook) -> None:
    notebook.run("x = 1")
    notebook.objects.bodies[notebook.objects.index] = b"{"

    result = notebook.ask("x")

    assert result.failed is not None
    assert result.failed["reason"] == "snapshot_unreadable"
    assert result.reply == {}


def test_one_large_array_is_shared_by_its_views(notebook: Notebook) -> None:
    notebook.run("import numpy as np\na = np.zeros(1_000_000)\nrow = {'first': a}", "a[0] = 7")

    assert notebook.run("float(row['first'][0])").text == "7.0"


def test_the_thread_that_sends_output_goes_on_while_variables_are_stored(
    notebook: Notebook,
) -> None:
    notebook.run(
        "class Look:\n    def __reduce__(self):\n        import threading\n"
        "        return list, ([t.name for t in threading.enumerate()],)\n"
        "look = Look()\nprint('no newline', end='')"
    )

    assert notebook.run("look").text == "['MainThread', 'lkg-output']"
