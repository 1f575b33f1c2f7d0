"""Live objects in one cell, used two cells later: each in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

STDLIB = {
    "lock": ("import threading\nx = threading.Lock()", "x.acquire(False) and x.locked()"),
    "held lock": ("import threading\nx = threading.Lock(); x.acquire()", "not x.acquire(False)"),
    "held rlock": (
        "import threading\nx = threading.RLock(); x.acquire(); x.acquire()",
        "x.release() is None and x.release() is None",
    ),
    "event": ("import threading\nx = threading.Event(); x.set()", "x.wait(1) and x.is_set()"),
    "condition": (
        "import threading\nx = threading.Condition()",
        "(x.acquire(), x.notify_all(), x.release()) == (True, None, None)",
    ),
    "semaphore": (
        "import threading\nx = threading.BoundedSemaphore(2); x.acquire()",
        "x.acquire(False) and not x.acquire(False)",
    ),
    "barrier": ("import threading\nx = threading.Barrier(1)", "x.wait(1) == 0"),
    "shared lock": (
        "import threading\nlock = threading.Lock()\nx = {'lock': lock}",
        "lock.acquire() and x['lock'].locked()",
    ),
    "thread local": (
        "import threading\nx = threading.local(); x.value = 7",
        "x.value == 7",
    ),
    "finished thread": (
        "import threading\nclass Worker(threading.Thread):\n    def run(self):\n"
        "        self.result = 6 * 7\nx = Worker(name='w', daemon=True); x.start(); x.join()",
        "(x.is_alive(), x.result, x.name, x.daemon, x.join(), isinstance(x, Worker))"
        " == (False, 42, 'w', True, None, True)",
    ),
    "new thread": (
        "import threading\nbox = []\nx = threading.Thread(target=box.append, args=(5,))",
        "(x.start(), x.join(), box) == (None, None, [5])",
    ),
    "queue": (
        "import queue\nx = queue.PriorityQueue(3); x.put((2, 'b')); x.put((1, 'a'))",
        "(x.get(), x.get(timeout=1), x.maxsize) == ((1, 'a'), (2, 'b'), 3)",
    ),
    "simple queue": (
        "import queue\nx = queue.SimpleQueue(); x.put(1); x.put(2)",
        "(x.get(timeout=1), x.get(timeout=1), x.empty()) == (1, 2, True)",
    ),
    "finished process": (
        "import subprocess\nx = subprocess.Popen(['sh', '-c', 'exit 3']); x.wait()",
        "(x.returncode, x.poll(), x.args[0], x.wait()) == (3, 3, 'sh', 3)",
    ),
    "thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\nx = ThreadPoolExecutor(3, 'own')\n"
        "f = x.submit(pow, 2, 5); f.result()",
        "x.submit(pow, 2, 3).result() + f.result() == 40 and x._thread_name_prefix == 'own'",
    ),
    "closed thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as x: pass",
        "x._shutdown",
    ),
    "process pool": (
        "from concurrent.futures import ProcessPoolExecutor\nx = ProcessPoolExecutor(2)",
        "x._max_workers == 2",
    ),
    "asyncio queue": (
        "import asyncio\nx = asyncio.Queue(); x.put_nowait(1)\nawait x.put(2)",
        "[await x.get(), await x.get()] == [1, 2]",
    ),
    "asyncio lock": ("import asyncio\nx = asyncio.Lock()", "await x.acquire()"),
    "text file": (
        "f = open('a.txt', 'w+', encoding='utf-8'); f.write('één\\ntwo\\n'); f.seek(0)\n"
        "_ = f.readline()",
        "(f.read(), f.name, f.mode) == ('two\\n', 'a.txt', 'w+')",
    ),
    "written file": (
        "f = open('a.txt', 'w'); _ = f.write('one')",
        "(f.write('two'), f.close(), open('a.txt').read()) == (3, None, 'onetwo')",
    ),
    "appended file": (
        "f = open('a.txt', 'a'); _ = f.write('one')",
        "(f.write('two'), f.flush(), open('a.txt').read()) == (3, None, 'onetwo')",
    ),
    "binary file": (
        "f = open('a.bin', 'wb+'); f.write(b'12345'); _ = f.seek(2)",
        "(f.read(2), f.tell()) == (b'34', 4)",
    ),
    "file with untouched line ends": (
        "_ = open('a.txt', 'wb').write(b'a\\r\\nb\\r\\n')\nf = open('a.txt', newline='')\n"
        "g = open('a.txt')",
        "(f.read(), g.read()) == ('a\\r\\nb\\r\\n', 'a\\nb\\n')",
    ),
    "closed file": (
        "with open('a.txt', 'w') as f: pass",
        "(f.closed, f.name, f.mode) == (True, 'a.txt', 'w')",
    ),
    "zip file": (
        "import zipfile\nwith zipfile.ZipFile('a.zip', 'w') as z: z.writestr('n', 'text')\n"
        "x = zipfile.ZipFile('a.zip')",
        "x.read('n') == b'text'",
    ),
    "memory files": (
        "import io\nx = io.StringIO('abc'); x.read(1)\ny = io.BytesIO(b'abc'); _ = y.seek(2)",
        "(x.read(), y.read()) == ('bc', b'c')",
    ),
    "temporary file": (
        "import tempfile\nx = tempfile.NamedTemporaryFile('w+', dir='.')\n_ = x.write('kept')",
        "(x.seek(0), x.read(), x.close(), __import__('os').path.exists(x.name))"
        " == (0, 'kept', None, False)",
    ),
    "temporary directory": (
        "import tempfile, os\nx = tempfile.TemporaryDirectory(dir='.')\nn = "
        "os.path.abspath(x.name)",
        "(os.path.isdir(n), x.cleanup(), os.path.isdir(n)) == (True, None, False)",
    ),
    "sqlite in memory": (
        "import sqlite3\nx = sqlite3.connect(':memory:'); x.row_factory = sqlite3.Row\n"
        "x.execute('create table t (a)'); x.execute('insert into t values (5)'); x.commit()",
        "x.execute('select * from t').fetchone()['a'] == 5 and x.execute('insert into t "
        "values (6)')"
        ".rowcount == 1",
    ),
    "sqlite file": (
        "import sqlite3\nx = sqlite3.connect('a.db', detect_types=sqlite3.PARSE_DECLTYPES)\n"
        "x.execute('create table t (a date)'); x.execute(\"insert into t values ('2024-01-02')\")\n"
        "x.commit()",
        "x.execute('select a from t').fetchone()[0].year == 2024",
    ),
    "context variable": (
        "import contextvars\nx = contextvars.ContextVar('v', default=1)\n_ = x.set(2)",
        "(x.get(), contextvars.Context().run(x.get), x.name) == (2, 1, 'v')",
    ),
    "weak reference": (
        "import weakref\nclass A: pass\na = A(); x = weakref.ref(a)",
        "(x() is a, [a := None], x()) == (True, [None], None)",
    ),
    "dead reference": (
        "import weakref\nclass A: pass\nx = weakref.ref(A())",
        "x() is None",
    ),
    "weak value dictionary": (
        "import weakref\nclass A: pass\na = A(); x = weakref.WeakValueDictionary(k=a)",
        "(x['k'] is a, [a := None], len(x)) == (True, [None], 0)",
    ),
    "weak key dictionary and set": (
        "import weakref\nclass A: pass\na = A(); x = weakref.WeakKeyDictionary({a: 1})\n"
        "s = weakref.WeakSet([a])",
        "(x[a], a in s, [a := None], len(x), len(s)) == (1, True, [None], 0, 0)",
    ),
    "weak method": (
        "import weakref\nclass A:\n    def m(self): return 5\na = A(); x = weakref.WeakMethod(a.m)",
        "x()() == 5",
    ),
    "finalizer": (
        "import weakref\nclass A: pass\na, log = A(), []\nx = weakref.finalize(a, log.append, 1)",
        "(x.alive, [a := None], log, x.alive) == (True, [None], [1], False)",
    ),
    "logging handler": (
        "import logging, sys\nx = logging.StreamHandler(sys.stdout)\n"
        "x.setFormatter(logging.Formatter('%(message)s!'))",
        "x.stream is sys.stdout and x.format(logging.makeLogRecord({'msg': 'hi'})) == 'hi!'",
    ),
    "pattern, decimal, path": (
        "import re, decimal, pathlib\nx = [re.compile('a+', re.I), decimal.Decimal('1.10'),"
        " pathlib.Path('a')]",
        "x == [re.compile('a+', re.I), decimal.Decimal('1.10'), pathlib.Path('a')]",
    ),
}


@pytest.mark.parametrize("case", STDLIB)
def test_carried(case: str, notebook: Notebook) -> None:
    make, check = STDLIB[case]

    result = notebook.run(make, "pass", check)

    assert result.text == "True"


REFUSED = {
    "generator": ("x = (i for i in 'ab')", "x = list(x)"),
    "coroutine": ("async def f(): pass\nx = f()", "await x"),
    "task": ("import asyncio\nx = asyncio.ensure_future(asyncio.sleep(9))", "x = await x"),
    "socket": ("import socket\nx = socket.socket()", "connect again"),
    "running thread": (
        "import threading\nx = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "x.start()",
        "x.join()",
    ),
    "running process": (
        "import subprocess\nx = subprocess.Popen(['cat'], stdin=-1)",
        "subprocess.run()",
    ),
    "unread output": (
        "import subprocess\nx = subprocess.Popen(['echo'], stdout=-1); x.wait()",
        "output = x.stdout.read()",
    ),
    "open transaction": (
        "import sqlite3\nx = sqlite3.connect(':memory:'); x.execute('create table t (a)')\n"
        "x.execute('insert into t values (1)')",
        "x.commit()",
    ),
    "sqlite functions": (
        "import sqlite3\nx = sqlite3.connect(':memory:')\nx.create_function('twice', 1, str)",
        "twice",
    ),
    "cursor": (
        "import sqlite3\nx = sqlite3.connect(':memory:').execute('select 1')",
        "x.fetchall()",
    ),
    "csv reader": ("import csv\nx = csv.reader(['a,b'])", "x = list(x)"),
    "digest": ("import hashlib\nx = hashlib.sha256(b'a')", "x.hexdigest()"),
    "memory map": ("import mmap\nx = mmap.mmap(-1, 10)", "x[:]"),
    "ssl context": ("import ssl\nx = ssl.create_default_context()", "ssl.create_default_context()"),
    "library": ("import ctypes\nx = ctypes.CDLL(None)", "load it again"),
    "pool": ("import multiprocessing\nx = multiprocessing.Pool(1)", "multiprocessing.Pool()"),
    "process lock": ("import multiprocessing\nx = multiprocessing.Lock()", "processes of one cell"),
    "process queue": ("import multiprocessing\nx = multiprocessing.Queue()", "x.get()"),
    "pipe": ("import os\nx = open(os.pipe()[0])", "a pipe, device or connection"),
    "deleted file": (
        "import os\nx = open('a.txt', 'w'); os.unlink('a.txt')",
        "its file is gone",
    ),
    "traceback": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    x = e.__traceback__",
        "traceback.format_exc()",
    ),
    "work that is not finished": (
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
        "x = ThreadPoolExecutor(1)\ne = threading.Event(); _ = x.submit(e.wait)",
        "x.shutdown(wait=True)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_hint(case: str, notebook: Notebook) -> None:
    make, hint = REFUSED[case]

    first = notebook.run(make)
    later = notebook.ask("x")

    assert "[state] 'x'" in first.stream("stderr")
    assert hint in first.stream("stderr")
    assert hint in later.content["evalue"]


def test_a_value_that_holds_a_live_object_names_it(notebook: Notebook) -> None:
    told = notebook.run("x = {'a': [(i for i in 'ab')]}").stream("stderr")

    assert "'x' (dict)" in told
    assert "it holds a generator: a running generator cannot be stored" in told


def test_a_user_says_how_an_object_is_carried(notebook: Notebook) -> None:
    notebook.run(
        "import _thread\nclass Gate:\n    def __init__(self, url):\n        self.url = url\n"
        "        self.raw = (i for i in url)\n"
        "from lambda_kernel.rehydrators import rehydrator\n@rehydrator(Gate)\n"
        "def carry(gate):\n    return Gate, (gate.url,)\nx = Gate('there')",
        "y = Gate('here')",
    )

    assert notebook.run("x.url, y.url").text == "('there', 'here')"


def test_a_user_refuses_an_object_with_a_hint(notebook: Notebook) -> None:
    told = notebook.run(
        "from lambda_kernel.rehydrators import NotCarried, rehydrator\nclass Gate: pass\n"
        "@rehydrator(Gate)\ndef carry(gate):\n    raise NotCarried('it is open', '{name}.shut()')\n"
        "x = Gate()"
    ).stream("stderr")

    assert "it is open" in told
    assert "x.shut()" in told


def test_an_installed_package_says_how_its_objects_are_carried(notebook: Notebook) -> None:
    (notebook.workdir / "gates.py").write_text(
        "class Gate:\n    def __init__(self, url):\n        self.url = url\n"
        "        self.raw = (i for i in url)\n"
        "def carry(gate):\n    return Gate, (gate.url,)\n"
    )
    info = notebook.workdir / "site" / "gates-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(
        "[lambda_kernel.rehydrators]\ngates.Gate = gates:carry\n"
    )
    setup = "import sys, os\nsys.path.append(os.path.abspath('site'))\nimport gates"

    notebook.run(f"{setup}\nx = gates.Gate('there')", "pass")

    assert notebook.run("x.url").text == "'there'"


def test_a_vectorized_function_that_was_called_is_carried(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np\nf = np.vectorize('<{}>'.format, otypes=[object])\nf([1, 2])", "pass"
    )

    assert notebook.run("f([3]).tolist()").text == "['<3>']"


def test_parameters_of_matplotlib_are_its_own_or_a_copy(notebook: Notebook) -> None:
    notebook.run(
        "import matplotlib\nfrom matplotlib import rcParams\nfrom matplotlib import rcParamsOrig\n"
        "copy = rcParams.copy()\nrcParams['lines.linewidth'] = 7.5",
        "pass",
    )

    asked = "rcParams is matplotlib.rcParams, rcParams['lines.linewidth']"
    assert notebook.run(asked).text == "(True, 7.5)"
    assert notebook.run("copy['lines.linewidth'], len(copy) == len(rcParams)").text == "(1.5, True)"
