"""Who opened, forked, interrupted and ended a session, what ran it, and what its user answered."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.environments.handler_archive import bootstrap_path, zip_files
from kernel_gateway.local.launcher import SHIM
from tests.integration.driver import Gateway
from tests.integration.test_entries import events_of
from tests.integration.test_interrupts import begun, by_message, by_rest
from tests.integration.test_replay import replayed
from tests.integration.test_trail import command


def of_type(gateway: Gateway, kernel_id: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in events_of(gateway, kernel_id) if event["type"] == kind]


def who(event: dict[str, Any]) -> tuple[str, str, str | None]:
    actor = event["actor"]
    return actor["door"], actor["caller"]["user"], actor["caller"]["agent"]


def test_a_session_names_who_opened_interrupted_restarted_and_ended_it(
    gateway: Gateway, tmp_path: Path
) -> None:
    client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": "who"})
    client.execute("x = 1")
    for way in (by_rest, by_message):
        running = begun(client, "import time; time.sleep(600)")
        way(gateway, client)
        client.wait(running)
    assert gateway.rest("POST", f"/api/kernels/{client.kernel_id}/restart").ok
    client.close()
    assert gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}").status_code == 204

    events = events_of(gateway, client.kernel_id)

    opened = events[0]
    assert opened["type"] == "session_opened"
    assert who(opened) == ("rest", "local", None)
    assert opened["actor"]["caller"]["user_agent"].startswith("python-requests/")
    assert opened["session"]["workspace"] == "who"
    assert [who(e)[0] for e in events if e["type"] == "interrupted"] == ["rest", "websocket"]
    assert [who(e) for e in events if e["type"] == "restarted"] == [("rest", "local", None)]
    assert events[-1]["type"] == "session_closed"
    assert who(events[-1]) == ("rest", "local", None)
    file = tmp_path / "trail.ipynb"
    exported = command(gateway, "trail", "export", client.kernel_id, "--output", str(file))
    assert exported.returncode == 0, exported.stderr
    cover, *_, last = json.loads(file.read_text())["cells"]
    (signed,) = cover["metadata"]["lambda_kernel"]["audit"]["entries"]
    assert json.loads(base64.b64decode(signed["payload"]))["event"]["actor"] == opened["actor"]
    assert "by user `local`, by REST" in "".join(cover["source"])
    assert "shut down by user `local`, by REST" in "".join(last["source"])
    assert command(gateway, "trail", "verify", str(file), "--journal").returncode == 0


def test_the_source_of_a_fork_says_where_its_variables_went(gateway: Gateway) -> None:
    source = gateway.session()
    source.execute("x = 1")
    source.execute("x = 2")
    fork = gateway.session(env={"LAMBDA_KERNEL_FROM": f"{source.kernel_id}@1"})

    assert fork.execute("x").result == "1"

    (told,) = of_type(gateway, source.kernel_id, "session_forked")
    assert (told["kernel_id"], told["execution_count"]) == (fork.kernel_id, 1)
    assert who(told) == ("rest", "local", None)
    opened = events_of(gateway, fork.kernel_id)[0]["session"]
    assert opened["forked_from"] == source.kernel_id
    assert opened["forked_at"] == told["at"]
    for client in (source, fork):
        client.close()
        assert command(gateway, "trail", "verify", client.kernel_id).returncode == 0


def test_entries_say_which_code_of_the_function_ran_a_cell(gateway: Gateway) -> None:
    client = gateway.session()
    client.execute("1")
    client.execute("2")
    client.close()

    ends = of_type(gateway, client.kernel_id, "cell_finished")

    package = zip_files(
        {"bootstrap.py": bootstrap_path().read_bytes(), SHIM.name: SHIM.read_bytes()}
    )
    expected = base64.b64encode(hashlib.sha256(package).digest()).decode()
    for end in ends:
        code = end["platform"]
        assert (code["version"], code["code_sha256"], code["problem"]) == (
            "$LATEST", expected, None,
        )  # fmt: skip
        assert code["arn"] == end["handler"]["witness"]["container"]["function_arn"]
    with gateway.owners_client("lambda") as functions:
        found = functions.get_function_configuration(FunctionName="lkg-env-default")
        assert found["CodeSha256"] == expected
        assert found["MemorySize"] > 0
        with pytest.raises(functions.exceptions.ResourceNotFoundException):
            functions.get_function_configuration(FunctionName="lkg-env-default", Qualifier="7")


def test_answers_are_recorded_and_given_again_in_a_replay(gateway: Gateway) -> None:
    client = gateway.session()
    client.execute("name = input('Who? ')\nprint('Hello', name, input())", answers=["Zoë", "twice"])
    client.execute("import getpass\nlen(getpass.getpass('Key: '))", answers=["pw-secret"])
    client.execute("name * 2")
    client.close()

    first, second, third = of_type(gateway, client.kernel_id, "cell_finished")

    assert [(each["prompt"], each["value"]) for each in first["answers"]] == [
        ("Who? ", "Zoë"), ("", "twice"),
    ]  # fmt: skip
    assert first["answers"][0]["caller"]["user"] == "local"
    (password,) = second["answers"]
    assert (password["value"], password["left_out"]) == (None, "password")
    assert "pw-secret" not in json.dumps([first, second, third])
    for how in ({}, {"mode": "pinned"}):
        assert replayed(gateway, client.kernel_id, **how) == {
            1: "identical", 2: "unavailable", 3: "identical",
        }  # fmt: skip
    assert command(gateway, "trail", "verify", client.kernel_id).returncode == 0
