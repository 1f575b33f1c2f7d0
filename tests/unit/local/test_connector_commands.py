"""`kernel-gateway connectors`: what it stores, what it refuses, what it never shows."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from kernel_gateway.errors import BadRequest, GatewayError, NotFound, StorageError
from kernel_gateway.local.connector_commands import ValueSource, run_action
from kernel_gateway.local.secrets_store import SecretStore
from lambda_kernel.contract.keys import Stack

SECRET = "lkg-connector-creds-a1"
VALUE = "a-value-that-nobody-sees"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(
    folder: Path, action: str, *names: str, text: str = "", terminal: dict[str, str] | None = None
) -> None:
    agent, connector, *keys = [*names, "", ""] if len(names) < 2 else names
    options = argparse.Namespace(
        agent=agent, connector=connector, keys=[key for key in keys if key]
    )
    answers = terminal or {}
    source = ValueSource(
        stream=io.StringIO(text) if terminal is None else Terminal(),
        ask=lambda prompt: answers[prompt.split()[-1].rstrip(":")],
    )
    run_action(SecretStore(folder), Stack(), action, options, source)


def stored(folder: Path) -> dict[str, dict[str, str]]:
    secret = SecretStore(folder).get(SECRET)
    return {} if secret is None else secret.connectors


def test_lines_of_standard_input_are_stored_and_added_to(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "gh", text=f"TOKEN={VALUE}\n\nUSER=b=c\n")
    run(tmp_path, "set", "a1", "gh", text="USER=d")
    run(tmp_path, "set", "a1", "jira", text="KEY=1")
    assert stored(tmp_path) == {"gh": {"TOKEN": VALUE, "USER": "d"}, "jira": {"KEY": "1"}}


def test_one_named_key_takes_all_of_standard_input(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "ssh", "KEY", text="line 1\nline 2\n")
    assert stored(tmp_path) == {"ssh": {"KEY": "line 1\nline 2"}}


def test_a_terminal_is_asked_for_each_key(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "gh", "TOKEN", "USER", terminal={"TOKEN": VALUE, "USER": "u"})
    assert stored(tmp_path) == {"gh": {"TOKEN": VALUE, "USER": "u"}}
    with pytest.raises(BadRequest, match="name the KEYs"):
        run(tmp_path, "set", "a1", "gh", terminal={"x": "y"})


def test_the_list_names_keys_and_shows_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "set", "a1", "gh", text=f"USER={VALUE}\nTOKEN={VALUE}")
    run(tmp_path, "set", "a10", "gh", text=f"USER={VALUE}")
    run(tmp_path, "list")
    assert capsys.readouterr().out == "a1  gh  TOKEN USER\na10  gh  USER\n"
    run(tmp_path, "list", "a1")
    assert capsys.readouterr().out == "a1  gh  TOKEN USER\n"


def test_keys_connectors_and_at_last_the_secret_are_deleted(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "gh", text="A=1\nB=2")
    run(tmp_path, "delete", "a1", "gh", "A")
    assert stored(tmp_path) == {"gh": {"B": "2"}}
    run(tmp_path, "delete", "a1", "gh")
    assert list((tmp_path / "secrets").glob("*.json")) == []
    with pytest.raises(NotFound, match="a1 has no connector gh"):
        run(tmp_path, "delete", "a1", "gh")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a1", "git-hub"), "A=1"),
        (("a1", "1gh"), "A=1"),
        (("a1", "gh"), "A-B=1"),
        (("a1", "gh"), "=1"),
        (("a1", "gh"), VALUE),
        (("a1", "gh"), ""),
        (("a1", "gh"), "A="),
        (("a1", "gh"), "A=x\0y"),
        (("a1", "gh"), f"A={'x' * 70_000}"),
        (("a*", "gh"), "A=1"),
        (("../x", "gh"), "A=1"),
        (("a1", "gh", f"TOKEN={VALUE}"), ""),
        (("a1", "gh", "A", "B"), "x"),
    ],
)
def test_what_cannot_be_a_variable_is_refused_without_repeating_it(
    tmp_path: Path, names: tuple[str, ...], text: str
) -> None:
    with pytest.raises(GatewayError) as refused:
        run(tmp_path, "set", *names, text=text)
    assert isinstance(refused.value, BadRequest)
    assert VALUE not in str(refused.value)
    assert stored(tmp_path) == {}


def test_two_connectors_cannot_make_one_variable(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "gh_x", text="KEY=1")
    with pytest.raises(BadRequest, match="CONN_gh_x_KEY"):
        run(tmp_path, "set", "a1", "gh", text="x_KEY=2")
    assert stored(tmp_path) == {"gh_x": {"KEY": "1"}}


def test_files_are_private_and_the_suffix_stays(tmp_path: Path) -> None:
    store = SecretStore(tmp_path)
    run(tmp_path, "set", "a1", "gh", text="A=1")
    first = store.get(SECRET)
    run(tmp_path, "set", "a1", "gh", text="A=2")
    second = store.get(SECRET)
    assert first is not None
    assert second is not None
    assert first.suffix == second.suffix
    assert first.version_id != second.version_id
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "secrets" / f"{SECRET}.json").stat().st_mode & 0o777 == 0o600
    assert VALUE not in repr(second)


def test_a_damaged_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    run(tmp_path, "set", "a1", "gh", text="A=1")
    path = tmp_path / "secrets" / f"{SECRET}.json"
    path.write_text(json.dumps({"name": VALUE}))
    with pytest.raises(StorageError) as refused:
        SecretStore(tmp_path).get(SECRET)
    assert str(path) in str(refused.value)
    assert VALUE not in str(refused.value)


@pytest.mark.parametrize("name", ["", "../x", ".lock", "a/b", "x" * 300, "a\0b"])
def test_a_name_that_is_no_secrets_finds_nothing(tmp_path: Path, name: str) -> None:
    assert SecretStore(tmp_path).get(name) is None
