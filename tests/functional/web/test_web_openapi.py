"""The OpenAPI document is valid, complete, and says what the gateway answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from openapi_spec_validator import validate
from tornado.web import RequestHandler

from kernel_gateway.web.handlers import default_handlers
from tests.functional.web.server import WebGateway

METHODS = ("get", "head", "post", "put", "patch", "delete")
ALTERNATIVES = re.compile(r"\(\?P<\w+>(\w+(?:\|\w+)+)\)")
PARAMETER = re.compile(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)")


@pytest.fixture
async def document(gateway: WebGateway) -> dict[str, Any]:
    answer = await gateway.rest("GET", "/api/spec.yaml", token=None)
    assert answer.headers["Content-Type"] == "application/yaml"
    found: dict[str, Any] = yaml.safe_load(answer.body)
    return found


def paths_of(pattern: str) -> Iterator[str]:
    """Yield the paths of a route as the document writes them."""
    choice = ALTERNATIVES.search(pattern)
    for word in choice[1].split("|") if choice else ("",):
        path = pattern.replace(choice[0], word) if choice else pattern
        yield PARAMETER.sub(r"{\1}", path).removesuffix("/?")


def routes() -> set[tuple[str, str]]:
    return {
        (path, method)
        for pattern, handler in default_handlers
        for path in paths_of(pattern)
        for method in METHODS
        if getattr(handler, method) is not getattr(RequestHandler, method)
    }


def check(document: dict[str, Any], path: str, method: str, status: int, body: Any) -> None:
    """Check a JSON answer against the schema that the document has for it."""
    response = document["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    jsonschema.validate(
        body,
        {**schema, "components": document["components"]},
        cls=jsonschema.Draft202012Validator,
        format_checker=jsonschema.FormatChecker(),
    )


async def test_it_is_a_valid_document(document: dict[str, Any]) -> None:
    validate(document)


async def test_it_has_every_route_and_invents_none(document: dict[str, Any]) -> None:
    documented = {
        (path, method)
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    }
    assert documented == routes()


async def test_what_is_answered_has_the_documented_form(
    gateway: WebGateway, document: dict[str, Any]
) -> None:
    kernel_id = await gateway.start_kernel()
    session = {"path": "x.ipynb", "type": "notebook", "kernel": {"id": kernel_id}}
    made = await gateway.rest("POST", "/api/sessions", body=session)
    session_path, files = "/api/sessions/{session_id}", "/api/workspaces/{workspace}/files/{path}"
    one, place = f"/api/sessions/{made.json['id']}", "/api/workspaces/default/files/"
    kernel, run = "/api/kernels/{kernel_id}", {"code": "hello"}
    requests: list[tuple[str, str, str, dict[str, Any]]] = [
        ("/api", "get", "/api", {}),
        ("/api/me", "get", "/api/me", {}),
        ("/api/status", "get", "/api/status", {}),
        ("/api/kernelspecs", "get", "/api/kernelspecs", {}),
        ("/api/kernelspecs/{kernel_name}", "get", "/api/kernelspecs/lambda-small", {}),
        ("/api/kernelspecs/{kernel_name}", "get", "/api/kernelspecs/none", {}),
        ("/api/kernels", "get", "/api/kernels", {}),
        ("/api/kernels", "post", "/api/kernels", {"body": {"env": {"NAME": "x"}}}),
        ("/api/kernels", "post", "/api/kernels", {"body": {"name": 7}}),
        (kernel, "get", f"/api/kernels/{kernel_id}", {}),
        (kernel, "get", "/api/kernels/a-b-c-d-e", {}),
        (f"{kernel}/execute", "post", f"/api/kernels/{kernel_id}/execute", {"body": run}),
        (f"{kernel}/execute", "post", f"/api/kernels/{kernel_id}/execute", {"body": {}}),
        (f"{kernel}/restart", "post", f"/api/kernels/{kernel_id}/restart", {}),
        (f"{kernel}/trail/head", "get", f"/api/kernels/{kernel_id}/trail/head", {}),
        (f"{kernel}/trail/head", "get", "/api/kernels/a-b-c-d-e/trail/head", {}),
        (f"{kernel}/trail/blobs/{{number}}", "get", f"/api/kernels/{kernel_id}/trail/blobs/1", {}),
        (f"{kernel}/variables", "get", f"/api/kernels/{kernel_id}/variables", {}),
        (f"{kernel}/variables", "get", f"/api/kernels/{kernel_id}/variables?limit=x", {}),
        ("/api/sessions", "get", "/api/sessions", {}),
        ("/api/sessions", "post", "/api/sessions", {"body": session}),
        (session_path, "get", one, {}),
        (session_path, "patch", one, {"body": {"name": "y"}}),
        (files, "put", f"{place}a/b.txt", {"data": b"x"}),
        (files, "get", f"{place}?recursive=true", {}),
        (files, "get", place, {}),
        (files, "put", f"{place}a/b.txt/c", {"data": b"x"}),
        (files, "delete", place, {}),
        ("/api/trails", "get", "/api/trails", {}),
        ("/api/trails", "get", "/api/trails?status=x", {}),
        ("/api/trails/index", "post", "/api/trails/index", {"token": "root"}),
        ("/api/trails/index", "post", "/api/trails/index", {}),
        ("/api/garbage", "get", "/api/garbage", {"token": "root"}),
        ("/api/garbage", "get", "/api/garbage", {}),
    ]
    for path, method, url, arguments in requests:
        answer = await gateway.rest(method.upper(), url, **arguments)
        check(document, path, method, answer.status, answer.json)
