"""What one cell does and says: a real ipykernel, seen from the serving process."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook


def test_frames_come_in_their_order(notebook: Notebook) -> None:
    result = notebook.run("print('a')\n1 + 1")

    assert result.kinds == ["started", "message", "message", "reply", "snapshot"]
    assert result.text == "2"
    assert result.content["execution_count"] == 1


def test_stdout_and_stderr_keep_their_order(notebook: Notebook) -> None:
    code = "import sys\nfor i in range(3):\n    print(i)\n    print(-i, file=sys.stderr)"

    result = notebook.run(code)

    seen = "".join(m["content"]["text"] for m in result.of_type("stream"))
    assert seen == "0\n0\n1\n-1\n2\n-2\n"


def test_text_written_without_a_newline_arrives_before_the_cell_ends(notebook: Notebook) -> None:
    # The cell waits until the test has seen its text.
    (notebook.workdir / "gate").unlink(missing_ok=True)
    code = (
        "import os\nos.mkfifo('gate')\nprint('waiting', end='')\nopen('gate').read()\nprint('done')"
    )
    running = notebook.start(code)
    seen = b""
    while b"waiting" not in seen:
        seen += running.frames.recv(65536)
    (notebook.workdir / "gate").write_text("go")

    result = notebook.zygote.finish(running)

    assert result.stream("stdout") == "done\n"


def test_output_of_commands_and_bash_cells_is_captured(notebook: Notebook) -> None:
    assert notebook.run("!echo from a command").stream("stdout").split() == [
        *("from", "a", "command")
    ]
    assert notebook.run("%%bash\necho from bash").stream("stdout") == "from bash\n"
    assert notebook.run("x = 'shown'\n!echo {x}").stream("stdout").strip() == "shown"


def test_descriptors_1_and_2_are_the_pipes(notebook: Notebook) -> None:
    code = "import os, subprocess\nos.write(2, b'raw')\nsubprocess.run(['echo', 'hello'])"

    result = notebook.run(code)

    assert result.stdout == b"hello\n"
    assert result.stderr == b"raw"


def test_standard_input_is_empty_and_input_is_refused(notebook: Notebook) -> None:
    assert notebook.run("import sys, os\nos.read(0, 10)").text == "b''"

    result = notebook.ask("input('name? ')", allow_stdin=False)

    assert result.content["ename"] == "StdinNotImplementedError"


def test_an_answer_to_another_question_is_not_taken(notebook: Notebook) -> None:
    running = notebook.start("print(input('name? '))", allow_stdin=True)
    for answer in ({"number": 7, "value": "late"}, {"number": 1, "value": "right"}):
        memfd = os.memfd_create("answer")
        os.write(memfd, json.dumps(answer).encode())
        socket.send_fds(running.frames, [b"a"], [memfd])
        os.close(memfd)

    result = notebook.zygote.finish(running)

    (asked,) = result.of_type("input_request")
    assert asked["content"] == {"prompt": "name? ", "password": False}
    assert result.stream("stdout") == "right\n"


def test_top_level_await_works(notebook: Notebook) -> None:
    code = "import asyncio\nawait asyncio.gather(asyncio.sleep(0, 'a'), asyncio.sleep(0, 'b'))"

    assert notebook.run(code).text == "['a', 'b']"


def test_a_plot_comes_as_a_png(notebook: Notebook) -> None:
    result = notebook.run(
        "import matplotlib.pyplot as plt", "_ = plt.plot([1, 2]); plt.title('t');"
    )

    (message,) = result.of_type("display_data")
    png = base64.b64decode(message["content"]["data"]["image/png"])
    assert png.startswith(b"\x89PNG")
    assert notebook.run("1 + 1").of_type("display_data") == []


def test_a_display_is_updated_by_its_id_in_a_later_cell(notebook: Notebook) -> None:
    first = notebook.run("h = display('one', display_id='here')")
    second = notebook.run("h.update('two')")

    assert first.of_type("display_data")[0]["content"]["transient"] == {"display_id": "here"}
    update = second.of_type("update_display_data")[0]["content"]
    assert update["transient"] == {"display_id": "here"}
    assert update["data"]["text/plain"] == "'two'"


def test_rich_representations_and_clear_output_pass(notebook: Notebook) -> None:
    code = (
        "from IPython.display import HTML, clear_output\n"
        "print('a')\nclear_output()\nHTML('<b>x</b>')"
    )

    result = notebook.run(code)

    types = [m["msg_type"] for m in result.messages]
    assert types == ["stream", "clear_output", "execute_result"]
    assert result.of_type("execute_result")[0]["content"]["data"]["text/html"] == "<b>x</b>"


def test_comm_messages_keep_their_buffers(notebook: Notebook) -> None:
    code = (
        "import comm\nc = comm.create_comm(target_name='t', data={'a': 1}, buffers=[b'12', b'3'])"
    )

    result = notebook.run(code)

    (message,) = result.of_type("comm_open")
    assert message["content"]["target_name"] == "t"
    assert message["buffers"] == (b"12", b"3")


def test_payloads_reach_the_reply(notebook: Notebook) -> None:
    page = notebook.run("len?").content["payload"]
    next_input = notebook.run("get_ipython().set_next_input('x = 1')").content["payload"]

    assert page[0]["source"] == "page"
    assert "Return the number of items" in page[0]["data"]["text/plain"]
    assert next_input == [{"source": "set_next_input", "text": "x = 1", "replace": False}]


def test_user_expressions_are_evaluated(notebook: Notebook) -> None:
    result = notebook.ask("x = 20", user_expressions={"good": "x + 1", "bad": "x / 0"})

    expressions = result.content["user_expressions"]
    assert expressions["good"]["data"]["text/plain"] == "21"
    assert expressions["bad"]["ename"] == "ZeroDivisionError"


def test_an_error_is_shown_and_replied_and_what_ran_before_it_stays(notebook: Notebook) -> None:
    result = notebook.ask("x = 5\n1 / 0")

    (error,) = result.of_type("error")
    assert error["content"]["ename"] == result.content["ename"] == "ZeroDivisionError"
    assert "In[1]" in "".join(result.content["traceback"])
    assert notebook.run("x").text == "5"


def test_a_silent_cell_says_nothing_and_is_not_counted(notebook: Notebook) -> None:
    result = notebook.ask("x = 3\nx", silent=True)

    assert result.messages == []
    assert result.content["status"] == "ok"
    assert notebook.run("x, len(In)").text == "(3, 2)"


def test_a_traceback_shows_the_source_of_an_earlier_cell(notebook: Notebook) -> None:
    notebook.run("def divide(a, b):\n    return a / b  # the culprit")

    result = notebook.ask("divide(1, 0)")

    text = re.sub(r"\x1b\[[0-9;]*m", "", "".join(result.content["traceback"]))
    assert "----> 2     return a / b" in text
    assert "In[1]" in text
    assert "In[2]" in text
    source = notebook.run("import inspect\nprint(inspect.getsource(divide))").stream("stdout")
    assert "the culprit" in source


def test_sys_exit_is_an_error_reply(notebook: Notebook) -> None:
    result = notebook.ask("import sys\nsys.exit(3)")

    assert result.content["ename"] == "SystemExit"
    assert notebook.run("1").text == "1"


def test_exit_asks_the_client_to_end(notebook: Notebook) -> None:
    payload = notebook.run("exit()").content["payload"]

    assert payload[0]["source"] == "ask_exit"


def test_endless_recursion_is_an_error_reply(notebook: Notebook) -> None:
    result = notebook.ask("def f():\n    return f()\nf()")

    assert result.content["ename"] == "RecursionError"


def test_a_cell_that_ends_its_process_has_no_reply(notebook: Notebook) -> None:
    result = notebook.ask(
        "x = 1\nprint('last words')\nimport os, sys\nsys.stdout.flush()\nos._exit(3)"
    )

    assert result.kinds == ["started", "message"]
    assert result.stream("stdout") == "last words\n"
    assert result.status >> 8 == 3


def test_a_cell_that_closes_descriptor_1_still_replies(notebook: Notebook) -> None:
    code = "import os, sys\nos.close(1)\nos.close(2)\nprint('still here')\n4"

    result = notebook.run(code)

    assert result.stream("stdout") == "still here\n"
    assert result.text == "4"


def test_threads_left_behind_do_not_hold_the_end(notebook: Notebook) -> None:
    code = "import threading\nthreading.Thread(target=threading.Event().wait).start()"

    assert notebook.run(code).status == 0


def test_output_of_a_forked_worker_arrives(notebook: Notebook) -> None:
    code = (
        "import os\npid = os.fork()\nif pid == 0:\n    print('from the worker')\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint('from the cell')"
    )

    result = notebook.run(code)

    assert result.stdout == b"from the worker\n"
    assert result.stream("stdout") == "from the cell\n"


def test_fifty_megabytes_of_code_run(notebook: Notebook) -> None:
    result = notebook.run("x = '" + "a" * 50_000_000 + "'\nlen(x)")

    assert result.text == "50000000"
    assert "only the beginning is kept" in notebook.run("del x\nIn[1][-80:]").text


def test_code_with_nul_is_a_syntax_error(notebook: Notebook) -> None:
    result = notebook.ask("x = 1\0")

    assert result.content["ename"] in ("SyntaxError", "ValueError")
    assert notebook.run("2").text == "2"


def test_code_with_a_lone_surrogate_gets_a_reply(notebook: Notebook) -> None:
    result = notebook.ask("x = '\ud800'")

    assert result.content["ename"] == "UnicodeEncodeError"
    assert notebook.run(r"print('\ud800'.encode('utf-8', 'replace'))").stream("stdout") == "b'?'\n"


def test_a_lone_surrogate_can_be_printed(notebook: Notebook) -> None:
    assert notebook.run(r"print('\ud800')").stream("stdout") == "\ud800\n"


def test_code_that_is_not_text_is_refused(notebook: Notebook) -> None:
    result = notebook.zygote.finish(notebook.start(17))

    assert result.failed is not None
    assert result.failed["message"] == "content.code must be a string"
    assert result.kinds == ["failed"]


def test_numbers_that_json_does_not_know_are_cleaned(notebook: Notebook) -> None:
    code = "display({'application/json': {'a': float('nan')}}, raw=True)"

    (message,) = notebook.run(code).of_type("display_data")

    assert message["content"]["data"]["application/json"] == {"a": "nan"}


def test_a_message_over_the_limit_is_replaced_by_a_notice(notebook: Notebook) -> None:
    result = notebook.run("display({'text/plain': 'x' * 70_000_000}, raw=True)")

    assert result.of_type("display_data") == []
    assert "display_data of more than 63 MB was left out" in result.stream("stderr")


@pytest.mark.parametrize("depth", [200, 5000])
def test_a_message_that_is_nested_too_deeply_is_replaced_by_a_notice(
    notebook: Notebook, depth: int
) -> None:
    code = f"x = 1\nfor _ in range({depth}):\n    x = [x]\n"
    result = notebook.run(f"{code}display({{'application/json': x}}, raw=True); del x; print('on')")

    assert result.of_type("display_data") == []
    assert "display_data nested more than 100 levels deep was left out" in result.stream("stderr")
    assert result.stream("stdout") == "on\n"


def test_a_flood_of_text_comes_in_few_messages(notebook: Notebook) -> None:
    result = notebook.run("for i in range(100_000):\n    print('0123456789')")

    assert result.stream("stdout") == "0123456789\n" * 100_000
    assert len(result.of_type("stream")) < 500


def test_a_comm_message_without_a_type_is_refused(notebook: Notebook) -> None:
    request = notebook.request("", kind="comm")

    result = notebook.zygote.finish(notebook.zygote.start(request))

    assert result.failed is not None
    assert "comm.header.msg_type" in result.failed["message"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("d", "{'k': [1]}"), ("Out[2]", "5"), ("text", f"'{'x' * 998}…")],
)
def test_a_variable_is_shown_as_text(notebook: Notebook, name: str, text: str) -> None:
    notebook.run("d = {'k': [1]}; text = 'x' * 10**7", "5")

    result = notebook.show(name)

    assert result.kinds == ["started", "reply"]
    assert result.content == {"status": "ok", "data": {"text/plain": text}, "metadata": {}}


def test_what_is_not_there_or_cannot_be_shown_says_so(notebook: Notebook) -> None:
    module = notebook.workdir / "gone.py"
    module.write_text("class Thing: pass")
    notebook.run("import gone; thing = gone.Thing(); del gone; exits = type('E', (), {})()")
    notebook.run("type(exits).__repr__ = lambda self: exit_now\ng = (n for n in 'ab')")
    module.unlink()

    said = {name: notebook.show(name).content for name in ("thing", "exits", "g", "nothing", "_")}

    names = {name: content["ename"] for name, content in said.items()}
    assert names == {
        "thing": "VariableUnavailable",
        "exits": "NameError",
        "g": "NameError",
        "nothing": "NameError",
        "_": "NameError",
    }
    assert "the module 'gone' cannot be imported" in said["thing"]["evalue"]


def test_a_fresh_session_has_no_last_error(notebook: Notebook) -> None:
    result = notebook.run("%tb")

    assert result.of_type("error") == []


def test_store_keeps_its_values_in_the_private_home(notebook: Notebook) -> None:
    notebook.run("kept = 5\n%store kept\ndel kept", "%store -r kept")

    assert notebook.run("kept").text == "5"
    assert (notebook.home / ".ipython/profile_default/db/autorestore/kept").is_file()
