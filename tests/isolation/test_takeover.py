"""A cell that opens its interpreter and kills the zygote gains nothing over the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver import Gateway, a_gateway


@pytest.fixture(scope="module")
def process_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One container whose cells are processes beside the zygote, as on Lambda."""
    folder = tmp_path_factory.mktemp("takeover")
    config = folder / "config.toml"
    config.write_text(
        '[KernelGateway]\nmax_containers = 1\n[[environment]]\nid = "default"\ntier = "process"\n'
    )
    with a_gateway(Path(folder / "state"), "--config", str(config)) as running:
        yield running


def test_a_zygote_that_comes_after_an_opened_interpreter_is_closed(process_tier: Gateway) -> None:
    client = process_tier.session()
    client.execute(
        "import os, signal\n"
        "os.chmod('/proc/self/exe', 0o777); os.kill(os.getppid(), signal.SIGKILL)"
    )
    run = client.execute(
        "import os\n"
        "for pid in (os.getppid(), 1):\n"
        "    for name in ('environ', 'mem', 'maps'):\n"
        "        try:\n"
        "            open(f'/proc/{pid}/{name}', 'rb').read(1); print('READ')\n"
        "        except PermissionError:\n"
        "            print('refused')\n"
    )
    assert run.stdout == "refused\n" * 6
    client.close()


def test_a_zygote_that_was_stopped_serves_the_next_cell(process_tier: Gateway) -> None:
    client = process_tier.session()
    client.execute(
        "import os, signal, subprocess, sys, time\n"
        "code = f'import os, time; time.sleep(0.2); os.kill({os.getppid()}, 19)'\n"
        "subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "time.sleep(0.5)"
    )
    assert client.execute("6 * 7", timeout_s=60).result == "42"
    client.close()


def test_a_zygote_whose_limits_were_lowered_is_replaced(process_tier: Gateway) -> None:
    client = process_tier.session()
    client.execute(
        "import os, resource\n"
        "resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 15)"
    )
    run = client.execute(
        "print(open('big', 'wb').write(b'x' * 5000), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    assert run.stdout == "5000 0\n"
    client.close()


def test_a_signal_that_dumps_core_leaves_none_of_the_zygote(process_tier: Gateway) -> None:
    client = process_tier.session()
    run = client.execute(
        "import glob, os, resource, signal\n"
        "[resource.prlimit(pid, resource.RLIMIT_CORE) for pid in (os.getppid(), 1)]"
    )
    assert run.result == "[(0, 0), (0, 0)]"
    client.execute("os.kill(os.getppid(), signal.SIGABRT)")
    run = client.execute(
        "places = ('', '/tmp', '/opt', '/dev/shm', os.getcwd())\n"
        "[path for place in places for path in glob.glob(f'{place}/core*')]"
    )
    assert run.result == "[]"
    client.close()
