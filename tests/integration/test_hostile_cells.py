"""Cells that misbehave: the client is told the truth, and the next cell works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient


@pytest.fixture
def kernel(kernel_of_each_tier: NotebookClient) -> NotebookClient:
    return kernel_of_each_tier


def still_works(kernel: NotebookClient) -> None:
    run = kernel.execute("print('alive', marker)")
    assert run.stdout == "alive 1\n", run.messages


@pytest.mark.parametrize(
    ("code", "ename"),
    [
        ("import os; os._exit(3)", "CellProcessDied"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "CellProcessDied"),
        ("import ctypes; ctypes.string_at(0)", "CellProcessDied"),
        ("import sys; sys.exit(4)", "SystemExit"),
        ("def f(): return f()\nf()", "RecursionError"),
        (
            "x = bytearray(3 * 1024**3)\nfor i in range(0, len(x), 4096): x[i] = 1",
            "CellOutOfMemory",
        ),
        ("f = open('/tmp/big', 'wb')\nwhile True: f.write(b'x' * 2**20)", "OSError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("x = 'a\\x00b'; eval('1\\x00')", "SyntaxError"),
    ],
    ids=lambda value: value.split("\n")[0][:40] if " " in value else value,
)
def test_a_cell_that_dies_says_how_and_harms_nothing(
    kernel: NotebookClient, code: str, ename: str
) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(code)
    assert run.reply["status"] == "error"
    assert run.reply["ename"] == ename, run.reply
    if ename.startswith("Cell"):
        assert "as after cell [1]" in run.reply["evalue"]
    still_works(kernel)


def test_a_cell_that_closes_its_output_still_answers(kernel: NotebookClient) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute("import os; os.close(1); os.close(2); 5")
    assert run.result == "5"
    still_works(kernel)


def test_a_bounded_fork_bomb_is_swept_away(kernel: NotebookClient) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(
        "import os, time\n"
        "original = os.getpid()\n"
        "for _ in range(5):\n"
        "    try:\n"
        "        if os.fork() == 0: os.setsid()\n"
        "    except OSError: break\n"
        "if os.getpid() != original: time.sleep(60)\n"
        "print('parent done')"
    )
    assert run.reply["status"] in {"ok", "error"}
    left = kernel.execute(
        "import os; print('alive', marker, sum(p.isdigit() for p in os.listdir('/proc')))"
    )
    assert left.stdout.startswith("alive 1 ")
    assert int(left.stdout.split()[-1]) <= 5


def test_what_a_cell_leaves_behind_is_gone(kernel: NotebookClient) -> None:
    kernel.execute(
        "import subprocess, os\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "os.makedirs('/tmp/planted/deep', exist_ok=True); os.chmod('/tmp/planted', 0)\n"
        "open('/dev/shm/planted', 'w').write('x'); open('/tmp/.hidden', 'w').write('x')"
    )
    run = kernel.execute(
        "import os, glob\n"
        "names = [open(p).read() for p in glob.glob('/proc/[0-9]*/comm')]\n"
        "print('sleep\\n' in names, os.path.exists('/tmp/planted'), os.listdir('/dev/shm'),\n"
        "      os.path.exists('/tmp/.hidden'))"
    )
    assert run.stdout == "False False [] False\n"


def test_an_output_flood_is_cut_with_a_notice(kernel: NotebookClient) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(
        "line = 'x' * 1023 + '\\n'\nfor _ in range(1024): print(line * 1024, end='')\nmarker = 1",
        timeout_s=240,
    )
    assert run.reply["status"] == "ok"
    assert 5 * 1024**2 < len(run.stdout) <= 11 * 1024**2
    assert "output" in run.stderr
    assert "cut" in run.stderr
    still_works(kernel)


def test_links_fifos_and_odd_names_are_named_and_never_followed(kernel: NotebookClient) -> None:
    run = kernel.execute(
        "import os\n"
        "os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo'); open('new\\nline', 'w').write('x')\n"
        "os.symlink('/proc/self/fd/3', 'fd'); open('ok', 'w').write('1')"
    )
    for name in ("link", "fifo", "new\\nline", "fd"):
        assert name in run.stderr, run.stderr
    after = kernel.execute("print(sorted(os.listdir('.')))")
    assert after.stdout == "['ok']\n"


NAMES = [
    "%2e%2e", "..%2f..%2fu10", "%2e%2e%2fu10", "..x", "...", "a%00b", "\u00e9", "e\u0301",
    "\u212b", "\u00c5", "\u202eabc", "\u200b", "\ufeffbom", "\u2024\u2024", "?versionId=1", "#",
    "&a=b", "a;b", "+", " ", " both ", "*", "$(x)", "'", '"', "C:", "-rf", "x" * 246,
]  # fmt: skip
"""Of files, that something on the way to S3 and back could read as something else."""


def test_odd_names_of_files_come_back_as_they_were(kernel: NotebookClient) -> None:
    run = kernel.execute(
        f"import os\nnames = {NAMES!r}\n"
        "for name in names: open(name, 'w').write(name)\n"
        "for count in (247, 255): open('y' * count, 'w').write('x')\n"
        "os.makedirs('z' * 255)"
    )
    assert run.reply["status"] == "ok", run.messages
    assert run.stderr.count("last part longer than 246 bytes") == 2
    run = kernel.execute(
        "sorted(os.listdir('.')) == sorted([*names, 'z' * 255]), "
        "[n for n in names if open(n).read() != n]"
    )
    assert run.result == "(True, [])"


def test_code_of_fifty_megabytes_runs(kernel: NotebookClient) -> None:
    code = "x = '" + "a" * (50 * 1024**2) + "'\nprint(len(x)); del x"
    run = kernel.execute(code, timeout_s=240)
    assert run.stdout == f"{50 * 1024**2}\n"


@pytest.mark.parametrize(
    ("code", "ename"), [("x = 'a\ud800'", "InvalidCode"), ("x = 1\x00", "SyntaxError")]
)
def test_code_that_cannot_run_is_refused_in_words(
    kernel: NotebookClient, code: str, ename: str
) -> None:
    assert kernel.execute(code).reply["ename"] == ename


def test_a_full_tmp_is_an_ordinary_error(kernel: NotebookClient) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(
        "try:\n"
        "    with open('fill', 'wb') as f:\n"
        "        while True: f.write(b'x' * 2**24)\n"
        "except OSError as error: print(error.errno)\n"
        "import os; os.remove('fill')"
    )
    assert run.stdout in {"28\n", ""}, run.messages
    still_works(kernel)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("for i in range(20_000): display({'text/plain': 'x'}, raw=True)", ""),
        ("import os\nfor i in range(1_000_000): os.write(1, b'.\\n')", ""),
        ("display({'text/plain': 'x' * (200 * 1024**2)}, raw=True)", "was left out"),
        ("print('x' * (200 * 1024**2))", "were cut"),
        ("for i in range(100_000): print(i, flush=True)", ""),
        ("from IPython.display import clear_output\n"
         "for i in range(20_000): clear_output()", ""),
        ("deep = []\nfor i in range(100_000): deep = [deep]", "nested too deeply"),
        ("import os\nwhile True: os.open('/dev/null', 0)", ""),
        ("import os; os.write(1, b'\\xff\\xfe\\x00'); print('\\udc80')", ""),
        ("import threading, time\nfor i in range(50): threading.Thread(target=time.sleep, "
         "args=(600,)).start()", ""),
    ],
    ids=("displays", "writes", "display", "print", "flushes", "clears", "nesting", "files", "bytes",
         "threads"),
)  # fmt: skip
def test_a_cell_that_floods_is_answered_and_harms_nobody(
    gateway: Gateway, kernel: NotebookClient, code: str, told: str
) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(code, timeout_s=120)
    assert run.reply["status"] in {"ok", "error"}
    assert told in run.stderr
    assert gateway.rest("GET", "/api/kernels").ok
    still_works(kernel)


SAY = """
import os, socket, struct, time
def say(text):
    body = struct.pack("!II", 1, len(text)) + text
    socket.socket(fileno=os.dup(900)).sendall(struct.pack("!I", len(body)) + body)
"""


def test_what_a_cell_says_past_its_kernel_reaches_no_client_unless_it_can_be_read(
    kernel: NotebookClient,
) -> None:
    said = [
        {"msg_type": "stream", "content": {"name": "stdout", "text": 1}},
        {"msg_type": "display_data", "content": {"data": "x"}},
        {"msg_type": "execute_result", "content": {"data": {}, "execution_count": "9"}},
        {"msg_type": "error", "content": {"ename": 1, "evalue": 1, "traceback": 1}},
        {"msg_type": "status", "content": {"execution_state": "idle"}},
    ]
    frames = [json.dumps({"kind": "message", **message}).encode() for message in said]
    run = kernel.execute(f"{SAY}marker = 1\nfor text in {frames!r}: say(text)")
    assert run.types == ["status", "execute_input", "stream", "execute_reply", "status"]
    assert run.stderr == "[output] 5 malformed messages of the cell were left out\n"
    assert run.reply_metadata["failure"] is None
    still_works(kernel)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"kind":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
        (b'{"kind": 1e999}', "garbage"),
        (b'{"kind":"reply","msg_type":"execute_reply","content":{"status":7}}', "malformed reply"),
    ],
    ids=("nesting", "numbers", "reply"),
)
def test_what_nobody_can_read_ends_the_cell_that_says_it(
    kernel: NotebookClient, text: bytes, told: str
) -> None:
    kernel.execute("marker = 1")
    run = kernel.execute(f"{SAY}say({text!r})\ntime.sleep(20)")
    assert run.reply["ename"] == run.reply_metadata["failure"] == "CellProcessDied"
    assert told in run.reply["evalue"]
    still_works(kernel)


def test_a_users_exception_of_the_same_name_is_no_failure(kernel: NotebookClient) -> None:
    run = kernel.execute("class CellTimeout(Exception): pass\nraise CellTimeout('mine')")
    assert run.reply["ename"] == "CellTimeout"
    assert run.reply_metadata["failure"] is None
