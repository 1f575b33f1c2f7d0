"""Who sees and does what: identity comes from the token alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus

from tests.integration.driver import TOKENS, NotebookClient, a_gateway, identities_toml

if TYPE_CHECKING:
    from tests.integration.driver import Gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with two users, two agents of one of them, and an admin."""
    folder = tmp_path_factory.mktemp("owners")
    file = folder / "identities.toml"
    file.write_text(identities_toml())
    with a_gateway(folder / "state", "--identities", str(file)) as running:
        yield running


def test_another_users_kernel_does_not_exist(shared: Gateway) -> None:
    mine = shared.session(token=TOKENS["u1"])
    path = f"/api/kernels/{mine.kernel_id}"
    stranger = TOKENS["u10"]
    assert shared.rest("GET", path, token=stranger).status_code == 404
    assert shared.rest("DELETE", path, token=stranger).status_code == 404
    assert shared.rest("POST", f"{path}/interrupt", token=stranger).status_code == 404
    assert shared.rest("POST", f"{path}/restart", token=stranger).status_code == 404
    listed = [k["id"] for k in shared.rest("GET", "/api/kernels", token=stranger).json()]
    assert mine.kernel_id not in listed
    with pytest.raises(InvalidStatus) as refused:
        NotebookClient(shared, mine.kernel_id, stranger)
    assert refused.value.response.status_code in {403, 404}
    assert mine.execute("1").result == "1"
    mine.close()


def test_a_user_sees_the_kernels_of_its_agents_and_agents_not_each_others(shared: Gateway) -> None:
    agent = shared.session(token=TOKENS["u1-a1"])
    path = f"/api/kernels/{agent.kernel_id}"
    assert shared.rest("GET", path, token=TOKENS["u1"]).ok
    assert shared.rest("GET", path, token=TOKENS["u1-a2"]).status_code == 404
    agent.close()


def test_an_admin_lists_and_shuts_down_but_does_not_execute(shared: Gateway) -> None:
    mine = shared.session(token=TOKENS["u1"])
    listed = [k["id"] for k in shared.rest("GET", "/api/kernels", token=TOKENS["root"]).json()]
    assert mine.kernel_id in listed
    with pytest.raises(InvalidStatus):
        NotebookClient(shared, mine.kernel_id, TOKENS["root"])
    assert shared.rest("DELETE", f"/api/kernels/{mine.kernel_id}", token=TOKENS["root"]).ok
    mine.close()


def test_scopes_share_containers_but_neither_home_nor_files(shared: Gateway) -> None:
    tokens = ("u1", "u1-a1", "u1-a2", "u10")
    sessions = {name: shared.session(token=TOKENS[name]) for name in tokens}
    for name, session in sessions.items():
        session.execute(
            f"import pathlib; (pathlib.Path.home() / 'secret').write_text('{name}')\n"
            f"pathlib.Path('file-{name}').write_text('{name}')"
        )
    for name, session in sessions.items():
        run = session.execute(
            "import os, glob\n"
            "print((pathlib.Path.home() / 'secret').read_text())\n"
            "print(sorted(os.listdir('.')))\n"
            "print([p for p in glob.glob('/tmp/*') + glob.glob('/tmp/.*')])"
        )
        home, files, tmp = run.stdout.splitlines()
        assert home == name
        expected = ["file-u10"] if name == "u10" else ["file-u1", "file-u1-a1", "file-u1-a2"]
        assert files == str(expected)
        assert tmp.count("/tmp/home-") == 1
        session.close()


@pytest.mark.parametrize("token", ["wrong", "token-of-u1x", ""])
def test_a_wrong_token_opens_nothing(shared: Gateway, token: str) -> None:
    for path in ("/api/kernels", "/api/kernelspecs", "/api/workspaces/default/files/"):
        answer = shared.rest("GET", path, headers={"Authorization": f"token {token}"})
        assert answer.status_code in {401, 403}


def test_a_token_in_the_query_is_taken(shared: Gateway) -> None:
    answer = shared.rest("GET", f"/api/kernels?token={TOKENS['u1']}", headers={"Authorization": ""})
    assert answer.status_code == 200


def test_files_of_another_user_are_out_of_reach(shared: Gateway) -> None:
    path = "/api/workspaces/private/files/secret.txt"
    assert shared.rest("PUT", path, token=TOKENS["u1"], data=b"mine").ok
    assert shared.rest("GET", path, token=TOKENS["u1-a1"]).content == b"mine"
    assert shared.rest("GET", path, token=TOKENS["u10"]).status_code == 404
    climbing = "/api/workspaces/private/files/..%2f..%2fu1/private/secret.txt"
    assert shared.rest("GET", climbing, token=TOKENS["u10"]).status_code in {400, 404}


def workspace_keys(gateway: Gateway) -> set[str]:
    with gateway.owners_client("s3") as s3:
        found = s3.list_objects_v2(Bucket="lkg-workspaces", Prefix="users/").get("Contents", [])
    return {entry["Key"] for entry in found}


def test_an_admin_replays_on_copies_in_a_folder_of_its_own(shared: Gateway) -> None:
    agent = shared.session(token=TOKENS["u1-a1"], env={"LAMBDA_KERNEL_WORKSPACE": "w"})
    agent.execute("x = open('made.txt', 'w').write('agent')")
    agent.execute("x, open('made.txt').read()")
    agent.close()
    body = {"kernel_id": agent.kernel_id, "only": [2]}
    before = workspace_keys(shared)

    admins = shared.rest("POST", "/api/replays", json=body, token=TOKENS["root"]).json()

    assert admins["prefix"].startswith("users/root/.replays/")
    assert [cell["standing"] for cell in admins["cells"]] == ["identical"]
    for stranger in ("u1-a2", "u10"):
        answer = shared.rest("POST", "/api/replays", json=body, token=TOKENS[stranger])
        assert answer.status_code == 404
    assert workspace_keys(shared) - before == {f"{admins['prefix']}inputs/1/made.txt"}
