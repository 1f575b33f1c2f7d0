"""Records the three trails that stand beside this file, anew.

    .venv/bin/pip install -q -e '.[local,test]' && .venv/bin/python notebooks/trails/record.py

A gateway of its own runs the cells of ``sessions/*.txt``: an agent's by REST, an analyst's, and one
in which things go wrong. Its journals are exported, and the public keys that verify them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_gateway.client import Gateway, Kernel, NotRunning

HERE = Path(__file__).parent
COMMAND = str(Path(sys.executable).with_name("kernel-gateway"))
ANALYST, AGENT = "token-of-the-analyst", "token-of-the-agent"
CONFIG = """\
[[environment]]
id = "default"
timeout_s = 15
commit_grace_s = 5
"""
IDENTITIES = """\
[[identity]]
user = "analyst"
token_sha256 = "{analyst}"

[[identity]]
user = "analyst"
agent = "investigator"
token_sha256 = "{agent}"
"""


def cells_of(name: str) -> list[str]:
    """Return the cells of a session; one may show another file of this folder."""
    text = (HERE / "sessions" / f"{name}.txt").read_text()
    text = text.replace("{cloudtrail_logs}", (HERE / "cloudtrail_logs.py").read_text())
    return [cell.strip("\n") for cell in text.split("----\n")]


def record(kernel: Kernel, name: str) -> None:
    """Run the cells of a session."""
    for code in cells_of(name):
        interrupting = None
        if code.startswith("# interrupted by hand"):
            interrupting = threading.Timer(3, kernel.interrupt)
            interrupting.start()
        result = kernel.execute(code)
        if interrupting is not None:
            interrupting.join()
        print(f"{name} [{result.execution_count}] {result.status}", result.error or "")


def export(state_dir: Path, token: str, kernel_id: str, name: str) -> None:
    """Write the trail of a kernel, and the whole of its large outputs."""
    asked = [COMMAND, "trail", "export", kernel_id, "--state-dir", state_dir, "--token", token]
    subprocess.run([*asked, "--output", HERE / f"{name}.ipynb", "--with-blobs"], check=True)


def is_there(state_dir: Path) -> bool:
    """Return whether a gateway serves this folder."""
    try:
        Gateway.local(state_dir).close()
    except NotRunning:
        return False
    return True


@contextmanager
def running_gateway(state_dir: Path) -> Iterator[None]:
    """Have a gateway of our own."""
    config, identities = state_dir / "config.toml", state_dir / "identities.toml"
    config.write_text(CONFIG)
    digests = {
        name: hashlib.sha256(token.encode()).hexdigest()
        for name, token in (("analyst", ANALYST), ("agent", AGENT))
    }
    identities.write_text(IDENTITIES.format(**digests))
    command = [COMMAND, "--state-dir", state_dir, "--config", config]
    process = subprocess.Popen([*command, "--identities", identities, "--port", "0"])
    try:
        while not is_there(state_dir):
            if process.poll() is not None:
                sys.exit("the gateway did not start")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Record all three."""
    state_dir = Path(tempfile.mkdtemp(prefix="lkg-trails-"))
    with running_gateway(state_dir):
        for name, token in (("investigation", AGENT), ("analysis", ANALYST), ("troubles", ANALYST)):
            with (
                Gateway.local(state_dir, token=token) as gateway,
                gateway.kernel(workspace=name) as kernel,
            ):
                record(kernel, name)
            export(state_dir, token, kernel.kernel_id, name)
    keys = subprocess.run(
        [COMMAND, "keys", "export", "--state-dir", state_dir], check=True, capture_output=True
    )
    (HERE / "keys.json").write_bytes(keys.stdout)
    shutil.rmtree(state_dir)


if __name__ == "__main__":
    main()
