"""What ``kernel-gateway kernels`` and ``kernel-gateway cells`` do: show kernels and their past."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.terminal import harmless
from kernel_gateway.web.rest_client import RestClient


def kernels(endpoint: Endpoint, *, as_json: bool) -> str:
    """Return the caller's kernels as text (raises ApiError)."""
    found = RestClient(endpoint).call("GET", "/api/kernels")
    if as_json:
        return json.dumps(found, indent=2)
    lines = [
        f"{each['id']}  {each['execution_state']:10} {each['last_activity'][:19]}  {_whose(each)}"
        for each in found
    ]
    return "\n".join(lines) or "there are no kernels"


def cells(endpoint: Endpoint, kernel_id: str, *, last_count: int, as_json: bool) -> str:
    """Return the newest cells of a kernel with what they said (raises ApiError)."""
    path = f"/api/kernels/{quote(kernel_id, safe='')}/cells?last={last_count}"
    found = RestClient(endpoint).call("GET", path)
    if as_json:
        return json.dumps(found, indent=2)
    return "\n\n".join(map(_shown, found)) or "this kernel has run no cell"


def _whose(model: Mapping[str, Any]) -> str:
    ours = model["lambda_kernel"]
    agent = f"/{ours['agent']}" if ours["agent"] else ""
    return f"{model['name']}  {ours['user']}{agent}  {ours['workspace']}"


def _shown(cell: Mapping[str, Any]) -> str:
    failure = f" ({cell['failure']})" if cell.get("failure") else ""
    lines = [
        f"[{cell['execution_count']}] {cell['status']}{failure}  {cell['started']}",
        *(f"    {line}" for line in str(cell["code"]).splitlines()),
        *(_text(output).rstrip("\n") for output in cell["outputs"]),
    ]
    if cell["status"] != "running" and not cell["outputs_complete"]:
        lines.append("(some of its output was not kept)")
    return harmless("\n".join(lines))


def _text(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    if output["output_type"] == "error":
        return "\n".join(output["traceback"]) or f"{output['ename']}: {output['evalue']}"
    data = output["data"]
    text = data.get("text/plain")
    return text if isinstance(text, str) else f"({', '.join(data)})"
