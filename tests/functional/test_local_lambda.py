"""The local Lambda service with real containers, as boto3 sees it."""

from __future__ import annotations

import base64
import json
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from kernel_gateway.config import Deployment
from tests.functional.conftest import aws_client, wait_until

DEFAULT = "lkg-env-default"


def invoke(client: Any, event: Any, function: str = DEFAULT, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.invoke(
        FunctionName=function, Payload=json.dumps(event).encode(), **more
    )
    answer["Body"] = answer["Payload"].read()
    return answer


def invoke_patiently(client: Any, event: Any, function: str = DEFAULT) -> dict[str, Any]:
    """Invoke as soon as a container is free: tests before this one may still hold both."""

    def attempt() -> dict[str, Any] | None:
        try:
            return invoke(client, event, function)
        except client.exceptions.TooManyRequestsException:
            return None

    answer = wait_until(attempt)
    assert answer is not None
    return answer


def stream(client: Any, event: Any, function: str = DEFAULT) -> Any:
    answer = client.invoke_with_response_stream(
        FunctionName=function, Payload=json.dumps(event).encode()
    )
    return iter(answer["EventStream"])


def payload_of(events: Any) -> tuple[bytes, dict[str, Any]]:
    body, complete = b"", dict[str, Any]()
    for event in events:
        body += event.get("PayloadChunk", {}).get("Payload", b"")
        complete = event.get("InvokeComplete", complete)
    return body, complete


def run_inside(client: Any, code: str) -> Any:
    return json.loads(invoke_patiently(client, {"do": "run", "code": code})["Body"])


def test_an_invoke_answers_with_what_the_runtime_returned(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"do": "echo", "x": "ü"})

    assert answer["StatusCode"] == 200
    assert "FunctionError" not in answer
    assert json.loads(answer["Body"])["event"] == {"do": "echo", "x": "ü"}


def test_the_runtime_gets_lambdas_headers(lambda_client: Any) -> None:
    answer = invoke(lambda_client, {"do": "echo"}, TenantId="scope-1")

    headers = {k.lower(): v for k, v in json.loads(answer["Body"])["headers"].items()}
    assert headers["lambda-runtime-aws-request-id"] == answer["ResponseMetadata"]["RequestId"]
    assert headers["lambda-runtime-aws-tenant-id"] == "scope-1"
    assert headers["lambda-runtime-invoked-function-arn"].endswith(f":function:{DEFAULT}")
    assert int(headers["lambda-runtime-deadline-ms"]) > 0


def test_consecutive_invokes_share_one_warm_container(lambda_client: Any) -> None:
    code = "import os; result = os.environ['AWS_LAMBDA_LOG_STREAM_NAME']"

    assert len({run_inside(lambda_client, code) for _ in range(20)}) == 1


def test_a_failed_function_is_reported_as_lambda_does(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"do": "fail"})

    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Body"])["errorType"] == "Test.Failure"


def test_a_streamed_response_arrives_whole(lambda_client: Any) -> None:
    body, complete = payload_of(stream(lambda_client, {"do": "stream", "blocks": 320}))

    assert body == b"first" + b"y" * 65536 * 320
    assert complete == {}


def test_a_chunk_arrives_while_the_function_still_runs(lambda_client: Any, s3_client: Any) -> None:
    key = f"requests/{uuid.uuid4().hex}"
    events = stream(lambda_client, {"do": "stream", "until_released": key})

    first = next(events)
    s3_client.put_object(Bucket="lkg-overflow", Key=key, Body=b"")

    assert first["PayloadChunk"]["Payload"] == b"first"
    assert payload_of(events) == (b"", {})


def test_an_error_after_the_first_bytes_ends_the_stream_with_its_type(lambda_client: Any) -> None:
    body, complete = payload_of(stream(lambda_client, {"do": "stream", "error": True}))

    assert body == b"first"
    assert complete["ErrorCode"] == "Test.Late"
    assert json.loads(complete["ErrorDetails"])["errorMessage"] == "too late"


def test_an_error_before_any_byte_ends_the_stream_with_its_type(lambda_client: Any) -> None:
    body, complete = payload_of(stream(lambda_client, {"do": "fail"}))

    assert (body, complete["ErrorCode"]) == (b"", "Test.Failure")


@pytest.mark.parametrize("event", [{"do": "exit", "status": 3}, {"do": "stream", "die": True}])
def test_a_container_that_dies_ends_the_stream(lambda_client: Any, event: dict[str, Any]) -> None:
    _, complete = payload_of(stream(lambda_client, event))

    assert complete["ErrorCode"] in {"Runtime.ExitError", "Runtime.TruncatedResponse"}
    assert invoke_patiently(lambda_client, {"do": "echo"})["StatusCode"] == 200


def test_a_container_that_dies_is_named_with_its_exit_status(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"do": "exit", "status": 3})

    error = json.loads(answer["Body"])
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("exit status 3")


def test_a_timeout_kills_the_container(lambda_client: Any) -> None:
    event = {"do": "run", "code": "import time; time.sleep(60)"}

    answer = invoke_patiently(lambda_client, event, "lkg-env-hasty")

    error = json.loads(answer["Body"])
    assert error["errorType"] == "Sandbox.Timedout"
    assert "timed out after 1.00 seconds" in error["errorMessage"]


def test_a_timeout_ends_a_stream_that_has_begun(lambda_client: Any) -> None:
    event = {"do": "stream", "until_released": "requests/never"}

    body, complete = payload_of(stream(lambda_client, event, "lkg-env-hasty"))

    assert (body, complete["ErrorCode"]) == (b"first", "Sandbox.Timedout")


def test_an_event_that_no_runtime_has_read_goes_to_another_container(lambda_client: Any) -> None:
    invoke_patiently(lambda_client, {"do": "answer then leave the next event unread"})

    answer = invoke_patiently(lambda_client, {"do": "echo", "x": 1})

    assert json.loads(answer["Body"])["event"] == {"do": "echo", "x": 1}


def test_a_runtime_that_cannot_start_says_why(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"do": "echo"}, "lkg-env-broken")

    assert json.loads(answer["Body"])["errorType"] == "Test.Broken"


def test_when_every_container_is_busy_the_next_invoke_is_throttled(
    lambda_client: Any, s3_client: Any
) -> None:
    invoke_patiently(lambda_client, {"do": "echo"})
    key = f"requests/{uuid.uuid4().hex}"
    event = {"do": "stream", "until_released": key}
    running = [stream(lambda_client, event), stream(lambda_client, event)]
    for events in running:
        next(events)

    with pytest.raises(ClientError) as refused:
        invoke(lambda_client, {"do": "echo"})
    s3_client.put_object(Bucket="lkg-overflow", Key=key, Body=b"")

    assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert [payload_of(events)[1] for events in running] == [{}, {}]


def test_nothing_is_lost_when_many_callers_wait_for_few_containers(lambda_client: Any) -> None:
    def call(number: int) -> int:
        answer = invoke_patiently(lambda_client, {"do": "echo", "number": number})
        result: int = json.loads(answer["Body"])["event"]["number"]
        return result

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(call, range(60))) == list(range(60))


def test_a_function_goes_on_when_its_caller_leaves(lambda_client: Any, state_dir: Path) -> None:
    event = json.dumps({"do": "stream", "blocks": 2000}).encode()
    answer = lambda_client.invoke_with_response_stream(FunctionName=DEFAULT, Payload=event)
    next(iter(answer["EventStream"]))

    answer["EventStream"].close()

    assert wait_until(lambda: all_reported(state_dir, DEFAULT))


def all_reported(state_dir: Path, function: str) -> bool:
    """Whether every invoke that was started has been reported or ended with its container."""
    for path in (state_dir / "logs" / "aws" / "lambda" / function).glob("*.jsonl"):
        types = [json.loads(line).get("type") for line in path.read_text().splitlines()]
        ended = "platform.exit" in types
        if types.count("platform.start") != types.count("platform.report") and not ended:
            return False
    return True


def test_a_request_over_six_megabytes_is_refused(lambda_client: Any) -> None:
    with pytest.raises(ClientError) as refused:
        lambda_client.invoke(FunctionName=DEFAULT, Payload=b" " * (6 * 1024 * 1024 + 1))

    assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


def test_a_buffered_response_over_six_megabytes_is_an_error(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"do": "big", "size_bytes": 7 * 1024 * 1024})

    assert json.loads(answer["Body"])["errorType"] == "Function.ResponseSizeTooLarge"


def test_an_unknown_function_is_not_found(lambda_client: Any) -> None:
    with pytest.raises(lambda_client.exceptions.ResourceNotFoundException):
        lambda_client.invoke(FunctionName="lkg-env-none", Payload=b"{}")


def test_a_function_is_found_by_its_arn(lambda_client: Any) -> None:
    arn = f"arn:aws:lambda:us-east-1:000000000000:function:{DEFAULT}"

    assert invoke_patiently(lambda_client, {"do": "echo"}, arn)["StatusCode"] == 200


@pytest.mark.parametrize("wrong", ["aws_access_key_id", "aws_secret_access_key"])
def test_a_wrong_key_can_neither_invoke_nor_look(deployment: Deployment, wrong: str) -> None:
    arguments = {**deployment.client_arguments("lambda"), wrong: "AKIAWRONGWRONGWRONG1"}
    client = aws_client("lambda", **arguments)

    with pytest.raises(ClientError) as cannot_invoke:
        client.invoke(FunctionName=DEFAULT, Payload=b"{}")
    with pytest.raises(ClientError) as cannot_look:
        client.get_function_configuration(FunctionName=DEFAULT)

    for refused in (cannot_invoke, cannot_look):
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    client.close()


def test_a_function_says_what_its_containers_run(lambda_client: Any) -> None:
    for name in (DEFAULT, f"arn:aws:lambda:us-east-1:000000000000:function:{DEFAULT}"):
        found = lambda_client.get_function_configuration(FunctionName=name, Qualifier="$LATEST")
        assert found["FunctionName"] == DEFAULT
        assert found["FunctionArn"].endswith(f":function:{DEFAULT}")
        assert len(base64.b64decode(found["CodeSha256"])) == 32
        assert (found["Version"], found["PackageType"]) == ("$LATEST", "Zip")
    with pytest.raises(lambda_client.exceptions.ResourceNotFoundException):
        lambda_client.get_function_configuration(FunctionName="lkg-env-missing")


def test_awss_own_runtime_client_runs_against_the_service(lambda_client: Any) -> None:
    answer = invoke_patiently(lambda_client, {"a": [1]}, "lkg-env-ric")
    failed = invoke_patiently(lambda_client, "fail", "lkg-env-ric")

    result = json.loads(answer["Body"])
    assert result["event"] == {"a": [1]}
    assert result["left"]
    assert result["arn"].endswith("lkg-env-ric")
    assert failed["FunctionError"] == "Unhandled"
    assert json.loads(failed["Body"])["errorType"] == "RuntimeError"


def test_what_a_container_prints_is_logged_as_json_lines(
    lambda_client: Any, state_dir: Path
) -> None:
    container = run_inside(
        lambda_client, "import os; result = os.environ['AWS_LAMBDA_LOG_STREAM_NAME']"
    )

    path = state_dir / "logs" / "aws" / "lambda" / DEFAULT / f"{container}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["message"] for line in lines if line.get("stream") == "stdout"] == [
        "ready for work"
    ]
    assert {"message": "as JSON"} in lines
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_connection_cannot_ask_for_the_next_invoke(lambda_client: Any) -> None:
    code = """
import http.client, os
host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
connection = http.client.HTTPConnection(host, int(port))
connection.request("GET", "/2018-06-01/runtime/invocation/next")
result = connection.getresponse().status
"""
    assert run_inside(lambda_client, code) == 403


def test_another_connection_cannot_answer_whatever_it_knows(lambda_client: Any) -> None:
    code = """
import http.client, os, sys
host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
request_id = sys._getframe(1).f_locals["request_id"]
result = []
for action in ("response", "error"):
    connection = http.client.HTTPConnection(host, int(port))
    path = f"/2018-06-01/runtime/invocation/{request_id}/{action}"
    connection.request("POST", path, b'{"forged": true}')
    result.append(connection.getresponse().status)
"""
    assert run_inside(lambda_client, code) == [403, 403]


def test_the_containers_aws_address_offers_no_lambda(lambda_client: Any) -> None:
    code = f"""
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 9002)
connection.request("POST", "/2015-03-31/functions/{DEFAULT}/invocations", body="{{}}")
result = connection.getresponse().status
"""
    assert run_inside(lambda_client, code) == 404


def test_a_container_has_no_network_but_its_own_loopback(
    lambda_client: Any, deployment: Deployment
) -> None:
    assert deployment.lambda_endpoint is not None
    host_port = int(deployment.lambda_endpoint.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", host_port)):
        pass
    code = f"""
import socket
result = [name for _, name in socket.if_nameindex()]
for address in (("127.0.0.1", {host_port}), ("192.0.2.1", 80), ("8.8.8.8", 53)):
    try:
        socket.create_connection(address, timeout=2)
        result.append(address)
    except OSError:
        pass
"""
    assert run_inside(lambda_client, code) == ["lo"]


def test_a_stopped_endpoint_is_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = aws_client(
        "lambda",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    with pytest.raises(EndpointConnectionError):
        client.invoke(FunctionName=DEFAULT, Payload=b"{}")
    client.close()
