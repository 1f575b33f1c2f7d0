"""What ``kernel-gateway install`` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from kernel_gateway.cli import main


def installed(prefix: Path) -> KernelSpecManager:
    return KernelSpecManager(kernel_dirs=[str(prefix / "share" / "jupyter" / "kernels")])


def test_a_kernelspec_is_installed_and_removed(tmp_path: Path) -> None:
    state_dir = tmp_path / "state of mine"
    options = ["--name", "mine", "--display-name", "Mine", "--workspace", "w1"]
    assert (
        main(["install", "--prefix", str(tmp_path), "--state-dir", str(state_dir), *options]) == 0
    )
    specs = installed(tmp_path)
    spec = specs.get_kernel_spec("mine")
    assert spec.display_name == "Mine"
    assert spec.interrupt_mode == "message"
    assert spec.env == {"LAMBDA_KERNEL_WORKSPACE": "w1"}
    assert spec.argv[0] == sys.executable
    assert str(state_dir) in spec.argv
    assert {path.name for path in Path(spec.resource_dir).iterdir()} == {
        "kernel.json",
        "logo-64x64.png",
        "logo-svg.svg",
    }
    specs.remove_kernel_spec("mine")
    assert "mine" not in specs.find_kernel_specs()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--name", "a b"], "--name 'a b'"),
        (["--workspace", "../x"], "LAMBDA_KERNEL_WORKSPACE"),
        (["--config", "missing.toml"], "missing.toml: there is no such file"),
    ],
)
def test_what_cannot_work_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert main(["install", "--prefix", str(tmp_path), *options]) == 2
    assert problem in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_process_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "kernel_gateway.kernel_process", "-f"]
    missing = [*command, str(tmp_path / "missing.json")]
    done = subprocess.run(missing, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "missing.json: No such file" in done.stderr
