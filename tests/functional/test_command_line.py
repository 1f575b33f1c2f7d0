"""What the command says to whoever types it wrong, before anything is started."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from kernel_gateway.announcement import announcement
from kernel_gateway.cli import main
from kernel_gateway.settings_command_line import parse

BAD = [
    (["--port", "x"], "--port"),
    (["--port", "65536"], "--port"),
    (["--port"], "--port"),
    (["--log-level", "loud"], "'loud' is none of DEBUG"),
    (["--no-such-option"], "--no-such-option"),
    (["--ServerApp.port"], "--ServerApp.port"),
    (["--ServerApp.port", "9999"], "--ServerApp.port=VALUE"),
    (["--por", "1"], "--por"),
    (["bogus"], "bogus"),
    (["--token", ""], "token"),
    (["--config", "/no/such.toml"], "/no/such.toml"),
    (["--identities", "/no/such.toml"], "/no/such.toml"),
    (["run"], "NOTEBOOK"),
    (["run", "/no/such.ipynb"], "/no/such.ipynb"),
    (["run", "x.ipynb", "--timeout", "0"], "--timeout"),
    (["run", "x.ipynb", "--ServerApp.port=1"], "--ServerApp.port"),
    (["run", "x.ipynb", "--no-such"], "see kernel-gateway run --help"),
    (["files", "ls", "--no-such"], "see kernel-gateway files ls --help"),
    (["run", __file__], "test_command_line.py: is not a notebook: not JSON"),
    (["files"], "COMMAND"),
    (["files", "cp"], "cp"),
    (["files", "put"], "LOCAL"),
    (["files", "put", "/no/such/file"], "/no/such/file"),
    (["files", "ls", "--gateway-url", "localhost:8888"], "localhost:8888"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    shown = capsys.readouterr()
    assert code in ({1, 2} if "--gateway-url" in arguments else {2})
    assert named in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    "command", [[], ["run"], ["files"], ["files", "ls"], ["files", "put"], ["files", "get"]]
)
def test_every_command_has_a_help_text(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    assert "usage: kernel-gateway" in capsys.readouterr().out


def test_the_gateways_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    for flag in ("ip", "port", "token", "identities", "config", "state-dir", "log-level"):
        assert f"--{flag} " in text


def test_a_notebook_that_cannot_run_here_is_refused_before_a_gateway_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = nbformat.v4.new_notebook(metadata={"language_info": {"name": "R"}})
    nbformat.write(notebook, tmp_path / "r.ipynb")
    common = ["run", str(tmp_path / "r.ipynb"), "--state-dir", str(tmp_path / "s")]
    assert main(common) == 2
    assert "is in R" in capsys.readouterr().err
    assert main([*common, "--kernel-name", "lambda-python", "--output", "/proc/o.ipynb"]) == 2
    assert "/proc/o.ipynb: cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_gateway_that_does_not_answer_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["files", "ls", "--gateway-url", "http://127.0.0.1:1", "--token", "t"])
    assert code == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err


def test_a_foreign_package_of_the_same_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import kernel_gateway

    (tmp_path / "gatewayapp.py").write_text("")
    monkeypatch.setattr(kernel_gateway, "__path__", [*kernel_gateway.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "kernel_gateway.gatewayapp", raising=False)
    assert main([]) == 2
    assert "jupyter-kernel-gateway" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["abc", '-it\'s"$HOME"`x`&;', None])
async def test_the_commands_that_are_printed_work_as_they_stand(
    token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "a folder" / "kernel-gateway"
    monkeypatch.setattr(sys, "argv", [str(script)])
    ready, *lines = announcement("http://127.0.0.1:8888/", token).splitlines()
    assert ready.startswith("kernel-gateway is ready: http://127.0.0.1:8888/")
    shown = token or "TOKEN"
    lab, python, run = (shlex.split(line.partition(":")[2]) for line in lines)
    assert lab[-2:] == [
        "--gateway-url=http://127.0.0.1:8888",
        f"--GatewayClient.auth_token={shown}",
    ]
    assert python[:3] == [sys.executable, "-P", "-c"]
    called: list[Any] = []

    def execute(code: str, **facts: str) -> SimpleNamespace:
        called.append((code, facts))
        return SimpleNamespace(text="42")

    told = {"execute": execute}
    exec(python[3].partition(";")[2].strip(), told)
    assert called == [("6 * 7", {"url": "http://127.0.0.1:8888", "token": shown})]
    assert run[0] == str(script)
    options, _ = parse(run[1:])
    assert options.notebook == Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
    assert (options.gateway_url, options.token) == ("http://127.0.0.1:8888", shown)


def test_verifying_a_file_imports_nothing_that_it_does_not_need() -> None:
    trails = Path(__file__).parents[2] / "notebooks" / "trails"
    arguments = ["trail", "verify", str(trails / "analysis.ipynb")]
    arguments += ["--keys", str(trails / "keys.json")]
    program = f"""
import sys
from kernel_gateway.cli import main
code = main({arguments!r})
slow = {{"httpx", "jupyter_server", "nbformat", "tornado", "traitlets"}}
print("imported", sorted(slow & set(sys.modules)))
sys.exit(code)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "imported []"
