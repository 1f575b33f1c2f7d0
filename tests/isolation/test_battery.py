"""Every attack of the battery, in a cell of one scope after another's on the same container."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernel_gateway.local.secrets_store import SecretStore
from tests.integration.driver import (
    TOKENS,
    Gateway,
    NotebookClient,
    a_gateway,
    identities_toml,
)
from tests.isolation.battery import ATTACKS, PRELUDE, Attack

NAMES = ("scope", "connector", "host", "env")
PLANTED = {"scopes"}
"""Boundaries whose attacks follow a cell of the victim; the others follow one at the start."""

TOGETHER = {"credentials", "host", "network", "runtime", "scopes"}
"""Boundaries whose attacks only look or are refused: all of them are the code of one cell. What
does not go together, because it ends its cell or leaves something, has a cell for each attack."""

TIERS = {
    "namespaces": 'tier = "namespaces"',
    "process": 'tier = "process"',
    "lambda-strict": 'tier = "process"\nlambda_strict = true',
}
"""What stands in the environment's table."""

PLANT = """
import ctypes, os, pathlib, socket, subprocess, sys
planted = CANARY
assert os.environ['CONN_other_TOKEN']
home = pathlib.Path.home()
os.environ['CANARY_OF_A'] = CANARY
pathlib.Path('planted.txt').write_text(CANARY)
(home / 'planted.txt').write_text(CANARY)
site = home / '.local/lib' / f'python{sys.version_info[0]}.{sys.version_info[1]}' / 'site-packages'
site.mkdir(parents=True, exist_ok=True)
(site / 'usercustomize.py').write_text('import sys; sys.planted = True')
(site / 'planted.pth').write_text('import sys; sys.planted = True')
(home / '.config/pip').mkdir(parents=True, exist_ok=True)
(home / '.config/pip/pip.conf').write_text('[global]')
for folder in ('/tmp/planted', '/dev/shm/planted', '/opt/planted'):
    try:
        os.makedirs(folder, exist_ok=True); pathlib.Path(folder, 'x').write_text(CANARY)
        os.chmod(folder, 0)
    except OSError:
        pass
code = ("import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1);"
        " s.bind(('127.0.0.1', 45678)); s.listen(); a = socket.socket(socket.AF_UNIX);"
        " a.bind('\\\\0planted'); time.sleep(600)")
for _ in range(2):
    subprocess.Popen([sys.executable, '-c', code, 'planted', CANARY], start_new_session=True,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.chmod('/proc/self/exe', 0o777)
libc = ctypes.CDLL(None)
for ring in (-3, -4, -5):
    libc.syscall(248, b'user', b'planted', CANARY.encode(), len(CANARY), ring)
queue = ctypes.CDLL('librt.so.1').mq_open(b'/planted', 0o102, 0o666, None)
libc.shmget(4711, 4096, 0o1666); libc.semget(4711, 1, 0o1666); libc.msgget(4711, 0o1666)
"""


@dataclass
class Shared:
    """One container, two scopes, and what must never be seen."""

    tier: str
    gateway: Gateway
    victim: NotebookClient
    intruder: NotebookClient
    canaries: dict[str, str]
    host_home: Path
    known: dict[str, tuple[str, str]] = field(default_factory=dict)

    def attack(self, attack: Attack) -> tuple[str, str]:
        """Return the attack's standard output, and all that its client was sent."""
        if attack.name not in self.known:
            together = [attack]
            if attack.boundary in TOGETHER:
                together = [other for other in ATTACKS if other.boundary == attack.boundary]
            self.known |= self.run(attack.boundary, together)
        return self.known[attack.name]

    def run(self, boundary: str, attacks: Sequence[Attack]) -> dict[str, tuple[str, str]]:
        """Run the attacks in a cell of another scope, after one of the victim where that matters.

        Returns:
            Per name, its standard output, and all that the client of the cell was sent.
        """
        if boundary in PLANTED:
            planted = self.victim.execute(f"CANARY = {self.canaries['scope']!r}\n{PLANT}")
            assert planted.reply["status"] == "ok", planted.messages
        places = f"HOST_HOME, STATE_DIR = {str(self.host_home)!r}, {str(self.gateway.state_dir)!r}"
        mark = "-- next --\n"
        each = (f"print({mark!r}, end='', flush=True)\n{attack.code}" for attack in attacks)
        run = self.intruder.execute("\n".join([places, PRELUDE, *each]))
        after = self.intruder.execute("print('alive')")
        assert after.stdout == "alive\n", after.messages
        _, *told = run.stdout.split(mark)
        assert len(told) == len(attacks), run.messages
        everything = json.dumps([run.messages, after.messages])
        return {
            attack.name: (stdout, everything) for attack, stdout in zip(attacks, told, strict=True)
        }


@pytest.fixture(scope="module", params=TIERS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """A gateway with one container and canaries planted on the host."""
    folder = tmp_path_factory.mktemp("battery")
    canaries = {name: f"canary-{name}-{uuid.uuid4().hex}" for name in NAMES}
    host_home = folder / "host-home"
    (host_home / ".aws").mkdir(parents=True)
    (host_home / ".aws" / "credentials").write_text(canaries["host"])
    state = folder / "state"
    state.mkdir()
    (state / "canary").write_text(canaries["host"])
    with SecretStore(state).changing("lkg-connector-creds-a1") as connectors:
        connectors["other"] = {"TOKEN": canaries["connector"]}
    config = folder / "config.toml"
    config.write_text(
        identities_toml()
        + "[KernelGateway]\nmax_containers = 1\n"
        + f'[[environment]]\nid = "default"\n{TIERS[request.param]}\n'
    )
    # The credentials file is none that boto3 could read: the local default must not care.
    environ = {"HOME": str(host_home), "CANARY": canaries["env"], "AWS_PROFILE": "missing"}
    with a_gateway(state, "--config", str(config), environ=environ) as gateway:
        victim = gateway.session(token=TOKENS["u1-a1"])
        intruder = gateway.session(token=TOKENS["u10"])
        shared = Shared(request.param, gateway, victim, intruder, canaries, host_home)
        shared.run("scopes", [])
        yield shared
        victim.close()
        intruder.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gets_nothing(shared: Shared, attack: Attack) -> None:
    stdout, everything = shared.attack(attack)
    seen = attack.seen if shared.tier == "namespaces" else attack.beside
    assert re.fullmatch(seen, stdout, re.DOTALL), stdout
    assert re.search(attack.told, everything), everything
    for name, canary in shared.canaries.items():
        assert canary not in everything, f"the {name} canary was seen"
    assert "FORGED" not in everything
