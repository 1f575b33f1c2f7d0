"""Re-execution and probe in a real container, attacked by real children."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambda_kernel.isolation import probe

SECRETS = {
    "AWS_ACCESS_KEY_ID": "canary-id",
    "AWS_SECRET_ACCESS_KEY": "canary-secret",
    "AWS_SESSION_TOKEN": "canary-token",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN": "canary-authorization",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://canary",
    "AWS_LAMBDA_RUNTIME_API": "canary:9001",
    "LKG_HANDLER_URI": "s3://canary",
}

# Stage 1 and stage 2 are the real ones; instead of serving, stage 2 attacks itself and tells. It
# is put into the package that stage 1 seals, as /code is read-only.
ENTRY = """
import pathlib, shutil, sys
shutil.copytree("/code/lambda_kernel", "/tmp/own/lambda_kernel")
pathlib.Path("/tmp/own/lambda_kernel/serving/container.py").write_text(TELL)
sys.path[:0] = ["/tmp/own"]
sys.path.remove("")
from lambda_kernel import __main__
sys.argv = ["lambda_kernel"]
__main__.main()
"""
TELL = """
import json, os, pathlib, subprocess, sys
from lambda_kernel.isolation import probe


def attack(name):
    script = f"import os; open(f'/proc/{os.getpid()}/{name}', 'rb').read(1)"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "readable"


def serve(stage):
    result = probe.attack_all(probe.visible_processes())
    print(json.dumps({
        "pid": os.getpid(),
        "uid": os.getuid(),
        "non_dumpable": result.non_dumpable,
        "refused": result.refused,
        "reasons": result.reasons,
        "platform": dict(stage.platform),
        "environ": dict(os.environ),
        "command": pathlib.Path("/proc/self/cmdline").read_text(),
        "degraded": stage.degraded,
        "file": __file__,
        "attacks": {name: attack(name) for name in ("environ", "mem", "maps")},
    }), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def stages(in_container: Any) -> tuple[dict[str, Any], str]:
    """What stage 2 told, and the log of both stages."""
    status, stdout, stderr = in_container.run(["-c", f"TELL = {TELL!r}\n{ENTRY}"], SECRETS)
    assert status == 0, stderr
    return json.loads(stdout.splitlines()[-1]), stderr


def test_stage_2_has_the_credentials_and_its_environment_has_not(
    stages: tuple[dict[str, Any], str],
) -> None:
    told, _ = stages
    assert SECRETS.items() <= told["platform"].items()
    assert "canary" not in json.dumps([told["environ"], told["command"]])
    assert told["environ"]["LANG"] == "C.UTF-8"


def test_stage_2_keeps_its_pid_and_says_what_it_did(stages: tuple[dict[str, Any], str]) -> None:
    told, log = stages
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert told["pid"] == 1
    assert messages == ["credential isolation: re-executing with a clean environment"]
    assert "canary" not in log


def test_a_real_child_is_refused_environ_mem_and_maps(stages: tuple[dict[str, Any], str]) -> None:
    told, _ = stages
    assert told["degraded"] == ""
    for name, said in told["attacks"].items():
        assert said.startswith("PermissionError"), name


def test_every_attack_of_the_probe_is_refused(stages: tuple[dict[str, Any], str]) -> None:
    told, _ = stages
    assert told["reasons"] == {}
    assert set(told["refused"]) == set(probe.ATTACKS)
    assert told["non_dumpable"]


def test_stage_2_runs_our_code_from_sealed_memory(stages: tuple[dict[str, Any], str]) -> None:
    told, _ = stages
    assert told["file"].startswith("/proc/self/fd/")


def test_an_ordinary_process_is_found_out_by_the_probe(in_container: Any) -> None:
    # Nothing was done for this one: the probe must not call it isolated.
    told = in_container.result(
        "import json, os\nfrom lambda_kernel.isolation import probe\n"
        "r = probe.attack_all([os.getpid()])\n"
        "print(json.dumps([r.non_dumpable, r.refused]))"
    )
    non_dumpable, refused = told
    assert non_dumpable is False
    # Yama, where it is on, refuses to trace a process that is not one's own child.
    assert {name for name, held in refused.items() if held} <= {"ptrace"}


def test_a_container_that_runs_as_root_gives_its_capabilities_up(in_container: Any) -> None:
    status, stdout, stderr = in_container.run(
        ["-c", f"TELL = {TELL!r}\n{ENTRY}"], SECRETS, as_root=True
    )
    assert status == 0, stderr
    told = json.loads(stdout.splitlines()[-1])
    assert (told["uid"], told["degraded"]) == (0, "")
    # Where it is the host's root, core_pattern is its own file: the probe does not overlook that.
    assert told["reasons"].keys() <= {"core_dump"}


def test_root_with_its_capabilities_is_found_out_by_the_probe(in_container: Any) -> None:
    # Even beside an execute-only interpreter.
    status, stdout, stderr = in_container.run(
        [
            "-c",
            "import os, subprocess, sys\nfrom lambda_kernel.isolation import interpreter\n"
            "pid = interpreter.spawn(interpreter.open_exec_only(), ['-c', 'input()'], {}, {})\n"
            "from lambda_kernel.isolation import probe\nimport json\n"
            "result = probe.attack_all([pid])\n"
            "print(json.dumps([result.non_dumpable, result.refused['environ']]))\n"
            "os.kill(pid, 9)\n",
        ],
        as_root=True,
    )
    assert status == 0, stderr
    assert json.loads(stdout.splitlines()[-1]) == [False, False]
