"""One Jupyter server with local kernels and lambda kernels, as a person's JupyterLab has them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from tests.integration.driver import COMMAND, Gateway, NotebookClient
from tests.integration.jupyter_server import TOKEN, a_server


def new_session(server: Gateway, path: str, kernel_name: str) -> tuple[str, NotebookClient]:
    """Return the id of a notebook's session, and a client of its kernel."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel_name}}
    made = server.rest("POST", "/api/sessions", json=body)
    assert made.status_code == 201, made.text
    return made.json()["id"], connected(server, made.json()["kernel"]["id"])


def connected(server: Gateway, kernel_id: str) -> NotebookClient:
    """Return a client of a kernel that has answered.

    As any client does: a stock kernel may miss what is sent while its sockets are connected.
    """
    client = NotebookClient(server, kernel_id, TOKEN)
    for _ in range(30):
        asked = client.send("kernel_info_request", {})
        with suppress(TimeoutError):
            while client.receive(3)["parent_header"].get("msg_id") != asked:
                pass
            return client
    raise AssertionError(f"kernel {kernel_id} does not answer")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One for all tests that leave it running."""
    with a_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_both_kinds_of_kernels_are_offered_under_their_own_names(server: Gateway) -> None:
    specs = server.rest("GET", "/api/kernelspecs").json()
    named = {name: spec["spec"]["display_name"] for name, spec in specs["kernelspecs"].items()}
    assert named["lambda-python"] == "Python 3 (Lambda)"
    assert "ipykernel" in named["python3"]
    assert specs["default"] == "python3"
    logo = specs["kernelspecs"]["lambda-python"]["resources"]["logo-svg"]
    assert server.rest("GET", logo).content.startswith(b"<")


def test_notebooks_of_both_kinds_run_side_by_side(server: Gateway) -> None:
    where = "import os; print(os.getcwd(), os.environ.get('JPY_SESSION_NAME'))"
    local_id, local = new_session(server, "local.ipynb", "python3")
    lambda_id, in_lambda = new_session(server, "lambda.ipynb", "lambda-python")
    waiting = in_lambda.submit(f"x = 6\n{where}"), local.submit(f"x = 7\n{where}")
    in_lambda.wait(waiting[0])
    local.wait(waiting[1])
    folder = str(server.state_dir.parent)
    assert folder in waiting[1].stdout
    assert folder not in waiting[0].stdout
    assert "local.ipynb" in waiting[1].stdout
    assert waiting[0].stdout.endswith("None\n"), "the server's environment stays in the server"
    assert (in_lambda.execute("x").result, local.execute("x").result) == ("6", "7")
    listed = {s["path"]: s["kernel"]["name"] for s in server.rest("GET", "/api/sessions").json()}
    assert listed == {"local.ipynb": "python3", "lambda.ipynb": "lambda-python"}
    for session_id, before in ((local_id, local), (lambda_id, in_lambda)):
        path = f"/api/kernels/{before.kernel_id}"
        assert server.rest("POST", f"{path}/restart").status_code == 200
        before.close()
        client = connected(server, before.kernel_id)
        assert client.execute("x").error == "NameError: name 'x' is not defined"
        assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
        assert server.rest("GET", path).status_code == 404
        client.close()


def test_the_stop_button_interrupts_both(server: Gateway) -> None:
    for kernel_name in ("python3", "lambda-python"):
        session_id, client = new_session(server, f"{kernel_name}.ipynb", kernel_name)
        running = client.submit("print('begun', flush=True)\nimport time; time.sleep(60)")
        while client.receive(60)["header"]["msg_type"] != "stream":
            pass
        path = f"/api/kernels/{client.kernel_id}/interrupt"
        assert server.rest("POST", path).status_code == 204
        client.wait(running)
        assert running.reply["ename"] == "KeyboardInterrupt"
        assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
        client.close()


@pytest.mark.parametrize(
    ("how", "states"), [("rest", ["starting"]), ("message", ["restarting", "starting"])]
)
def test_both_kinds_tell_a_restart_in_the_same_words(
    server: Gateway, how: str, states: list[str]
) -> None:
    for kernel_name in ("python3", "lambda-python"):
        session_id, client = new_session(server, f"{kernel_name}.ipynb", kernel_name)
        client.execute("x = 1")
        if how == "rest":
            path = f"/api/kernels/{client.kernel_id}/restart"
            assert server.rest("POST", path).status_code == 200
        else:
            client.send("shutdown_request", {"restart": True}, channel="control")
        heard: list[str] = []
        # A stock kernel's own word may be lost: its sockets are being connected again.
        with suppress(TimeoutError) if kernel_name == "python3" else nullcontext():
            while "starting" not in heard:
                message = client.receive(20)
                if message["header"]["msg_type"] == "status" and not message["parent_header"]:
                    heard.append(message["content"]["execution_state"])
        assert heard == (states if "starting" in heard else states[:-1])
        # And it may miss what is sent to it.
        if kernel_name != "python3":
            assert client.execute("x").error == "NameError: name 'x' is not defined"
        assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
        client.close()


def test_a_notebook_moves_from_one_kind_of_kernel_to_the_other(server: Gateway) -> None:
    session_id, client = new_session(server, "moves.ipynb", "python3")
    client.close()
    path = f"/api/sessions/{session_id}"
    before = client.kernel_id
    for kernel_name, status in (("lambda-python", "True"), ("python3", "False")):
        body = {"path": f"{kernel_name}.ipynb", "kernel": {"name": kernel_name}}
        changed = server.rest("PATCH", path, json=body).json()
        assert changed["path"] == f"{kernel_name}.ipynb"
        assert server.rest("GET", f"/api/kernels/{before}").status_code == 404
        before = changed["kernel"]["id"]
        client = connected(server, before)
        where = client.execute("import os; os.getcwd().startswith('/tmp/.')")
        assert where.result == status
        client.close()
    assert server.rest("DELETE", path).status_code == 204


def test_two_clients_of_one_kernel_see_each_others_cells_but_not_their_replies(
    server: Gateway,
) -> None:
    session_id, one = new_session(server, "shared.ipynb", "lambda-python")
    two = NotebookClient(server, one.kernel_id, TOKEN)
    asked = one.submit("print('hello from one')\n6 * 7")
    seen: list[str] = []
    while "execute_result" not in seen or seen[-1] != "idle":
        message = two.receive(60)
        if message["parent_header"].get("msg_id") == asked.msg_id:
            content = message["content"]
            seen.append(content.get("execution_state") or message["header"]["msg_type"])
    assert seen == ["busy", "execute_input", "stream", "execute_result", "idle"]
    one.wait(asked)
    assert asked.result == "42"
    assert two.execute("_").result == "42"
    assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
    one.close()
    two.close()


def test_commands_find_the_gateway_in_the_server(server: Gateway, tmp_path: Path) -> None:
    session_id, client = new_session(server, "files.ipynb", "lambda-python")
    assert client.execute("open('made.txt', 'w').write('by a cell')").result == "9"
    arguments = ["files", "get", "made.txt", str(tmp_path / "got.txt")]
    command = [COMMAND, *arguments, "--state-dir", str(server.state_dir)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert (tmp_path / "got.txt").read_text() == "by a cell"
    assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
    client.close()


def test_lambda_kernels_outlive_their_server_and_local_ones_do_not(tmp_path: Path) -> None:
    with a_server(tmp_path) as first:
        _, client = new_session(first, "a.ipynb", "lambda-python")
        assert client.execute("kept = 42").reply["status"] == "ok"
        _, local = new_session(first, "b.ipynb", "python3")
        client.close()
        local.close()
    assert first.process.returncode == 0
    assert not (tmp_path / "state" / "run" / "gateway.json").exists()
    with a_server(tmp_path) as second:
        assert second.rest("GET", "/api/kernels").json() == []
        _, other = new_session(second, "c.ipynb", "lambda-python")
        other.close()
        there = {kernel["id"] for kernel in second.rest("GET", "/api/kernels").json()}
        assert there == {client.kernel_id, other.kernel_id}
        again = NotebookClient(second, client.kernel_id, TOKEN)
        assert again.execute("kept").result == "42"
        again.close()


def test_a_state_directory_in_use_is_told_in_words_and_local_kernels_go_on(
    server: Gateway, tmp_path: Path
) -> None:
    session_id, client = new_session(server, "first.ipynb", "lambda-python")
    with a_server(tmp_path, server.state_dir) as late:
        body = {"path": "a", "type": "notebook", "kernel": {"name": "lambda-python"}}
        refused = late.rest("POST", "/api/sessions", json=body)
        assert refused.status_code == 500
        assert "is in use by the gateway" in refused.json()["message"]
        _, local = new_session(late, "b.ipynb", "python3")
        assert local.execute("6 * 7").result == "42"
        local.close()
    client.close()
    assert server.rest("DELETE", f"/api/sessions/{session_id}").status_code == 204
