"""``/api/kernels``: what is started, shown, refused, and to whom."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config
from websockets.exceptions import InvalidStatus

from kernel_gateway.kernels.options import ENV_NAMES
from kernel_gateway.web.workspace_files import FileAttributes
from tests.functional.web.server import WebGateway, a_web_gateway


async def test_a_kernel_is_started_shown_and_ended(gateway: WebGateway) -> None:
    made = await gateway.rest("POST", "/api/kernels", body={"name": "lambda-python"})
    assert made.status == 201
    kernel_id = made.json["id"]
    assert made.headers["Location"] == f"/api/kernels/{kernel_id}"
    shown = await gateway.rest("GET", f"/api/kernels/{kernel_id}")
    assert shown.json["name"] == "lambda-python"
    assert shown.json["execution_state"] == "idle"
    assert shown.json["connections"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", shown.json["last_activity"])
    assert [k["id"] for k in (await gateway.rest("GET", "/api/kernels")).json] == [kernel_id]
    assert (await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")).status == 204
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).status == 404


async def test_the_body_may_be_empty_and_names_may_be_aliases(gateway: WebGateway) -> None:
    assert (await gateway.rest("POST", "/api/kernels")).json["name"] == "lambda-python"
    for name in ("python3", "python"):
        made = await gateway.rest("POST", "/api/kernels", body={"name": name})
        assert made.json["name"] == "lambda-python"


async def test_a_kernelspec_that_does_not_exist_is_named(gateway: WebGateway) -> None:
    answer = await gateway.rest("POST", "/api/kernels", body={"name": "julia-1.11"})
    assert answer.status == 404
    assert "julia-1.11" in answer.json["message"]


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"LAMBDA_KERNEL_WORKSPACE": ".."}, "LAMBDA_KERNEL_WORKSPACE"),
        ({"LAMBDA_KERNEL_WORKSPACE": ".hidden"}, "LAMBDA_KERNEL_WORKSPACE"),
        ({"LAMBDA_KERNEL_PROJECTS": "a,../b"}, "LAMBDA_KERNEL_PROJECTS"),
        ({"LAMBDA_KERNEL_RUN": "a/b"}, "LAMBDA_KERNEL_RUN"),
        ({"LAMBDA_KERNEL_SCOPE": "everybody"}, "LAMBDA_KERNEL_SCOPE"),
        ({"LAMBDA_KERNEL_WORKSPACE": 7}, "LAMBDA_KERNEL_WORKSPACE"),
        ("text", "env"),
        (["a"], "env"),
    ],
)
async def test_a_bad_choice_is_refused_with_its_name(
    gateway: WebGateway, env: object, named: str
) -> None:
    answer = await gateway.rest("POST", "/api/kernels", body={"env": env})
    assert answer.status == 400
    assert named in answer.json["message"]
    assert (await gateway.rest("GET", "/api/kernels")).json == []


@pytest.mark.parametrize("data", [b"{", b"[]", b'"x"', b"\xff\xfe", b'{"name": 7}'])
async def test_a_body_that_is_no_request_is_a_400(gateway: WebGateway, data: bytes) -> None:
    answer = await gateway.rest("POST", "/api/kernels", data=data)
    assert answer.status == 400
    assert answer.json["message"]


async def test_choices_are_taken_and_ignored_names_are_told(gateway: WebGateway) -> None:
    env = {
        "LAMBDA_KERNEL_WORKSPACE": "w1",
        "LAMBDA_KERNEL_PROJECTS": "a,b/c",
        "KERNEL_USERNAME": "somebody-else",
        "X\r\nEvil": "1",
    }
    made = await gateway.rest("POST", "/api/kernels", body={"env": env})
    assert made.status == 201
    assert made.json["lambda_kernel"]["workspace"] == "w1"
    assert made.json["lambda_kernel"]["projects"] == ["a", "b/c"]
    assert made.json["lambda_kernel"]["user"] == "u1"
    assert "KERNEL_USERNAME" in made.headers["Lambda-Kernel-Notice"]
    assert "KERNEL_USERNAME" in made.json["notice"]
    assert made.json["notice"].endswith("read are " + ", ".join(ENV_NAMES))
    assert "Evil" not in made.headers


async def test_an_id_names_a_kernel_that_is_there(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    for name in ("id", "kernel_id"):
        again = await gateway.rest("POST", "/api/kernels", body={name: kernel_id})
        assert (again.status, again.json["id"]) == (201, kernel_id)
    assert len((await gateway.rest("GET", "/api/kernels")).json) == 1


KERNEL = "{kernel}"
SESSION = {"path": "x.ipynb", "type": "notebook", "kernel": {"id": KERNEL}}
ROUTES: dict[str, tuple[str, str, Any]] = {
    "show": ("GET", f"/api/kernels/{KERNEL}", None),
    "end": ("DELETE", f"/api/kernels/{KERNEL}", None),
    "interrupt": ("POST", f"/api/kernels/{KERNEL}/interrupt", {}),
    "restart": ("POST", f"/api/kernels/{KERNEL}/restart", {}),
    "start": ("POST", "/api/kernels", {"id": KERNEL}),
    "start, in Jupyter's word": ("POST", "/api/kernels", {"kernel_id": KERNEL}),
    "list its variables": ("GET", f"/api/kernels/{KERNEL}/variables", None),
    "show a variable": ("GET", f"/api/kernels/{KERNEL}/variables?repr=x", None),
    "read an output of it": ("GET", f"/api/kernels/{KERNEL}/outputs/1", None),
    "fork": ("POST", "/api/kernels", {"env": {"LAMBDA_KERNEL_FROM": f"{KERNEL}@1"}}),
    "connect": ("GET", f"/api/kernels/{KERNEL}/channels", None),
    "make a session": ("POST", "/api/sessions", SESSION),
    "move a session": ("PATCH", "/api/sessions/{session}", {"kernel": {"id": KERNEL}}),
}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.mark.parametrize("name", ROUTES)
async def test_another_users_kernel_is_as_one_that_does_not_exist(
    gateway: WebGateway, name: str
) -> None:
    method, path, body = ROUTES[name]
    kernel_id = await gateway.start_kernel(token="u1")
    own = {"path": "own.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    made = await gateway.rest("POST", "/api/sessions", token="u10", body=own)
    seen = []
    for each in (kernel_id, str(uuid.UUID(int=1))):
        answer = await gateway.rest(
            method,
            path.replace(KERNEL, each).replace("{session}", made.json["id"]),
            token="u10",
            body=None if body is None else json.loads(json.dumps(body).replace(KERNEL, each)),
            headers=UPGRADE if name == "connect" else None,
        )
        headers = {k: v for k, v in answer.headers.items() if k not in {"Date", "Etag"}}
        seen.append((answer.status, answer.body.decode().replace(each, KERNEL), headers))
    assert seen[0] == seen[1]
    assert seen[0][0] == 404
    listed = (await gateway.rest("GET", "/api/kernels", token="u10")).json
    assert [kernel["id"] for kernel in listed] == [made.json["kernel"]["id"]]
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).status == 200


async def test_another_users_session_is_as_one_that_does_not_exist(gateway: WebGateway) -> None:
    body = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    session = (await gateway.rest("POST", "/api/sessions", body=body)).json["id"]
    for method in ("GET", "PATCH", "DELETE"):
        seen = []
        for each in (session, str(uuid.UUID(int=1))):
            theirs = await gateway.rest(method, f"/api/sessions/{each}", token="u10", body={})
            seen.append((theirs.status, theirs.body.decode().replace(each, "")))
        assert seen[0] == seen[1]
        assert seen[0][0] == 404


async def test_another_scopes_kernel_cannot_be_forked_nor_told_from_one_that_is_not_there(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel(token="u1-a1")
    for token in ("u1", "u1-a2", "u10", "root"):
        answers = [
            await gateway.rest(
                "POST",
                "/api/kernels",
                token=token,
                body={"env": {"LAMBDA_KERNEL_FROM": f"{source}@1"}},
            )
            for source in (kernel_id, str(uuid.UUID(int=1)))
        ]
        assert [answer.status for answer in answers] == [404, 404]
        assert answers[0].json["message"] == f"Kernel does not exist: {kernel_id}"
    assert len((await gateway.rest("GET", "/api/kernels", token="root")).json) == 1


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "offset=1e3", "limit=99999"])
async def test_pages_of_variables_are_numbers(gateway: WebGateway, query: str) -> None:
    path = f"/api/kernels/{await gateway.start_kernel()}/variables"
    assert (await gateway.rest("GET", path)).json == []
    assert (await gateway.rest("GET", f"{path}?{query}")).status == 400


async def test_a_user_reaches_its_agents_kernels_and_agents_only_their_own(
    gateway: WebGateway,
) -> None:
    of_agent = await gateway.start_kernel(token="u1-a1")
    of_user = await gateway.start_kernel(token="u1")
    listed = {
        token: {k["id"] for k in (await gateway.rest("GET", "/api/kernels", token=token)).json}
        for token in ("u1", "u1-a1", "u1-a2")
    }
    assert listed == {"u1": {of_agent, of_user}, "u1-a1": {of_agent}, "u1-a2": set()}
    assert (await gateway.rest("GET", f"/api/kernels/{of_user}", token="u1-a1")).status == 404
    async with gateway.channels(of_agent, token="u1"):
        pass


async def test_an_admin_lists_and_ends_but_does_not_execute(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel(token="u1")
    path = f"/api/kernels/{kernel_id}"
    listed = (await gateway.rest("GET", "/api/kernels", token="root")).json
    assert [k["id"] for k in listed] == [kernel_id]
    for action in ("interrupt", "restart"):
        answer = await gateway.rest("POST", f"{path}/{action}", token="root")
        assert answer.status == 403
    assert (await gateway.rest("GET", f"{path}/variables", token="root")).status == 403
    with pytest.raises(InvalidStatus) as refused:
        async with gateway.channels(kernel_id, token="root"):
            pass
    assert refused.value.response.status_code == 403
    assert (await gateway.rest("DELETE", path, token="root")).status == 204


async def test_restart_keeps_the_id_and_interrupt_of_an_idle_kernel_is_fine(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    restarted = await gateway.rest("POST", f"/api/kernels/{kernel_id}/restart")
    assert restarted.status == 200
    assert restarted.json["id"] == kernel_id
    assert (await gateway.rest("POST", f"/api/kernels/{kernel_id}/interrupt")).status == 204


async def test_only_kernels_that_nobody_used_for_long_are_culled(tmp_path: Path) -> None:
    config = Config({"LambdaKernelManager": {"cull_idle_timeout": 3600}})
    async with a_web_gateway(tmp_path, config) as gateway:
        manager: Any = gateway.server.kernel_manager
        old, connected = [await gateway.start_kernel() for _ in range(2)]
        async with gateway.channels(connected):
            gateway.clock.passed = timedelta(hours=2)
            new = await gateway.start_kernel()
            await manager.cull_kernels()
        left = {k["id"] for k in (await gateway.rest("GET", "/api/kernels")).json}
        assert old not in left
        assert left == {connected, new}


async def test_a_kept_output_is_sent_to_its_owner_alone(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel(token="u1-a1")
    _, key = gateway.registry.get(kernel_id).kept_output(7)
    gateway.files.files[key] = (
        "<b>é</b>\n".encode() * 50_000,
        FileAttributes(sha256=None, mtime_ns=0),
    )
    path = f"/api/kernels/{kernel_id}/outputs"
    sent = await gateway.rest("GET", f"{path}/7", token="u1-a1")
    assert (sent.status, sent.body) == (200, "<b>é</b>\n".encode() * 50_000)
    assert sent.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert sent.headers["X-Content-Type-Options"] == "nosniff"
    assert (await gateway.rest("GET", f"{path}/7", token="u1-a2")).status == 404
    assert (await gateway.rest("GET", f"{path}/7", token="root")).status == 403
    missing = await gateway.rest("GET", f"{path}/8", token="u1-a1")
    assert (missing.status, "no output of cell 8" in missing.json["message"]) == (404, True)
