"""Sessions that begin with another's state, and what a session holds, through the whole product."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.driver import Gateway, NotebookClient


def fork(gateway: Gateway, source: str) -> NotebookClient:
    return gateway.session(env={"LAMBDA_KERNEL_FROM": source})


def test_a_fork_and_its_source_evolve_independently(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("import numpy as np, os\na = np.arange(10**6); b = a[:3]; here = os.getcwd()")
    kernel.execute("class Point:\n    x = 1\np = Point(); l = [p]")
    forked = fork(gateway, f"{kernel.kernel_id}@2")

    forked.execute("a[0] = 7; l.append(2); Point.x = 5")
    kernel.execute("a[0] = 9; del l")

    ours = forked.execute("b[0], len(l), p.x, type(p) is Point, here == os.getcwd()")
    theirs = kernel.execute("b[0], 'l' in globals(), p.x")
    assert ours.result == "(np.int64(7), 2, 5, True, True)"
    assert theirs.result == "(np.int64(9), False, 1)"
    assert ours.reply["execution_count"] == 4
    forked.close()


def test_time_travel_also_to_before_a_restart(gateway: Gateway, kernel: NotebookClient) -> None:
    kernel.execute("x = 1")
    kernel.execute("x = 2; big = bytes(10**6)")
    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/restart").ok
    kernel.execute("y = 3")

    before = fork(gateway, f"{kernel.kernel_id}@2")
    now = fork(gateway, kernel.kernel_id)

    assert before.execute("x, len(big)").result == "(2, 1000000)"
    assert before.execute("In[1]").result == "'x = 1'"
    assert now.execute("y, 'x' in globals()").result == "(3, False)"
    assert gateway.rest("POST", f"/api/kernels/{before.kernel_id}/restart").ok
    assert before.execute("x").reply["ename"] == "NameError"
    before.close()
    now.close()


def test_a_fork_of_a_cell_that_is_not_kept_says_which_are(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 1")
    kernel.execute("import os; os._exit(1)")
    kernel.execute("x = 3")
    env = {"LAMBDA_KERNEL_FROM": f"{kernel.kernel_id}@2"}
    refused = gateway.rest("POST", "/api/kernels", json={"env": env})
    assert refused.status_code == 400
    assert "cells 1, 3 are kept" in refused.json()["message"]


def test_a_fork_is_shown_and_sessions_can_be_forks_too(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    kernel.execute("x = 1")
    body = {
        "path": "forked.ipynb",
        "type": "notebook",
        "kernel": {"env": {"LAMBDA_KERNEL_FROM": kernel.kernel_id}},
    }
    made = gateway.rest("POST", "/api/sessions", json=body)
    assert made.status_code == 201
    model = made.json()["kernel"]
    assert model["lambda_kernel"]["forked_from"] == f"{kernel.kernel_id}@1"
    assert gateway.rest("DELETE", f"/api/sessions/{made.json()['id']}").ok


def test_variables_are_listed_and_shown_on_request(
    gateway: Gateway, kernel: NotebookClient
) -> None:
    path = f"/api/kernels/{kernel.kernel_id}/variables"
    assert gateway.rest("GET", path).json() == []
    kernel.execute(
        "import numpy as np\na = np.arange(10**6); s = 'x' * 5000; g = (n for n in 'ab')\n"
        "class Bad:\n    def __repr__(self): 1 / 0\nbad = Bad()"
    )

    listed = gateway.rest("GET", path)
    shown = {
        name: gateway.rest("GET", f"{path}?repr={name}").json() for name in ("a", "s", "g", "bad")
    }

    assert listed.headers["Lambda-Kernel-Total"] == "6"
    assert [each["name"] for each in listed.json()] == ["Bad", "a", "bad", "g", "np", "s"]
    assert listed.json()[1]["bytes"] > 8_000_000
    assert not listed.json()[3]["carried"]
    assert "generator cannot be stored" in listed.json()[3]["why"]
    assert shown["a"]["repr"].startswith("array([     0,")
    assert len(shown["s"]["repr"]) <= 1000
    assert "repr" not in shown["g"]
    assert (shown["bad"]["repr"], shown["bad"]["error"][:17]) == (None, "ZeroDivisionError")
    assert gateway.rest("GET", f"{path}?repr=nope").status_code == 404
    assert [e["name"] for e in gateway.rest("GET", f"{path}?limit=2&offset=1").json()] == [
        "a",
        "bad",
    ]
    assert kernel.execute("s[:2]").reply_metadata["seq"] == 2


def test_a_variable_is_shown_while_a_cell_runs(gateway: Gateway, kernel: NotebookClient) -> None:
    kernel.execute("x = 1")
    running = kernel.submit("x = 2\nprint('in', flush=True)\nimport time; time.sleep(60)")
    while "in" not in running.stdout:
        running.messages.append(kernel.receive(30))
    path = f"/api/kernels/{kernel.kernel_id}/variables?repr=x"
    assert gateway.rest("GET", path).json()["repr"] == "1"
    assert gateway.rest("POST", f"/api/kernels/{kernel.kernel_id}/interrupt").ok
    kernel.wait(running)
    assert gateway.rest("GET", path).json()["repr"] == "2"
