"""A notebook session whose every cell is one isolated invocation, on the real parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.driver import NotebookClient

if TYPE_CHECKING:
    from tests.integration.driver import Gateway


def test_messages_of_a_cell_come_in_the_order_that_clients_rely_on(
    kernel: NotebookClient,
) -> None:
    run = kernel.execute("print('hello')\n6 * 7")
    assert run.result == "42"
    assert run.stdout == "hello\n"
    assert run.reply["status"] == "ok"
    assert run.reply["execution_count"] == 1
    order = [t for t in run.types if t != "stream"]
    assert order == ["status", "execute_input", "execute_result", "execute_reply", "status"]
    assert {m["parent_header"]["msg_id"] for m in run.messages} == {run.msg_id}


def test_variables_functions_and_imports_survive(kernel: NotebookClient) -> None:
    kernel.execute("import math\nbase = 2\ndef f(x):\n    return base ** x + math.floor(0.5)")
    kernel.execute("base = 3")
    run = kernel.execute("f(4)")
    assert run.result == "81"
    assert run.reply["execution_count"] == 3


def test_every_cell_is_a_process_of_its_own(kernel: NotebookClient) -> None:
    code = "import os; print(os.readlink('/proc/self/ns/pid'), os.stat('/proc/self').st_ctime_ns)"
    first, second = kernel.execute(code), kernel.execute(code)
    assert first.stdout != second.stdout
    invocations = {first.reply_metadata["request_id"], second.reply_metadata["request_id"]}
    assert len(invocations) == 2
    assert first.reply_metadata["container_id"]


def test_a_file_written_in_one_cell_is_there_in_the_next(kernel: NotebookClient) -> None:
    kernel.execute(
        "import os, pathlib\n"
        "os.makedirs('out/empty'); pathlib.Path('out/a b é.txt').write_text('one')\n"
        "p = pathlib.Path('run.sh'); p.write_text('#!/bin/sh\\necho ran'); p.chmod(0o755)\n"
        "os.utime(p, (1_000_000_000, 1_000_000_000)); here = pathlib.Path.cwd() / 'out'"
    )
    run = kernel.execute(
        "import subprocess\n"
        "print(sorted(str(p) for p in pathlib.Path('.').rglob('*')))\n"
        "print(subprocess.check_output('./run.sh', text=True), p.stat().st_mtime)\n"
        "print((here / 'a b é.txt').read_text())"
    )
    assert "['out', 'out/a b é.txt', 'out/empty', 'run.sh']" in run.stdout
    assert "ran\n 1000000000.0" in run.stdout
    assert run.stdout.endswith("one\n")


def test_a_deleted_file_stays_deleted(kernel: NotebookClient) -> None:
    kernel.execute("open('a', 'w').write('1'); open('b', 'w').write('2')")
    kernel.execute("import os; os.remove('a')")
    assert kernel.execute("print(os.listdir('.'))").stdout == "['b']\n"


def test_a_write_through_a_mapping_of_a_mirrored_file_is_saved(kernel: NotebookClient) -> None:
    kernel.execute("open('m', 'wb').write(b'a' * 8192)")
    kernel.execute(
        "import mmap\nwith open('m', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "    m[0]; m[0] = 98"
    )
    assert kernel.execute("open('m', 'rb').read(2)").result == "b'ba'"


def test_what_pip_puts_into_home_is_there_in_the_next_cell(kernel: NotebookClient) -> None:
    run = kernel.execute(
        "import zipfile, textwrap\n"
        "files = {'onlyhere.py': 'value = 7\\n',\n"
        " 'onlyhere-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: onlyhere\\n"
        "Version: 1.0\\n',\n"
        " 'onlyhere-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
        "Tag: py3-none-any\\n',\n"
        " 'onlyhere-1.0.dist-info/RECORD': ''}\n"
        "with zipfile.ZipFile('onlyhere-1.0-py3-none-any.whl', 'w') as z:\n"
        "    [z.writestr(n, t) for n, t in files.items()]\n"
        "!pip install --user --no-index --disable-pip-version-check --find-links . onlyhere"
    )
    assert "Successfully installed onlyhere-1.0" in run.stdout, run.stdout + run.stderr
    assert kernel.execute("import onlyhere; onlyhere.value").result == "7"


def test_a_plot_is_an_image(kernel: NotebookClient) -> None:
    run = kernel.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);")
    (display,) = run.of("display_data")
    assert display["data"]["image/png"].startswith("iVBOR")


def test_shell_commands_are_captured(kernel: NotebookClient) -> None:
    assert kernel.execute("!echo from a shell").stdout.strip() == "from a shell"
    assert kernel.execute("%%bash\necho from bash; echo err >&2").stdout == "from bash\n"
    assert kernel.execute("import os; os.system('echo from C');").stdout == "from C\n"


def test_no_credential_is_in_the_child_and_its_parent_cannot_be_read(
    kernel: NotebookClient,
) -> None:
    run = kernel.execute(
        "import os\n"
        "words = ('KEY', 'SECRET', 'TOKEN', 'CREDENTIAL', 'RUNTIME', 'ENDPOINT', 'HANDLER')\n"
        "print([n for n in os.environ if any(word in n.upper() for word in words)])\n"
        "for pid in sorted({os.getppid(), 1}):\n"
        "    for name in ('environ', 'mem', 'maps', 'auxv'):\n"
        "        try:\n"
        "            open(f'/proc/{pid}/{name}', 'rb').read(10); print(pid, name, 'READ')\n"
        "        except PermissionError:\n"
        "            print('refused')\n"
    )
    assert run.stdout.startswith("[]\nrefused\n")
    assert "READ" not in run.stdout
    probe = run.reply_metadata["probe"]
    assert probe["non_dumpable"] is True
    assert probe["clean_environment"] is True


def test_output_streams_while_the_cell_runs(kernel: NotebookClient) -> None:
    execution = kernel.submit("print('early', flush=True)\nimport time; time.sleep(3)\nprint(1)")
    seen_before_reply = False
    while not execution.done:
        message = kernel.receive(30)
        if message["parent_header"].get("msg_id") != execution.msg_id:
            continue
        execution.messages.append(message)
        early = "early" in execution.stdout
        seen_before_reply |= early and "execute_reply" not in execution.types
        if early and "1\n" not in execution.stdout:
            seen_before_reply = True
    assert seen_before_reply
    assert execution.stdout == "early\n1\n"


def test_an_error_commits_what_ran_before_it(kernel: NotebookClient) -> None:
    run = kernel.execute("kept = 5\n1 / 0")
    assert run.reply["ename"] == "ZeroDivisionError"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(run.reply["traceback"]))
    assert "1 / 0" in plain
    assert kernel.execute("kept").result == "5"


def test_an_error_aborts_the_cells_that_wait(kernel: NotebookClient) -> None:
    runs = [kernel.submit("1 / 0"), kernel.submit("print(2)"), kernel.submit("print(3)")]
    kernel.wait(*runs)
    assert [run.reply["status"] for run in runs] == ["error", "aborted", "aborted"]
    assert kernel.execute("4").result == "4"


def test_restart_empties_the_namespace_and_keeps_the_workspace(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 1; open('kept.txt', 'w').write('yes')")
    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/restart").ok
    run = kernel.execute("print(open('kept.txt').read()); x")
    assert run.stdout == "yes\n"
    assert run.reply["ename"] == "NameError"
    assert run.reply["execution_count"] == 1


def test_interrupt_stops_the_cell_and_keeps_what_it_did(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 1")
    execution = kernel.submit("x = 2\nprint('in', flush=True)\nwhile True: pass")
    while "in" not in execution.stdout:
        execution.messages.append(kernel.receive(30))
    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/interrupt").ok
    kernel.wait(execution)
    assert execution.reply["ename"] == "KeyboardInterrupt"
    assert kernel.execute("x").result == "2"


def test_a_second_interrupt_kills_a_cell_that_goes_on(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 1")
    execution = kernel.submit(
        "x = 2\nimport time\nprint('in', flush=True)\nwhile True:\n"
        "    try:\n        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n        print('again', flush=True)"
    )
    for word in ("in", "again"):
        while word not in execution.stdout:
            execution.messages.append(kernel.receive(30))
        assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/interrupt").ok
    kernel.wait(execution)
    assert execution.reply["ename"] == "CellInterrupted"
    assert "as after cell [1]" in execution.reply["evalue"]
    assert kernel.execute("x").result == "1"


def test_cells_of_two_clients_of_one_kernel_run_one_after_the_other(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 0")
    second = NotebookClient(gateway, kernel.kernel_id, gateway.token)
    clients = (kernel, second) * 3
    asked = [(client, client.submit("import time\nx += 1; time.sleep(0.05)")) for client in clients]
    for client in (kernel, second):
        client.wait(*(execution for asker, execution in asked if asker is client))
    assert kernel.execute("x").result == "6"
    assert sorted(execution.reply["execution_count"] for _, execution in asked) == [
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    second.close()


def test_a_generator_is_named_as_lost_and_its_story_told(kernel: NotebookClient) -> None:
    lost = kernel.execute("g = (n for n in range(3)); kept = 1")
    assert "'g' (generator) will not exist in the next cell" in lost.stderr
    after = kernel.execute("kept; g")
    assert after.reply["ename"] == "NameError"
    assert "was a generator" in "".join(after.reply["traceback"]) + after.reply["evalue"]


def test_the_requests_that_need_no_invocation_are_answered(kernel: NotebookClient) -> None:
    info = kernel.request("kernel_info_request", {})
    assert info["implementation"] == "lambda-kernel-gateway"
    assert info["language_info"]["name"] == "python"
    assert kernel.request("is_complete_request", {"code": "for x in y:"})["status"] == "incomplete"
    assert kernel.request("comm_info_request", {})["comms"] == {}
    assert kernel.request("complete_request", {"code": "pri", "cursor_pos": 3})["status"] == "ok"
    kernel.execute("first = 1")
    info = kernel.request("kernel_info_request", {})
    assert info["lambda_kernel"]["probe"]["non_dumpable"] is True
    tail = kernel.request(
        "history_request",
        {"hist_access_type": "tail", "n": 5, "output": False, "raw": True},
    )
    assert tail["history"][-1][2] == "first = 1"


def test_a_warm_cell_costs_three_sequential_round_trips(kernel: NotebookClient) -> None:
    kernel.execute("1")
    facts = kernel.execute("1 + 1").reply_metadata
    assert facts["aws_sequential"] == 3
    assert set(facts["timings_ms"]) >= {"narrow", "rehydrate", "run", "persist", "invoke"}


@pytest.mark.parametrize("count", [3])
def test_numbers_drawn_at_random_differ_from_cell_to_cell(
    kernel: NotebookClient, count: int
) -> None:
    drawn = {
        kernel.execute(
            "import random, numpy as np; print(random.random(), np.random.rand())"
        ).stdout
        for _ in range(count)
    }
    assert len(drawn) == count


def test_projects_limit_what_is_mirrored_and_what_may_be_deleted(gateway: Gateway) -> None:
    everything = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "projects"})
    everything.execute(
        "import os\nfor d in 'abc':\n    os.makedirs(d); open(d + '/f', 'w').write(d)"
    )
    some = gateway.session(
        env={"LAMBDA_KERNEL_WORKSPACE": "projects", "LAMBDA_KERNEL_PROJECTS": "a,b"}
    )
    run = some.execute("import os, shutil; print(sorted(os.listdir('.'))); shutil.rmtree('a')")
    assert run.stdout == "['a', 'b']\n"
    assert everything.execute("print(sorted(os.listdir('.')))").stdout == "['b', 'c']\n"
    everything.close()
    some.close()


def test_a_run_works_under_its_own_prefix(gateway: Gateway) -> None:
    env = {"LAMBDA_KERNEL_WORKSPACE": "runs", "LAMBDA_KERNEL_RUN": "r1"}
    client = gateway.session(env=env)
    client.execute("open('out.txt', 'w').write('of the run')")
    answer = gateway.rest("GET", "/api/workspaces/runs/files/runs/r1/out.txt")
    assert answer.text == "of the run"
    client.close()


def test_an_execution_scope_has_an_empty_home_for_every_cell(gateway: Gateway) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_SCOPE": "execution"})
    client.execute("import os, pathlib; (pathlib.Path.home() / 'x').write_text('1'); y = 2")
    run = client.execute("print(os.listdir(pathlib.Path.home()), y)")
    assert run.stdout == "[] 2\n"
    client.close()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"LAMBDA_KERNEL_WORKSPACE": "../other"}, "LAMBDA_KERNEL_WORKSPACE"),
        ({"LAMBDA_KERNEL_WORKSPACE": ".hidden"}, "LAMBDA_KERNEL_WORKSPACE"),
        ({"LAMBDA_KERNEL_PROJECTS": "a,../b"}, "LAMBDA_KERNEL_PROJECTS"),
        ({"LAMBDA_KERNEL_RUN": "a/b"}, "LAMBDA_KERNEL_RUN"),
        ({"LAMBDA_KERNEL_SCOPE": "everyone"}, "LAMBDA_KERNEL_SCOPE"),
    ],
)
def test_a_bad_env_is_refused_by_name(gateway: Gateway, env: dict[str, str], named: str) -> None:
    answer = gateway.rest("POST", "/api/kernels", json={"env": env})
    assert answer.status_code == 400
    assert named in answer.text


def test_a_kernel_name_that_does_not_exist_is_refused_by_name(gateway: Gateway) -> None:
    answer = gateway.rest("POST", "/api/kernels", json={"name": "cobol"})
    assert answer.status_code in {400, 404}
    assert re.search("cobol", answer.text)
