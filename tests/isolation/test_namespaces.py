"""Attacks from inside a cell of the namespaces tier, and what each must see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.isolation.tiers import PRELUDE, TIERS

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient

ATTACKS = {
    "the parent is visible, ours, and no cell is pid 1": (
        "print(os.getppid(), os.getpid() > 1, sorted(p for p in os.listdir('/proc') "
        "if p.isdigit()) == ['1', str(os.getpid())])",
        "1 True True",
    ),
    "the parent cannot be read": (
        "for name in ('environ', 'mem', 'maps', 'auxv', 'io', 'pagemap'): "
        "attempt(read, f'/proc/{os.getppid()}/{name}')",
        "EACCES " * 6,
    ),
    "the parent's descriptors and root cannot be followed": (
        "for name in ('fd', 'root', 'cwd', 'map_files', 'task/1/fd'): "
        "attempt(os.listdir, f'/proc/1/{name}')",
        "EACCES " * 4 + "EACCES",
    ),
    "the parent cannot be traced": ("attempt(call, 'ptrace', 16, 1, 0, 0)", "EPERM"),
    "the parent cannot be killed or stopped": (
        "for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV): "
        "os.kill(1, number)\nprint(Path('/proc/1/stat').read_text().split(')')[1].split()[0])",
        "S",
    ),
    "all capabilities are gone": (
        "print({line.split()[1] for line in Path('/proc/self/status').read_text().splitlines() "
        "if line.startswith('Cap')}, 'NoNewPrivs:\\t1' in Path('/proc/self/status').read_text())",
        "{'0000000000000000'} True",
    ),
    "no user namespace brings them back": (
        "print(subprocess.run([sys.executable, '-I', '-S', '-c', 'import ctypes, os\\n"
        "libc = ctypes.CDLL(None, use_errno=True)\\n"
        "print(libc.unshare(0x10000000), ctypes.get_errno())'], capture_output=True).stdout)",
        "b'-1 28\\n'",
    ),
    "the limit that forbids it cannot be raised": (
        "print(Path('/proc/sys/user/max_user_namespaces').read_text().strip(), end=' ')\n"
        "attempt(write, '/proc/sys/user/max_user_namespaces', '100')",
        "0 EACCES",
    ),
    "nothing can be mounted or unmounted": (
        "attempt(call, 'mount', b'tmpfs', b'/tmp', b'tmpfs', ctypes.c_ulong(0), None)\n"
        "attempt(call, 'mount', None, b'/', None, ctypes.c_ulong(32 | 4096), None)\n"
        "for path in (b'/proc', b'/tmp', b'/', os.environb[b'HOME']): "
        "attempt(call, 'umount2', path, 2)",
        "EPERM " * 6,
    ),
    "no other namespace can be entered": (
        "for name in ('user', 'mnt', 'net', 'pid'): "
        "attempt(os.open, f'/proc/1/ns/{name}', os.O_RDONLY)",
        "EACCES " * 4,
    ),
    "the root is an allow-list": (
        "print(sorted(set(os.listdir('/')) & "
        "{'opt', 'var', 'run', 'sys', 'home', '.old', 'tmp', 'usr'}))",
        "['tmp', 'usr']",
    ),
    "nothing can be added to it": (
        "for path in ('/planted', '/usr/planted', '/etc/planted', '/dev/planted'): "
        "attempt(write, path)",
        "EROFS " * 4,
    ),
    "only the cell's own folders are in /tmp": (
        "print(sorted(os.listdir('/tmp')) == "
        "sorted(os.path.basename(p) for p in (os.getcwd(), os.environ['HOME'])))",
        "True",
    ),
    "HOME and working directory cannot be replaced": (
        "attempt(os.rename, os.environ['HOME'], '/tmp/moved')\nattempt(os.rmdir, os.getcwd())",
        "EBUSY EBUSY",
    ),
    "S3, STS and Runtime API cannot be reached": (
        "for port in (9000, 9001, 9002): "
        "attempt(lambda: socket.create_connection(('127.0.0.1', port), 2))",
        "ECONNREFUSED " * 3,
    ),
    "its own loopback works": (
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "attempt(lambda: socket.create_connection(server.getsockname(), 2)); del server",
        "succeeded",
    ),
    "the kernel's settings cannot be written": (
        "for path in ('kernel/core_pattern', 'kernel/pid_max', 'vm/overcommit_memory', "
        "'fs/file-max', 'kernel/panic', 'kernel/hostname'): attempt(write, f'/proc/sys/{path}')",
        "EACCES " * 6,
    ),
    "the machine's triggers cannot be pulled": (
        "for path in ('/proc/sysrq-trigger', '/proc/bus', '/proc/irq/default_smp_affinity'):\n"
        "    print(os.access(path, os.W_OK), end=' ')",
        "False False False",
    ),
    "no key of the host's users has a name here": (
        "print([len(Path(f'/proc/{name}').read_bytes()) for name in ('keys', 'key-users')])",
        "[0, 0]",
    ),
    "its /tmp and shared memory have a size": (
        "print([os.statvfs(p).f_blocks * os.statvfs(p).f_frsize // 2**20 "
        "for p in ('/tmp', '/dev/shm')], os.statvfs('/tmp').f_files <= 500_000)",
        "[2048, 2048] True",
    ),
}

PLANT = f"""{PRELUDE}
Path('/tmp/planted').write_text('x'); Path('/dev/shm/planted').write_text('x')
call('shmget', 4711, ctypes.c_size_t(4096), 0o1666)
for ring in (-4, -3):
    try: call('syscall', 248, b'user', b'planted', b'x', ctypes.c_size_t(1), ring)
    except PermissionError: pass
planted = socket.socket(socket.AF_UNIX); planted.bind(chr(0) + 'planted'); planted.listen()
subprocess.Popen(['sleep', '600'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print('planted')
"""
LOOK = f"""{PRELUDE}
for path in ('/tmp/planted', '/dev/shm/planted'): attempt(read, path)
attempt(call, 'shmget', 4711, ctypes.c_size_t(4096), 0)
for ring in (-4, -3): attempt(call, 'syscall', 250, 10, ring, b'user', b'planted', 0)
attempt(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + 'planted'))
print(len([p for p in os.listdir('/proc') if p.isdigit()]))
"""


@pytest.fixture(scope="module")
def cell(tiers: Gateway) -> Iterator[NotebookClient]:
    client = tiers.session(name=TIERS["namespaces"])
    yield client
    client.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_from_inside_the_namespaces_fails(cell: NotebookClient, name: str) -> None:
    code, seen = ATTACKS[name]
    run = cell.execute(f"{PRELUDE}\n{code}")
    assert run.stdout.strip() == seen.strip(), run.messages


def test_what_a_cell_plants_dies_with_its_namespaces(cell: NotebookClient) -> None:
    run = cell.execute(PLANT)
    assert run.stdout == "planted\n", run.messages
    run = cell.execute(LOOK)
    assert run.stdout == "ENOENT ENOENT ENOENT EPERM EPERM ECONNREFUSED 2\n", run.messages


def test_a_full_tmp_of_the_cell_is_nobody_elses(cell: NotebookClient) -> None:
    fill = (
        "with open(path, 'wb') as file:\n"
        "    try:\n"
        "        while True: file.write(b'x' * 2**24)\n"
        "    except OSError as error: print(error.errno)\n"
    )
    run = cell.execute(f"path = '/tmp/fill'\n{fill}open('kept', 'w').write('kept')")
    assert run.stdout == "28\n", run.messages
    assert cell.execute("print(open('kept').read())").stdout == "kept\n"


def test_a_cell_may_use_no_more_processes_than_its_limit(cell: NotebookClient) -> None:
    run = cell.execute(
        f"{PRELUDE}\nimport resource\n"
        "print(resource.getrlimit(resource.RLIMIT_NPROC)[1])\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))\n"
        "sleeping = []\n"
        "try:\n"
        "    for _ in range(100): sleeping.append(subprocess.Popen(['sleep', '600']))\n"
        "except OSError as error: print(errno.errorcode[error.errno], len(sleeping) < 20)\n"
        "del sleeping",
    )
    assert run.stdout == "1024\nEAGAIN True\n", run.messages
    assert cell.execute("1 + 1").result == "2"
