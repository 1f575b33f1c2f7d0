"""complete and inspect in a real child, against a stored session."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.child.conftest import Notebook, Result


def ask(notebook: Notebook, kind: str, code: str, cursor: int | None = None, **more: Any) -> Result:
    position = len(code) if cursor is None else cursor
    request = notebook.request(code, kind=kind, cursor_pos=position, **more)
    result = notebook.zygote.finish(notebook.zygote.start(request, notebook.objects))
    assert result.failed is None, result.failed
    assert result.report is None
    return result


def complete(notebook: Notebook, code: str, cursor: int | None = None) -> list[str]:
    matches: list[str] = ask(notebook, "complete", code, cursor).content["matches"]
    return matches


def inspect(notebook: Notebook, code: str, cursor: int | None = None, **more: Any) -> str:
    content = ask(notebook, "inspect", code, cursor, **more).content
    text: str = content["data"]["text/plain"] if content["found"] else ""
    return text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("remar", "remarkable"),
        ("words.app", "append"),
        ("table['", "key one"),
        ("frame['", "alpha"),
        ("frame.al", "alpha"),
        ("frame.alpha.me", "mean"),
        ("open('da", "data.csv"),
        ("open('folder/", "folder/inner.txt"),
        ("%%timei", "%%timeit"),
        ("%tim", "%timeit"),
        ("import coll", "collections"),
        ("remarkable(fi", "first="),
        ("later = words\nlater.exte", "extend"),
        ("_.app", "append"),
        ("Out[8].app", "append"),
        ("\N{SNAKE} = 1; words.app", "append"),
    ],
)
def test_what_ipykernel_completes_is_completed(
    notebook: Notebook, code: str, expected: str
) -> None:
    (notebook.workdir / "data.csv").write_text("1")
    (notebook.workdir / "folder").mkdir()
    (notebook.workdir / "folder" / "inner.txt").write_text("1")
    notebook.execution_count = 7
    notebook.run(
        "import pandas\n"
        "def remarkable(first, second=2):\n    'Documented.'\n"
        "words = ['a']\ntable = {'key one': 1}\nframe = pandas.DataFrame({'alpha': [1]})",
        "words",
    )

    if "\N{SNAKE}" in code:
        code = code.replace("\N{SNAKE} = 1", "'\N{SNAKE}'")
    assert expected in complete(notebook, code)


def test_a_match_has_its_type_signature_and_place_in_code_points(notebook: Notebook) -> None:
    notebook.run("def remarkable(first): pass")

    content = ask(notebook, "complete", "'\N{SNAKE}'; remar").content

    (found,) = content["metadata"]["_jupyter_types_experimental"]
    assert found == {
        "start": 5,
        "end": 10,
        "text": "remarkable",
        "type": "function",
        "signature": "(first)",
    }
    assert (content["cursor_start"], content["cursor_end"]) == (5, 10)


def kinds(notebook: Notebook, code: str) -> dict[str, str]:
    content = ask(notebook, "complete", code).content
    assert content["cursor_end"] == len(code)
    found = content["metadata"]["_jupyter_types_experimental"]
    return {code[: each["start"]] + each["text"]: each["type"] for each in found}


def test_attributes_have_the_kinds_that_jedi_gives_them(notebook: Notebook) -> None:
    notebook.run(
        "import os, pandas\n"
        "class Thing:\n"
        "    size = 1\n"
        "    class Inner: pass\n"
        "    _hidden = 2\n"
        "    def work(self): pass\n"
        "    @staticmethod\n"
        "    def static(): pass\n"
        "    @property\n"
        "    def prop(self): raise SystemExit\n"
        "thing = Thing()"
    )

    assert kinds(notebook, "thing.") == {
        "thing.size": "instance",
        "thing.Inner": "class",
        "thing.work": "function",
        "thing.static": "function",
        "thing.prop": "instance",
    }
    assert kinds(notebook, "x = [thing.WO") == {"x = [thing.work": "function"}
    assert kinds(notebook, "thing._hid") == {"thing._hidden": "instance"}
    assert kinds(notebook, "os.pat")["os.path"] == "module"
    assert kinds(notebook, "pandas.Series.st")["pandas.Series.str"] in ("class", "instance")
    assert kinds(notebook, "''.isaln") == {"''.isalnum": "function"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("words = {}\nwords.", "items"),
        ("for words in [{}]:\n    words.", "items"),
        ("def f(words: dict):\n    words.", "items"),
        ("''.join(words).spl", "splitlines"),
        ("f(words)[0].ap", None),
        ("'words.ap", None),
        ("'''\nwords.ap", None),
        ("words[0].isal", "isalpha"),
    ],
)
def test_what_the_cell_says_itself_counts_before_the_object(
    notebook: Notebook, code: str, expected: str | None
) -> None:
    notebook.run("words = ['a']", "words")

    found = complete(notebook, code)

    assert expected in found if expected else found == []


def test_only_what_the_line_needs_is_read(notebook: Notebook) -> None:
    notebook.run("import numpy as np\nlarge = np.zeros(10**6)\nwords = ['a']")
    notebook.objects.asked_bytes = 0

    assert "append" in complete(notebook, "large.sum()\nwords.app")
    assert "large" in complete(notebook, "lar")
    assert notebook.objects.asked_bytes < 100_000
    assert "argmax" in complete(notebook, "large.argm")
    assert notebook.objects.asked_bytes >= 8_000_000


def test_a_function_finds_stored_names_while_it_is_asked(notebook: Notebook) -> None:
    notebook.run(
        "names = ['from_the_session']\n"
        "class Lazy:\n    def __dir__(self):\n        return globals_of()\n"
        "def globals_of():\n    return names\n"
        "lazy = Lazy()"
    )

    assert complete(notebook, "lazy.from_") == ["from_the_session"]


@pytest.mark.parametrize(
    ("code", "cursor"),
    [("remarkable", 4), ("remarkable(1, ", 14), ("x = remarkable(\n    1,\n", 20)],
)
def test_a_tooltip_shows_signature_and_documentation(
    notebook: Notebook, code: str, cursor: int
) -> None:
    notebook.run("def remarkable(first, second=2):\n    'Documented.'\n    return first")

    brief = inspect(notebook, code, cursor, detail_level=0)
    full = inspect(notebook, code, cursor, detail_level=1)

    assert "first" in brief
    assert "Documented." in brief
    assert "second" in full
    assert "return" in full


def test_an_unknown_name_is_not_found(notebook: Notebook) -> None:
    assert inspect(notebook, "nothing_of_this_name") == ""


def test_nothing_that_runs_while_it_is_asked_is_left(notebook: Notebook) -> None:
    notebook.run(
        "changed = []\n"
        "class Evil:\n"
        "    def _evil(self):\n"
        "        changed.append(1)\n"
        "        self.mutated = True\n"
        "        print('printed')\n"
        "    def __dir__(self):\n"
        "        self._evil()\n"
        "        return ['visible']\n"
        "    def __repr__(self):\n"
        "        self._evil()\n"
        "        return 'evil'\n"
        "    @property\n"
        "    def prop(self):\n"
        "        self._evil()\n"
        "        return ''\n"
        "evil = Evil()"
    )

    assert complete(notebook, "evil.vis") == ["visible"]
    complete(notebook, "evil.prop.")
    assert "evil" in inspect(notebook, "evil")
    assert notebook.run("changed, vars(evil)").text == "([], {})"


@pytest.mark.parametrize("code", ["", "(" * 2000, "\x00", "x" * 5000, "a.b.c" * 1000, "'" * 999])
def test_strange_code_gets_an_answer(notebook: Notebook, code: str) -> None:
    assert ask(notebook, "complete", code).content["status"] == "ok"
    assert ask(notebook, "inspect", code).content["status"] == "ok"
