"""What kind of process a cell is, and that the zygote outlives it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lambda_kernel.contract.cell_protocol import CellLimits

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook


def test_a_cell_leads_its_own_session_with_a_plain_umask(notebook: Notebook) -> None:
    code = "import os\nm = os.umask(0)\nos.getsid(0) == os.getpid(), oct(m)"

    assert notebook.run(code).text == "(True, '0o22')"


def test_a_cell_inherits_no_other_descriptor(notebook: Notebook) -> None:
    code = (
        "import os\n"
        "[os.readlink(f'/proc/self/fd/{fd}').split(':')[0] for fd in range(64)"
        " if os.path.exists(f'/proc/self/fd/{fd}')]"
    )

    names = notebook.run(code).text

    assert names.startswith("['/dev/null', 'pipe', 'pipe'")
    assert "lkg-request" not in names


def test_a_cell_sees_its_home_working_directory_and_environment(notebook: Notebook) -> None:
    notebook.environment = {"CONN_DB_URL": "postgres://secret", "TEAM": "blue"}
    code = "import os, pathlib\nprint(pathlib.Path.home(), os.getcwd(), os.environ['TEAM'])"

    result = notebook.run(code)

    assert result.stream("stdout").split() == [str(notebook.home), str(notebook.workdir), "blue"]
    path = notebook.run("os.environ['PATH'].split(':')[0]").text
    assert path == repr(str(notebook.home / ".local/bin"))


def test_a_cell_sees_nothing_of_the_zygotes_module(notebook: Notebook) -> None:
    result = notebook.run("import sys\n(__name__, sys.modules['__main__'].__dict__ is globals())")

    assert result.text == "('__main__', True)"
    assert notebook.run("sys.path[0], sys.argv").text == "('', ['ipykernel_launcher.py'])"


def test_modules_of_the_working_directory_are_imported(notebook: Notebook) -> None:
    (notebook.workdir / "mine.py").write_text("answer = 42")

    assert notebook.run("import mine\nmine.answer").text == "42"
    assert notebook.run("mine.answer").text == "42"


def test_limits_are_set(notebook: Notebook) -> None:
    notebook.limits = CellLimits(open_files=512, processes=100)
    code = (
        "import resource as r\n"
        "[r.getrlimit(x)[0] for x in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_NPROC)]"
    )

    assert notebook.run(code).text == "[0, 512, 100]"


def test_a_package_of_the_private_home_is_found_through_its_pth_file(notebook: Notebook) -> None:
    site = notebook.home / ".local/lib" / f"python{_python()}" / "site-packages"
    (site / "extra").mkdir(parents=True)
    (site / "extra" / "homemade.py").write_text("where = 'home'")
    (site / "more.pth").write_text("extra\n")

    assert notebook.run("import homemade\nhomemade.where").text == "'home'"


def test_a_broken_usercustomize_is_a_notice(notebook: Notebook) -> None:
    site = notebook.home / ".local/lib" / f"python{_python()}" / "site-packages"
    site.mkdir(parents=True)
    (site / "usercustomize.py").write_text("raise SystemExit('no')")

    result = notebook.run("7")

    assert result.text == "7"
    assert "SystemExit" in result.stream("stderr")


def test_every_first_cell_draws_other_random_numbers(notebook: Notebook) -> None:
    code = "import random, numpy\nrandom.random(), float(numpy.random.random())"

    first = notebook.zygote.finish(notebook.start(code))
    second = notebook.zygote.finish(notebook.start(code))

    assert first.text != second.text


def test_recorded_seeds_give_the_same_numbers(notebook: Notebook) -> None:
    notebook.seeds = {"random": 1, "numpy": 2}
    code = "import random, numpy\nrandom.random(), float(numpy.random.random())"

    first = notebook.zygote.finish(notebook.start(code))
    second = notebook.zygote.finish(notebook.start(code))

    assert first.text == second.text


def test_the_zygote_survives_a_child_that_is_killed(notebook: Notebook) -> None:
    result = notebook.ask("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")

    assert os.WTERMSIG(result.status) == signal.SIGKILL
    assert result.kinds == ["started"]
    assert notebook.run("1").text == "1"


def test_two_cells_run_at_once_in_one_zygote(notebook: Notebook) -> None:
    (notebook.workdir / "gate").unlink(missing_ok=True)
    os.mkfifo(notebook.workdir / "gate")
    waiting = notebook.start("open('gate').read()")
    assert notebook.zygote.finish(notebook.start("1 + 1")).text == "2"
    (notebook.workdir / "gate").write_text("go")

    assert notebook.zygote.finish(waiting).text == "'go'"


def test_a_malformed_request_is_refused(notebook: Notebook) -> None:
    refused = notebook.zygote.refuse(b"{}")

    assert "descriptors" in refused.refused
    assert notebook.run("1").text == "1"


def test_a_missing_preload_module_is_left_out_with_a_log_line(tmp_path: Path) -> None:
    # The conftest's class, reached through the fixture's type: tests import no test module.
    from importlib import util

    spec = util.spec_from_file_location("driver", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    import sys

    driver = util.module_from_spec(spec)
    sys.modules["driver"] = driver
    spec.loader.exec_module(driver)
    zygote = driver.Zygote(tmp_path, "no_such_module", "json")

    result = driver.Notebook(zygote, tmp_path).run("import json\njson.dumps(1)")

    assert result.text == "'1'"
    assert zygote.close() == 0
    lines = [json.loads(line) for line in zygote.log.read_text().splitlines()]
    assert [line["module_name"] for line in lines] == ["no_such_module"]


def _python() -> str:
    import sys

    return f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    "wait", ["time.sleep(60)", "await asyncio.sleep(60)", "subprocess.run(['sleep', '60'])"]
)
def test_an_interrupt_ends_the_cell_and_keeps_what_ran(notebook: Notebook, wait: str) -> None:
    code = f"import asyncio, subprocess, time\nx = 1\nprint('go')\n{wait}"
    running = notebook.start(code)
    seen = b""
    while b"go" not in seen:
        seen += running.frames.recv(65536)
    os.killpg(running.pid, signal.SIGINT)

    result = notebook.zygote.finish(running)

    assert result.content["ename"] == "KeyboardInterrupt"
    assert "x" in result.names


def test_text_that_libraries_hold_back_arrives(notebook: Notebook) -> None:
    code = (
        "import ctypes, sys\nctypes.CDLL(None).printf(b'from C\\n')\n"
        "sys.__stdout__.write('from Python\\n')"
    )

    result = notebook.run(code)

    assert sorted(result.stdout.splitlines()) == [b"from C", b"from Python"]


def test_a_prepared_child_takes_the_next_request_as_any_other(notebook: Notebook) -> None:
    notebook.run("x = 1")
    pid = 0
    # It is replaced as long as the zygote prepares itself too.
    while (prepared := notebook.zygote.prepare()) != pid:
        pid = prepared

    result = notebook.run("import os\nos.getpid(), x, In, Out")

    assert result.text == f"({pid}, 1, ['', 'x = 1', 'import os\\nos.getpid(), x, In, Out'], {{}})"
    assert result.pid == pid
    assert notebook.run("os.getpid()").text != str(pid)


def test_a_prepared_child_that_was_killed_is_not_missed(notebook: Notebook) -> None:
    pid = notebook.zygote.prepare()
    os.kill(pid, signal.SIGKILL)

    result = notebook.zygote.finish(notebook.start("1 + 1"))

    assert result.text == "2"


def test_a_copy_that_the_cell_forked_neither_answers_nor_saves(notebook: Notebook) -> None:
    code = "import os\nx = 'original'\nif os.fork() == 0:\n    x = 'copy'\nelse:\n    os.wait()\nx"

    assert notebook.run(code).text == "'original'"
    assert notebook.run("x").text == "'original'"


def test_a_session_knows_where_its_cells_ran(notebook: Notebook) -> None:
    notebook.environment = {"LKG_CONTAINER_ID": "c1", "LKG_REQUEST_ID": "r1"}
    notebook.run("1")
    notebook.environment = {"LKG_CONTAINER_ID": "c2", "LKG_REQUEST_ID": "r2"}

    table = notebook.run("%invocations").text.splitlines()

    assert [line.split() for line in table] == [
        ["cell", "container", "invocation"],
        ["[1]", "c1", "r1"],
        ["[2]", "c2", "r2"],
    ]


def test_commands_find_the_interpreter_that_runs_the_cell(notebook: Notebook) -> None:
    code = (
        "import subprocess, sys\n"
        "command = ['python3', '-c', 'import sys; print(sys.prefix)']\n"
        "subprocess.check_output(command, text=True).strip() == sys.prefix"
    )

    assert notebook.run(code).text == "True"
