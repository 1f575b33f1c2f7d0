"""Every route with another's kernel: nothing of it, and no word about whether it is there."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlencode

import pytest

from lambda_kernel.contract import keys
from tests.functional.web.server import WebGateway
from tests.functional.web.test_web_openapi import routes
from tests.functional.web.test_web_trail_search import ran

NOBODYS = "99999999-9999-4999-8999-999999999999"
SECRET = "the secret source of a1"
BODIES: dict[str, dict[str, Any]] = {
    "execute": {"code": "theirs"},
    "content-removals": {"reason": "mine now"},
    "/api/replays": {"kernel_id": "{kernel_id}"},
}
PATHS = sorted(
    (path, method) for path, method in routes() if "{kernel_id}" in path or path == "/api/replays"
)
ADMINS = "/trail/content-removals"


async def asked(
    gateway: WebGateway, path: str, method: str, kernel_id: str, token: str
) -> tuple[int, bytes]:
    body = next((body for end, body in BODIES.items() if path.endswith(end)), None)
    if body is not None:
        body = {name: value.format(kernel_id=kernel_id) for name, value in body.items()}
    filled = path.format(kernel_id=kernel_id, seq=1, number=2)
    answer = await gateway.rest(method.upper(), filled, token=token, body=body)
    return answer.status, answer.body.replace(kernel_id.encode(), b"ID")


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize(("path", "method"), PATHS)
async def test_a_strangers_answer_is_that_for_a_kernel_that_never_was(
    gateway: WebGateway, path: str, method: str, has_ended: bool
) -> None:
    kernel_id = await ran(gateway, SECRET, "u1-a1")
    if has_ended:
        await gateway.rest("DELETE", f"/api/kernels/{kernel_id}", token="u1-a1")

    for token in ("u10", "u1-a2"):
        status, body = await asked(gateway, path, method, kernel_id, token)

        assert status == (403 if path.endswith(ADMINS) else 404)
        assert (status, body) == await asked(gateway, path, method, NOBODYS, token)
        assert SECRET.encode() not in body


async def test_a_digest_of_anothers_content_is_answered_as_one_that_nobody_has(
    gateway: WebGateway,
) -> None:
    kernel_id = await ran(gateway, SECRET, "u1-a1")
    await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/head", token="u1-a1")
    commits = [
        hashlib.sha256(body).hexdigest()
        for (_, key), body in gateway.function.store.objects.items()
        if kernel_id in key and not key.startswith(keys.AUDIT_PREFIX)
    ]
    digests = [hashlib.sha256(SECRET.encode()).hexdigest(), *commits]

    async def answer(token: str, digest: str) -> Any:
        query = urlencode({"contains_digest": digest})
        return (await gateway.rest("GET", f"/api/trails?{query}", token=token)).json

    hits = [(await answer("u1-a1", digest))["cells"] for digest in digests]
    assert sum(map(bool, hits)) >= 2
    for token in ("u10", "u1-a2"):
        nothing = await answer(token, "0" * 64)
        assert [await answer(token, digest) for digest in digests] == [nothing] * len(digests)


async def test_a_stored_output_is_not_had_by_its_digest_through_ones_own_kernel(
    gateway: WebGateway,
) -> None:
    theirs = await ran(gateway, "z" * 400_000, "u1-a1")
    mine = await ran(gateway, "y" * 400_000, "u10")
    for kernel_id, token in ((theirs, "u1-a1"), (mine, "u10")):
        await gateway.rest("GET", f"/api/kernels/{kernel_id}/trail/head", token=token)
    prefix = keys.audit_blob_key(theirs, "")
    digests = [
        key.removeprefix(prefix)
        for _, key in gateway.function.store.objects
        if key.startswith(prefix)
    ]
    assert digests

    for digest in digests:
        path = f"/api/kernels/{{}}/trail/blobs/2?digest={digest}"
        assert (await gateway.rest("GET", path.format(mine), token="u10")).status in {200, 404}
        assert b"zzzz" not in (await gateway.rest("GET", path.format(mine), token="u10")).body
        assert (await gateway.rest("GET", path.format(theirs), token="u10")).status == 404
