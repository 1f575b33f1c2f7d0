"""Two gateways on one S3 and one Lambda, which outlive both: real processes, nothing between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from kernel_gateway.local.settings import LocalSettings
from lambda_kernel.contract.schema import encode
from tests.integration.driver import (
    TOKENS,
    Execution,
    Gateway,
    NotebookClient,
    a_gateway,
    free_port,
    identities_toml,
)

LEASE_S = 2.0


@dataclass
class Site:
    """A local service without a gateway, and what every gateway on it is given."""

    folder: Path

    @contextmanager
    def gateway(self, name: str) -> Iterator[Gateway]:
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        with a_gateway(
            self.folder / name,
            *("--port", str(port), "--deployment", str(self.folder / "deployment.json")),
            *("--identities", str(self.folder / "identities.toml")),
            f"--KernelGateway.lease_s={LEASE_S}",
            *("--replica-url", address),
        ) as gateway:
            gateway.token = TOKENS["u1"]
            yield gateway


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("replicas")
    settings = LocalSettings(state_dir=str(folder / "service"), max_containers=3)
    log = (folder / "service.log").open("w")
    service = subprocess.Popen(
        [sys.executable, "-P", "-m", "kernel_gateway.local"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    assert service.stdin is not None
    assert service.stdout is not None
    service.stdin.write(json.dumps(encode(settings)) + "\n")
    service.stdin.flush()
    deployment = service.stdout.readline()
    assert "handler_digest" in deployment, deployment
    (folder / "deployment.json").write_text(deployment)
    (folder / "identities.toml").write_text(identities_toml())
    try:
        yield Site(folder)
    finally:
        service.stdin.close()
        service.wait(20)
        service.stdout.close()
        log.close()


@pytest.fixture(scope="module")
def pair(site: Site) -> Iterator[tuple[Gateway, Gateway]]:
    with site.gateway("a") as a, site.gateway("b") as b:
        yield a, b


@contextmanager
def frozen(gateway: Gateway) -> Iterator[None]:
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.process.send_signal(signal.SIGCONT)


@contextmanager
def clients(*made: NotebookClient) -> Iterator[None]:
    with ExitStack() as stack:
        for client in made:
            stack.callback(client.close)
        yield


def closed_while(act: Callable[[], object]) -> Close | None:
    """Return how the gateway closed the connection meanwhile, None where it did not."""
    try:
        act()
    except ConnectionClosed as closed:
        return closed.rcvd
    return None


def attached(gateway: Gateway, kernel_id: str) -> NotebookClient:
    """Return a client as soon as the gateway serves the kernel, as a front end reconnects."""
    deadline = time.monotonic() + 60
    while True:
        client = NotebookClient(gateway, kernel_id, gateway.token)
        closed = closed_while(lambda: client.request("kernel_info_request", {}))  # noqa: B023
        if closed is None:
            return client
        client.close()
        assert closed.code == 1013, closed
        assert time.monotonic() < deadline, closed


def until_begun(client: NotebookClient, execution: Execution) -> None:
    """Return when the code has printed ``begun``."""
    while "begun" not in execution.stdout:
        message = client.receive(30)
        if message["parent_header"].get("msg_id") == execution.msg_id:
            execution.messages.append(message)


def model(gateway: Gateway, kernel_id: str) -> dict[str, Any]:
    answer = gateway.rest("GET", f"/api/kernels/{kernel_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_kernel_of_one_gateway_is_used_through_the_other(pair: tuple[Gateway, Gateway]) -> None:
    a, b = pair
    here = a.session()
    there = NotebookClient(b, here.kernel_id, b.token)
    with clients(here, there):
        assert here.execute("x = 20").reply["status"] == "ok"
        assert there.execute("x += 1; print(x)").stdout == "21\n"
        big = there.execute("'a' * 3_000_000")
        assert len(big.result) == 3_000_002
        assert here.execute("x").result == "21"

        assert model(b, here.kernel_id) == model(a, here.kernel_id)
        variables = b.rest("GET", f"/api/kernels/{here.kernel_id}/variables?repr=x").json()
        assert variables["repr"] == "21"

        path = f"/api/kernels/{here.kernel_id}/execute"
        body = b.rest("POST", path, json={"code": "print('by REST'); x"}).json()
        assert [o["output_type"] for o in body["outputs"]] == ["stream", "execute_result"]
        events = b.rest(
            "POST", path, json={"code": "print(x)"}, headers={"Accept": "text/event-stream"}
        )
        assert events.headers["Content-Type"].startswith("text/event-stream")
        assert "event: stream" in events.text

        loop = there.submit("import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)")
        until_begun(there, loop)
        assert b.rest("POST", f"/api/kernels/{here.kernel_id}/interrupt").status_code == 204
        there.wait(loop)
        assert loop.reply["ename"] == "KeyboardInterrupt"

        assert b.rest("POST", f"/api/kernels/{here.kernel_id}/restart").status_code == 200
        assert there.execute("x").reply["ename"] == "NameError"

        assert b.rest("DELETE", f"/api/kernels/{here.kernel_id}").status_code == 204
        assert a.rest("GET", f"/api/kernels/{here.kernel_id}").status_code == 404
        assert b.rest("GET", f"/api/kernels/{here.kernel_id}").status_code == 404


def test_a_foreign_token_gets_no_further_through_another_gateway(
    pair: tuple[Gateway, Gateway],
) -> None:
    a, b = pair
    made = a.rest("POST", "/api/kernels").json()["id"]
    stranger = TOKENS["u10"]
    for method, path in (
        ("GET", f"/api/kernels/{made}"),
        ("DELETE", f"/api/kernels/{made}"),
        ("POST", f"/api/kernels/{made}/restart"),
        ("GET", f"/api/kernels/{made}/variables"),
    ):
        assert b.rest(method, path, token=stranger).status_code == 404
        marked = {"Lambda-Kernel-Forwarded": "1"}
        assert a.rest(method, path, token=stranger, headers=marked).status_code == 404
    assert made not in {k["id"] for k in b.rest("GET", "/api/kernels", token=stranger).json()}
    assert b.rest("GET", f"/api/kernels/{made}", token="wrong").status_code == 403


def test_both_gateways_list_the_kernels_of_both(pair: tuple[Gateway, Gateway]) -> None:
    for gateway in pair:
        gateway.rest("GET", "/api/kernels")
    made = {g.rest("POST", "/api/kernels").json()["id"] for _ in range(20) for g in pair}
    deadline = time.monotonic() + 30
    for gateway in pair:
        while not made <= {k["id"] for k in gateway.rest("GET", "/api/kernels").json()}:
            assert time.monotonic() < deadline
    states = {k["execution_state"] for k in pair[1].rest("GET", "/api/kernels").json()}
    assert states == {"idle"}
    for kernel_id in made:
        assert pair[0].rest("DELETE", f"/api/kernels/{kernel_id}").status_code == 204


def test_a_gateway_that_was_killed_is_taken_over_when_its_lease_has_expired(
    site: Site, pair: tuple[Gateway, Gateway]
) -> None:
    b = pair[1]
    with site.gateway("killed") as a:
        here = a.session()
        through = NotebookClient(b, here.kernel_id, b.token)
        with clients(here, through):
            assert through.execute("x = [1, 2]").reply["status"] == "ok"
            a.process.kill()
            a.process.wait(20)
            how = closed_while(lambda: through.request("kernel_info_request", {}))
            assert how is not None
            assert how.code == 1013
        refused = b.rest("POST", f"/api/kernels/{here.kernel_id}/interrupt")
        assert refused.status_code == 503
        assert 0 < int(refused.headers["Retry-After"]) <= LEASE_S
        assert "does not answer" in refused.json()["message"]
    client = attached(b, here.kernel_id)
    with clients(client):
        again = client.execute("x.append(3); x")
        assert again.result == "[1, 2, 3]"
        assert again.reply["execution_count"] == 2


def test_a_gateway_that_slept_through_its_lease_runs_nothing_that_waited(
    pair: tuple[Gateway, Gateway],
) -> None:
    a, b = pair
    here = a.session()
    kernel_id = here.kernel_id
    with clients(here):
        assert here.execute("ran = ['a']").reply["status"] == "ok"
        code = "import time; print('begun', flush=True); time.sleep(1); ran.append('running')"
        running = here.submit(code)
        queued = here.submit("ran.append('queued'); print('queued ran')")
        until_begun(here, running)
        with frozen(a):
            unanswered = b.rest("POST", f"/api/kernels/{kernel_id}/restart")
            assert unanswered.status_code == 502
            assert "may have been done" in unanswered.json()["message"]
            client = attached(b, kernel_id)
            taken = client.execute("ran.append('b'); ran")
            late = here.submit("ran.append('late')")
        with clients(client):
            told: list[dict[str, Any]] = []
            how = None
            while how is None:
                how = closed_while(lambda: told.append(here.receive(30)))
            assert how.code == 1013
            assert "another gateway" in how.reason
            replies = {
                m["parent_header"]["msg_id"]: m["content"]
                for m in told
                if m["header"]["msg_type"] == "execute_reply"
            }
            # The one that ran meanwhile had committed, or was lost, or that is not known yet.
            said = replies[running.msg_id]
            if said["status"] == "ok":
                assert "running" in taken.result
            elif "another writer has committed" in said["evalue"]:
                assert "running" not in taken.result
            else:
                assert "not known yet" in said["evalue"]
            assert replies.get(queued.msg_id, {"status": "aborted"})["status"] != "ok"
            assert replies.get(late.msg_id, {"status": "aborted"})["status"] != "ok"
            assert "queued ran" not in json.dumps(told)

            after = client.execute("ran").result
            assert after == taken.result
            assert "queued" not in after
            assert "late" not in after
            through = NotebookClient(a, kernel_id, a.token)
            with clients(through):
                assert through.execute("ran").result == after


def test_a_gateway_that_stops_leaves_its_kernels_to_the_other_at_once(
    site: Site, pair: tuple[Gateway, Gateway]
) -> None:
    b = pair[1]
    with site.gateway("stopped") as a:
        here = a.session()
        with clients(here):
            assert here.execute("x = 1").reply["status"] == "ok"
        a.stop()
    client = NotebookClient(b, here.kernel_id, b.token)
    with clients(client):
        assert client.execute("x").result == "1"


def test_a_second_gateway_without_an_address_refuses_the_kernels_of_the_first(
    gateway: Gateway, tmp_path: Path
) -> None:
    deployment = gateway.state_dir / "run" / "deployment.json"
    assert deployment.stat().st_mode & 0o777 == 0o600
    here = gateway.session()
    with (
        clients(here),
        a_gateway(tmp_path / "second", "--deployment", str(deployment)) as second,
    ):
        assert here.execute("x = 1").reply["status"] == "ok"
        listed = {k["id"]: k for k in second.rest("GET", "/api/kernels").json()}
        assert listed[here.kernel_id]["execution_state"] == "unknown"
        refused = second.rest("POST", f"/api/kernels/{here.kernel_id}/restart")
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert "--replica-url" in refused.json()["message"]
        client = second.session()
        with clients(client):
            assert client.execute("6 * 7").result == "42"
        assert here.execute("x").result == "1"


def test_what_was_handed_on_once_is_not_handed_on_again(pair: tuple[Gateway, Gateway]) -> None:
    a, b = pair
    here = a.session()
    with clients(here):
        answer = requests.post(
            f"{b.url}/api/kernels/{here.kernel_id}/interrupt",
            headers={"Authorization": f"token {b.token}", "Lambda-Kernel-Forwarded": "1"},
            timeout=30,
        )
        assert answer.status_code == 503


def test_a_replay_may_be_asked_of_any_gateway(pair: tuple[Gateway, Gateway]) -> None:
    client = pair[0].session()
    client.execute("import random; x = random.random()")
    client.execute("open('made.txt', 'w').write(str(x)); x")
    head = [g.rest("GET", f"/api/kernels/{client.kernel_id}/trail/head").json() for g in pair]
    assert head[0] == head[1]

    for gateway in pair:
        for mode in ("sequential", "pinned"):
            body = {"kernel_id": client.kernel_id, "mode": mode}
            answer = gateway.rest("POST", "/api/replays", json=body)
            cells = answer.json()["cells"]
            assert [cell["standing"] for cell in cells] == ["identical"] * 2
            for replaying in answer.json()["kernels"]:
                assert gateway.rest("GET", f"/api/kernels/{replaying}").status_code == 404
    client.close()
