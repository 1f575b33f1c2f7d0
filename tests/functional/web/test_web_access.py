"""Who gets in, and what there is at all."""

from __future__ import annotations

import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from kernel_gateway.web import garbage_command
from tests.functional.web.server import WebGateway, execute_request

PROTECTED = [
    "/api/kernels",
    "/api/kernelspecs",
    "/api/sessions",
    "/api/status",
    "/api/me",
    "/api/workspaces/default/files/",
    "/kernelspecs/lambda-python/logo-64x64.png",
    "/metrics",
    "/api/garbage",
    "/nothing/here",
]


@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize("token", [None, "", "wrong", "u1"])
async def test_nothing_opens_without_a_right_token(
    gateway: WebGateway, path: str, token: str | None
) -> None:
    headers = {} if token is None else {"Authorization": f"token {token}x"}
    assert (await gateway.rest("GET", path, token=None, headers=headers)).status == 403
    assert (await gateway.rest("GET", f"{path}?token={token}x", token=None)).status == 403


@pytest.mark.parametrize("form", ["token u1", "Token u1", "Bearer u1", "bearer  u1"])
async def test_a_token_in_the_header_is_taken(gateway: WebGateway, form: str) -> None:
    answer = await gateway.rest("GET", "/api/kernels", token=None, headers={"Authorization": form})
    assert answer.status == 200


async def test_a_token_in_the_query_is_taken_for_rest_and_websocket(gateway: WebGateway) -> None:
    answer = await gateway.rest("GET", "/api/kernels?token=u1", token=None)
    assert answer.status == 200
    kernel_id = await gateway.start_kernel()
    url = f"{gateway.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels"
    async with connect(f"{url}?token=u1", compression=None) as socket:
        await socket.ping()
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{url}?token=wrong", compression=None):
            pass
    assert refused.value.response.status_code == 403


async def test_the_header_wins_over_the_query(gateway: WebGateway) -> None:
    answer = await gateway.rest("GET", "/api/me?token=u1", token="u10")
    assert answer.json["identity"]["identity"]["user"] == "u10"


async def test_identity_is_the_tokens_and_no_cookie_is_set(gateway: WebGateway) -> None:
    answer = await gateway.rest("GET", "/api/me", token="u1-a1")
    assert answer.json["identity"]["identity"] == {"user": "u1", "agent": "a1", "admin": False}
    assert "Set-Cookie" not in answer.headers


async def test_the_version_is_told_to_anybody(gateway: WebGateway) -> None:
    assert set((await gateway.rest("GET", "/api", token=None)).json) == {"version"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/contents",
        "/api/contents/etc/passwd",
        "/api/terminals",
        "/api/nbconvert",
        "/api/config/notebook",
        "/api/security/csp-report",
        "/api/shutdown",
        "/api/resolvePath?path=/etc/passwd",
        "/files/etc/passwd",
        "/static/style/style.css",
        "/static/../../../etc/passwd",
        "/favicon.ico",
        "/login",
        "/logout",
        "/tree",
        "/lab",
        "/view/x",
        "/nbconvert/html/x.ipynb",
        "/custom/custom.js",
        "/kernelspecs/lambda-python/../../../setup.cfg",
        "/kernelspecs/lambda-python/server.py",
        "/kernelspecs/lambda-python/%2e%2e/server.py",
        "/kernelspecs/nothing/logo-64x64.png",
    ],
)
async def test_no_service_is_there_that_is_not_needed(gateway: WebGateway, path: str) -> None:
    for method in ("GET", "POST", "PUT"):
        answer = await gateway.rest(method, path, token="root", data=b"")
        assert answer.status in {403, 404, 405}, (method, answer.body)
        assert b"root:" not in answer.body


async def test_the_url_itself_says_how_to_connect_and_nothing_else(gateway: WebGateway) -> None:
    await gateway.start_kernel()
    seen = [await gateway.rest("GET", "/", token=token) for token in (None, "wrong", "root")]
    seen.append(await gateway.rest("GET", "/?token=u1", token=None))
    assert {answer.status for answer in seen} == {200}
    (text,) = {answer.body.decode() for answer in seen}
    assert seen[0].headers["Content-Type"].startswith("text/plain")
    assert f"jupyter lab --gateway-url={gateway.url} --GatewayClient.auth_token=TOKEN" in text
    assert len(text.splitlines()) == 8
    for method in ("POST", "PUT"):
        assert (await gateway.rest(method, "/", data=b"")).status == 405


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wrong_token_is_said_to_be_that_and_another_host_is_not(
    gateway: WebGateway, method: str
) -> None:
    for path in ("/api/kernels", "/api/kernelspecs", "/api/me", "/nothing"):
        answer = await gateway.rest(method, path, token="wrong", data=b"{}")
        assert (answer.status, answer.json["message"]) == (403, "the token is missing or wrong")
    answer = await gateway.rest(method, "/api/kernels", headers={"Host": "evil.example"})
    assert answer.json["message"] == "Forbidden"


async def test_a_refused_request_is_one_line_without_its_token(
    gateway: WebGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kernel_id = await gateway.start_kernel()
    caplog.clear()
    await gateway.rest("GET", "/api/kernels")
    assert caplog.messages == []
    refused = [
        ("GET", "/api/kernels?token=secret", None),
        ("POST", "/api/kernels", "wrong"),
        ("GET", "/nothing", "u1"),
        ("GET", "/api/kernelspecs/none", "u1"),
        ("DELETE", f"/api/kernels/{kernel_id}", "u10"),
    ]
    for method, path, token in refused:
        await gateway.rest(method, path, token=token)
    with pytest.raises(InvalidStatus):
        async with gateway.channels(kernel_id, token="wrong"):
            pass
    assert caplog.messages == ["a request was refused"] * (len(refused) + 1)
    assert [vars(r)["status"] for r in caplog.records] == [403, 403, 404, 404, 404, 403]
    assert "secret" not in caplog.text + str([vars(r) for r in caplog.records])


async def test_another_origin_is_refused_unless_configured(gateway: WebGateway) -> None:
    foreign = {"Origin": "https://evil.example"}
    answer = await gateway.rest("GET", "/api/kernels", headers=foreign)
    assert answer.status == 404
    assert "Access-Control-Allow-Origin" not in answer.headers
    made = await gateway.rest("POST", "/api/kernels", headers=foreign, body={})
    assert made.status == 404
    kernel_id = await gateway.start_kernel()
    with pytest.raises(InvalidStatus) as refused:
        async with gateway.channels(kernel_id, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403
    async with gateway.channels(kernel_id, origin=gateway.url):
        pass


async def test_another_host_name_is_refused(gateway: WebGateway) -> None:
    answer = await gateway.rest("GET", "/api/kernels", headers={"Host": "evil.example"})
    assert answer.status == 403


async def test_kernelspecs_have_our_logos_and_the_aliases(gateway: WebGateway) -> None:
    found = (await gateway.rest("GET", "/api/kernelspecs")).json
    assert found["default"] == "lambda-python"
    assert set(found["kernelspecs"]) == {"lambda-python", "lambda-small", "python3", "python"}
    spec = found["kernelspecs"]["lambda-python"]
    assert spec["spec"]["display_name"] == "Python 3 (Lambda)"
    assert spec["spec"]["argv"]
    logos = {"logo-64x64": b"\x89PNG", "logo-svg": b"<svg"}
    for name, begin in logos.items():
        logo = await gateway.rest("GET", spec["resources"][name])
        assert logo.status == 200
        assert logo.body.startswith(begin)
    one = await gateway.rest("GET", "/api/kernelspecs/python3")
    assert one.json["spec"]["language"] == "python"
    assert (await gateway.rest("GET", "/api/kernelspecs/nothing")).status == 404


async def test_status_counts_only_what_the_caller_may_see(gateway: WebGateway) -> None:
    await gateway.start_kernel(token="u1")
    counts = {
        token: (await gateway.rest("GET", "/api/status", token=token)).json["kernels"]
        for token in ("u1", "u10", "root")
    }
    assert counts == {"u1": 1, "u10": 0, "root": 1}


async def test_metrics_are_for_admins(gateway: WebGateway) -> None:
    assert (await gateway.rest("GET", "/metrics")).status == 403
    assert (
        b"kernel_currently_running_total"
        in (await gateway.rest("GET", "/metrics", token="root")).body
    )


async def test_garbage_is_collected_for_admins(gateway: WebGateway) -> None:
    for method in ("GET", "POST"):
        assert (await gateway.rest(method, "/api/garbage")).status == 403
        answer = await gateway.rest(method, "/api/garbage", token="root")
        report = json.loads(answer.body)
        assert report.pop("size_bytes") == 0
        assert report.keys() >= {"commits", "chunks", "outputs", "left", "journals"}
        assert not any(report.values())
        report["size_bytes"] = 0
        text = garbage_command.shown(report, dry_run=method == "GET")
        assert text.startswith("0 commits, 0 chunks, 0 kept outputs and 0 journals")


async def test_events_are_of_ones_own_kernels(gateway: WebGateway) -> None:
    url = f"{gateway.url.replace('http', 'ws', 1)}/api/events/subscribe"
    async with (
        connect(f"{url}?token=u1", compression=None) as mine,
        connect(f"{url}?token=u10", compression=None) as other,
        connect(f"{url}?token=root", compression=None) as admin,
    ):
        first = await gateway.start_kernel(token="u1")
        second = await gateway.start_kernel(token="u10")
        await gateway.rest("DELETE", f"/api/kernels/{first}", token="u1")
        assert first in str(await mine.recv())
        assert second in str(await other.recv())
        ended = str(await mine.recv())
        assert first in ended
        assert "shutdown" in ended
        told = [str(await admin.recv()) for _ in range(3)]
        assert sum(second in text for text in told) == 1


async def test_sessions_are_ones_own(gateway: WebGateway) -> None:
    body = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    made = await gateway.rest("POST", "/api/sessions", body=body)
    assert made.status == 201
    session, kernel_id = made.json["id"], made.json["kernel"]["id"]
    again = await gateway.rest("POST", "/api/sessions", body=body)
    assert again.json["id"] == session
    assert [s["id"] for s in (await gateway.rest("GET", "/api/sessions")).json] == [session]
    assert (await gateway.rest("GET", "/api/sessions", token="u10")).json == []
    for method in ("GET", "PATCH", "DELETE"):
        theirs = await gateway.rest(method, f"/api/sessions/{session}", token="u10", body={})
        assert theirs.status == 404
    stolen = {"path": "b.ipynb", "type": "notebook", "kernel": {"id": kernel_id}}
    assert (await gateway.rest("POST", "/api/sessions", token="u10", body=stolen)).status == 404
    own = await gateway.rest("POST", "/api/sessions", token="u10", body=body)
    assert own.json["id"] != session
    assert own.json["kernel"]["id"] != kernel_id
    patched = await gateway.rest(
        "PATCH", f"/api/sessions/{own.json['id']}", token="u10", body={"kernel": {"id": kernel_id}}
    )
    assert patched.status == 404
    renamed = await gateway.rest("PATCH", f"/api/sessions/{session}", body={"path": "c.ipynb"})
    assert renamed.json["path"] == "c.ipynb"
    assert (await gateway.rest("DELETE", f"/api/sessions/{session}")).status == 204
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).status == 404


@pytest.mark.parametrize("body", [{}, {"path": "x"}, {"path": 7, "type": "notebook"}, []])
async def test_a_session_without_path_or_type_is_a_400(gateway: WebGateway, body: object) -> None:
    assert (await gateway.rest("POST", "/api/sessions", body=body)).status == 400


async def test_an_execute_of_a_stranger_never_reaches_a_kernel(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        await socket.send(json.dumps(execute_request("mine")))
        await socket.recv()
    with pytest.raises(InvalidStatus):
        async with gateway.channels(kernel_id, token="u1-a2") as socket:
            await socket.send("{}")


async def test_a_method_that_is_not_there_is_refused_with_those_that_are(
    gateway: WebGateway,
) -> None:
    answer = await gateway.rest("PATCH", "/api/kernels")

    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, POST, OPTIONS"


async def test_the_number_of_kernels_is_that_of_the_moment(gateway: WebGateway) -> None:
    async def counted() -> float:
        text = (await gateway.rest("GET", "/metrics", token="root")).body.decode()
        (line,) = [
            line for line in text.splitlines()
            if line.startswith('kernel_currently_running_total{type="lambda-python"}')
        ]  # fmt: skip
        return float(line.rpartition(" ")[2])

    ids = [await gateway.start_kernel() for _ in range(3)]
    assert await counted() == 3
    await gateway.rest("DELETE", f"/api/kernels/{ids[0]}")
    assert await counted() == 2
    # As a cell ends its own kernel.
    await gateway.registry.shutdown(ids[1])
    assert await counted() == 1
