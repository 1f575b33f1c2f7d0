"""Cells by plain REST and by the Python client, on the real thing."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import nbformat
import pytest
import requests
import yaml

from kernel_gateway.client import AsyncGateway, CellFailed, Kernel
from kernel_gateway.client import Gateway as ClientGateway
from tests.integration.driver import Gateway, a_gateway, free_port
from tests.integration.storage_tap import Trap, tapped_storage

RICH = """
import sys
from IPython.display import display, clear_output, HTML
print('gone'); clear_output(wait=True)
shown = display(HTML('<b>1</b>'), display_id='d')
print('out'); print('err', file=sys.stderr); print('more')
shown.update(HTML('<b>2</b>'))
x = 6 * 7
x
"""


@pytest.fixture
def client(gateway: Gateway) -> Iterator[ClientGateway]:
    with ClientGateway.local(gateway.state_dir) as there:
        yield there


def test_the_url_that_is_left_for_clients_has_no_slash_at_its_end(gateway: Gateway) -> None:
    facts = json.loads((gateway.state_dir / "run" / "gateway.json").read_text())
    assert requests.get(f"{facts['url']}/api", timeout=10).status_code == 200


@pytest.fixture
def kernel(client: ClientGateway) -> Iterator[Kernel]:
    with client.kernel(workspace=f"w{uuid.uuid4().hex[:12]}") as kernel:
        yield kernel


def test_a_rich_cell_gives_a_valid_notebook_cell(kernel: Kernel) -> None:
    result = kernel.execute(RICH, user_expressions={"double": "x * 2"}).raise_for_error()
    cell = nbformat.v4.new_code_cell(RICH, execution_count=result.execution_count)
    cell.outputs = [nbformat.from_dict(output) for output in result.outputs]
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    assert result.outputs[0]["data"]["text/html"] == "<b>2</b>"
    assert result.stdout == "out\nmore\n"
    assert result.stderr == "err\n"
    assert result.data("text/plain") == "42"
    assert result.user_expressions["double"]["data"]["text/plain"] == "84"
    assert result.committed
    assert {"run", "persist"} <= result.lambda_kernel["timings_ms"].keys()


def test_errors_and_input_come_back_as_errors(kernel: Kernel) -> None:
    result = kernel.execute("print('before')\n1 / 0")
    assert result.error is not None
    assert (result.error.ename, result.stdout) == ("ZeroDivisionError", "before\n")
    assert result.outputs[-1]["output_type"] == "error"
    with pytest.raises(CellFailed, match="StdinNotImplementedError"):
        kernel.execute("input()").raise_for_error()


def test_events_come_while_the_cell_runs(client: ClientGateway, kernel: Kernel) -> None:
    events = kernel.stream(
        "import time\nprint('first', flush=True)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: print('second')"
    )
    first = next(event for event in events if event.msg_type == "stream")
    assert first.text == "first\n"
    assert client.attach(kernel.kernel_id).info.execution_state == "busy"
    kernel.interrupt()
    rest = list(events)
    assert "".join(event.text for event in rest) == "second\n"
    assert rest[-1].content["status"] == "ok"


def test_a_caller_that_goes_away_leaves_the_cell_running_and_a_retry_finds_it(
    gateway: Gateway, kernel: Kernel
) -> None:
    code = "import time; runs = globals().get('runs', 0) + 1; time.sleep(2); runs"
    key = uuid.uuid4().hex
    path = f"/api/kernels/{kernel.kernel_id}/execute"
    with pytest.raises(requests.ReadTimeout):
        requests.post(
            gateway.url + path,
            json={"code": code, "idempotency_key": key},
            headers={"Authorization": f"token {gateway.token}"},
            timeout=1,
        )
    again = kernel.execute(code, idempotency_key=key)
    assert (again.text, again.replayed) == ("1", True)
    assert kernel.execute(code, idempotency_key=key).outputs == again.outputs
    assert kernel.execute("runs").text == "1"


async def test_the_cell_ends_with_its_caller_where_that_was_asked_for(gateway: Gateway) -> None:
    async with AsyncGateway.local(gateway.state_dir) as there, there.kernel() as kernel:
        code = "import time\nstate = 'began'\nprint('began', flush=True)\ntime.sleep(60)"
        events = kernel.stream(code, interrupt_on_disconnect=True, stop_on_error=False)
        async with aclosing(events):
            async for event in events:
                if event.text == "began\n":
                    break
        result = await kernel.execute("state")
        assert result.text == "'began'"


async def test_a_caller_that_goes_away_takes_its_own_cell_with_it_and_no_other(
    gateway: Gateway,
) -> None:
    async with AsyncGateway.local(gateway.state_dir) as there, there.kernel() as kernel:
        events = kernel.stream("import time\nprint('a', flush=True)\ntime.sleep(2)\nended = True")
        async with aclosing(events):
            async for event in events:
                if event.text == "a\n":
                    break
        async with (
            httpx.AsyncClient() as http,
            http.stream(
                "POST",
                f"{gateway.url}/api/kernels/{kernel.kernel_id}/execute",
                json={"code": "waited = True", "interrupt_on_disconnect": True},
                headers={
                    "Authorization": f"token {gateway.token}",
                    "Accept": "text/event-stream",
                },
            ) as response,
        ):
            # The kernel has it, behind the cell that runs.
            assert response.status_code == 200
        result = await kernel.execute("ended, 'waited' in globals()")
        assert result.text == "(True, False)"


def test_a_time_limit_interrupts_the_cell(kernel: Kernel) -> None:
    # A limit that ends before a cold container is there is a cell that did not begin.
    kernel.execute("import time").raise_for_error()
    result = kernel.execute("x = 1\ntime.sleep(60)", timeout_s=5)
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"
    assert kernel.execute("x").text == "1"


def test_files_and_variables_are_the_kernels(kernel: Kernel) -> None:
    kernel.upload("data/in.csv", b"a,b\n1,2\n")
    text = "text = open('data/in.csv').read(); open('out.txt', 'w').write(text.upper())"
    kernel.execute(text).raise_for_error()
    assert kernel.download("out.txt") == b"A,B\n1,2\n"
    assert {each.path for each in kernel.files()} == {"data/in.csv", "out.txt"}
    (variable,) = [each for each in kernel.variables() if each.name == "text"]
    assert (variable.type, variable.carried) == ("str", True)


def test_large_output_comes_whole_and_is_cut_where_the_kernel_cuts(kernel: Kernel) -> None:
    result = kernel.execute("print('x' * 3_000_000)")
    assert len(result.stdout) == 3_000_001


@pytest.mark.parametrize("moment", ["running", "committed"])
def test_a_cell_runs_once_though_the_gateway_is_killed_and_the_client_asks_again(
    tmp_path: Path, moment: str
) -> None:
    state = tmp_path / "state"
    options = ("--port", str(free_port()), "--token", "t")
    code = "runs = globals().get('runs', 0) + 1; print('ran')"
    if moment == "running":
        code += "; open('began', 'w').close(); import time; time.sleep(600)"
    asked: Future[list[Any]]
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        with a_gateway(state, *options) as first, tapped_storage(first) as tap:
            client = stack.enter_context(ClientGateway(first.url, "t"))
            kernel = client.start_kernel()
            kernel.execute("runs = 0", idempotency_key="before").raise_for_error()
            if moment == "committed":
                tap.begin(Trap("PUT commit", 0, "after", first.process.kill))
                asked = pool.submit(
                    lambda: [kernel.execute(code, idempotency_key="in flight").raise_for_error()]
                )
            else:
                events = kernel.stream(code, idempotency_key="in flight")
                assert "ran" in next(e.text for e in events if e.msg_type == "stream")
                asked = pool.submit(lambda: list(events))
                first.process.kill()
            first.process.wait(60)
        stack.enter_context(a_gateway(state, *options))
        # The client finds it by itself.
        if moment == "committed":
            (gave,) = asked.result(60)
            assert (gave.status, gave.replayed, gave.committed) == ("ok", True, True)
            assert "some of its output may be missing" in gave.stderr
        else:
            assert asked.result(60)[-1].content["ename"] == "CellLost"
            lost = kernel.execute(code, idempotency_key="in flight")
            assert lost.error is not None
            assert lost.error.ename == "CellLost"
        again = kernel.execute("runs = 0", idempotency_key="before")
        assert (again.status, again.replayed, again.execution_count) == ("ok", True, 1)
        assert kernel.execute("runs").text == ("1" if moment == "committed" else "0")


def test_answers_are_as_the_openapi_document_says(gateway: Gateway, kernel: Kernel) -> None:
    document = yaml.safe_load(gateway.rest("GET", "/api/spec.yaml").text)
    path = f"/api/kernels/{kernel.kernel_id}"

    def check(name: str, body: object) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.validate(body, schema, cls=jsonschema.Draft202012Validator)

    for code in (RICH, "1 / 0"):
        check("Executed", gateway.rest("POST", f"{path}/execute", json={"code": code}).json())
    check("Kernel", gateway.rest("GET", path).json())
    for variable in gateway.rest("GET", f"{path}/variables").json():
        check("Variable", variable)
    check("Variable", gateway.rest("GET", f"{path}/variables?repr=x").json())
    headers = {"Accept": "text/event-stream"}
    events = gateway.rest("POST", f"{path}/execute", json={"code": RICH}, headers=headers).text
    for line in events.splitlines():
        if line.startswith("data: "):
            check("Message", json.loads(line.removeprefix("data: ")))


def test_the_examples_of_the_readme_work(gateway: Gateway, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (example,) = re.findall(r"```python\n(from kernel_gateway\.client .*?)```", text, re.DOTALL)
    (commands,) = re.findall(r"```sh\nurl=.*?\n(.*?)```", text, re.DOTALL)
    (cut_off,) = re.findall(r"```sh\n(ask\(\) .*?)```", text, re.DOTALL)
    (tmp_path / "lambda-kernel-gateway").symlink_to(gateway.state_dir)
    facts = {"url": gateway.url, "token": gateway.token, "XDG_DATA_HOME": str(tmp_path)}
    run = functools.partial(
        subprocess.run, env=os.environ | facts, capture_output=True, text=True, timeout=120
    )
    printed = run([sys.executable, "-c", example])
    assert printed.stdout.splitlines()[0] == "42 ['in.txt']", printed.stderr
    assert "stream 2\n" in printed.stdout
    answered, events = run(["bash", "-euc", f"{commands}\necho =\n{cut_off}"]).stdout.split("\n=\n")
    assert json.loads(answered.partition("id: 0")[0])["outputs"][0]["data"]["text/plain"] == "42"
    assert "event: execute_reply" in answered
    said = ["status", "execute_input", "stream", "execute_reply"]
    assert events.split() == [word for name in said for word in ("event:", name)]
