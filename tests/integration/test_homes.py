"""HOMEs and workspaces across containers, for real."""

from __future__ import annotations

import io
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver import (
    TOKENS,
    Gateway,
    NotebookClient,
    a_gateway,
    identities_toml,
)

WHERE = "import os; print(os.environ['LKG_CONTAINER_ID'])\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with several users and agents."""
    folder = tmp_path_factory.mktemp("homes")
    file = folder / "identities.toml"
    file.write_text(identities_toml())
    with a_gateway(folder / "state", "--identities", str(file)) as running:
        yield running


@pytest.fixture(params=["namespaces", "process"])
def one_container(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose cells all run in one container, of each tier."""
    file = tmp_path / "config.toml"
    file.write_text(
        identities_toml()
        + "[KernelGateway]\nmax_containers = 1\n"
        + f'[[environment]]\nid = "default"\ntier = "{request.param}"\n'
    )
    with a_gateway(tmp_path / "state", "--config", str(file)) as running:
        yield running


@pytest.fixture
def workspace() -> str:
    return f"w{uuid.uuid4().hex[:12]}"


def session(gateway: Gateway, name: str, workspace: str = "default") -> NotebookClient:
    return gateway.session(token=TOKENS[name], env={"LAMBDA_KERNEL_WORKSPACE": workspace})


def wheel() -> bytes:
    """A package with a module and a console script."""
    info = "lkgtool-1.0.dist-info"
    files = {
        "lkgtool.py": "def main():\n    print('the tool runs')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: lkgtool\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nlkgtool = lkgtool:main\n",
    }
    record = "".join(f"{name},,\n" for name in files) + f"{info}/RECORD,,\n"
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(name, text)
    return body.getvalue()


def test_what_pip_installs_in_one_cell_is_there_in_the_next_on_another_container(
    shared: Gateway, workspace: str
) -> None:
    path = f"/api/workspaces/{workspace}/files/lkgtool-1.0-py3-none-any.whl"
    assert shared.rest("PUT", path, token=TOKENS["u1"], data=wheel()).ok
    first, second = (session(shared, "u1", workspace) for _ in range(2))
    installed = first.execute(
        WHERE + "import subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-m', 'pip', 'install', '--user', '--no-index',\n"
        "    '--find-links', '.', 'lkgtool'], capture_output=True, text=True)\n"
        "assert done.returncode == 0, done.stderr\n"
        "os.symlink('.local/bin/lkgtool', os.path.expanduser('~/link'))\n"
        "os.makedirs(os.path.expanduser('~/empty'), 0o710)"
    )
    busy = second.submit(WHERE + "input()", allow_stdin=True)
    second.asked(busy)
    used = first.execute(
        WHERE + "import lkgtool, subprocess; lkgtool.main()\n"
        "print(subprocess.run(['lkgtool'], capture_output=True, text=True).stdout.strip())\n"
        "print(os.readlink(os.path.expanduser('~/link')))\n"
        "print(oct(os.stat(os.path.expanduser('~/empty')).st_mode & 0o777))"
    )
    second.answer("")
    second.wait(busy)
    assert installed.reply["status"] == "ok", installed.error
    where, *said = used.stdout.split("\n")
    assert said[:4] == ["the tool runs", "the tool runs", ".local/bin/lkgtool", "0o710"]
    assert where != busy.stdout.strip()


def test_two_cells_of_one_scope_that_change_home_and_a_file_at_once_lose_nothing(
    shared: Gateway, workspace: str
) -> None:
    first, second = (session(shared, "u1-a1", workspace) for _ in range(2))
    code = (
        WHERE + "{1}\n"
        "for name in ('both', '{0}'):\n"
        "    open(os.path.expanduser('~/' + name), 'w').write('{0}')\n"
        "open('shared.txt', 'w').write('{0}')"
    )
    slow = first.submit(code.format("slow", "input()"), allow_stdin=True)
    first.asked(slow)
    quick = second.execute(code.format("quick", ""))
    first.answer("")
    first.wait(slow)
    assert quick.stdout != slow.stdout
    assert quick.stderr == ""
    assert "another cell of this scope changed HOME at the same time" in slow.stderr
    assert "'both'" in slow.stderr
    assert "'shared.txt' (" in slow.stderr
    found = second.execute(
        "h = os.path.expanduser('~')\n"
        "print(*[open(os.path.join(h, n)).read() for n in ('quick', 'slow', 'both')])\n"
        "print(open('shared.txt').read())"
    )
    assert found.stdout == "quick slow slow\nslow\n"


def test_what_one_scope_plants_in_its_home_acts_in_no_other(one_container: Gateway) -> None:
    mine, other = session(one_container, "u1"), session(one_container, "u1-a2")
    planted = mine.execute(
        WHERE + "import site\n"
        "folder = site.getusersitepackages(); os.makedirs(folder, exist_ok=True)\n"
        "open(os.path.join(folder, 'x.pth'), 'w').write('/planted')\n"
        "open(os.path.join(folder, 'usercustomize.py'), 'w').write("
        '\'import os; os.environ["ACTED"] = "1"\')\n'
        "open(os.path.expanduser('~/.pip.conf'), 'w').write('[global]')\n"
        "HOME = os.path.expanduser('~')"
    )
    assert planted.reply["status"] == "ok", planted.error
    home = mine.execute("print(HOME)").stdout.strip()
    seen = other.execute(
        WHERE + f"import sys\n"
        f"print(os.environ.get('ACTED'), '/planted' in sys.path, os.path.exists({home!r}))\n"
        "print(sorted(n for n in os.listdir('/tmp') if n.startswith('home-')))\n"
        "print(os.listdir(os.path.expanduser('~')))"
    )
    lines = seen.stdout.split("\n")
    assert lines[1] == "None False False"
    assert len(lines[2].split(",")) == 1
    assert lines[3] == "[]"
    back = mine.execute(WHERE + "print(os.environ.get('ACTED'))")
    assert back.stdout.split("\n")[1] == "1"
    assert lines[0] == planted.stdout.strip() == back.stdout.split("\n")[0]


def test_a_cell_that_dies_leaves_home_as_after_the_last_commit(shared: Gateway) -> None:
    client = session(shared, "u10")
    client.execute("import os; p = os.path.expanduser('~/f'); open(p, 'w').write('kept')")
    client.execute("open(p, 'w').write('lost'); os.symlink('/etc', p + '2'); os._exit(1)")
    assert client.execute("print(open(p).read(), os.listdir(os.path.dirname(p)))").stdout == (
        "kept ['f']\n"
    )
