"""A function's runtime for tests: speaks the Runtime API with http.client, stdlib only.

Takes the place of the bootstrap in the container. An event says what to do. The function
``ric`` runs AWS's own runtime client instead, with the handler that was staged in S3.
"""

import base64
import http.client
import io
import json
import os
import sys
import time
import traceback
import zipfile
from typing import Any

API = "/2018-06-01/runtime"


def main() -> None:
    name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    if name.endswith("-ric"):
        run_awslambdaric()
    elif name.endswith("-broken"):
        connection = connect()
        body = json.dumps({"errorType": "Test.Broken", "errorMessage": "cannot start"})
        connection.request("POST", f"{API}/init/error", body=body)
        connection.getresponse().read()
        sys.exit(1)
    else:
        print("ready for work")
        print(json.dumps({"message": "as JSON"}), flush=True)
        serve(connect())


def connect() -> http.client.HTTPConnection:
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
    return http.client.HTTPConnection(host, int(port))


def serve(connection: http.client.HTTPConnection) -> None:
    while True:
        connection.request("GET", f"{API}/invocation/next")
        answer = connection.getresponse()
        event = json.loads(answer.read())
        handle(connection, answer.headers["Lambda-Runtime-Aws-Request-Id"], event, answer.headers)


def handle(connection: Any, request_id: str, event: Any, headers: Any) -> None:
    do = event["do"]
    path = f"{API}/invocation/{request_id}"
    if do == "echo":
        body = json.dumps({"event": event, "headers": dict(headers)}).encode()
        post(connection, f"{path}/response", body)
    elif do == "run":
        names: dict[str, Any] = {}
        try:
            exec(event["code"], names)
        except Exception:  # noqa: BLE001  (the test is told)
            names["result"] = traceback.format_exc()
        post(connection, f"{path}/response", json.dumps(names.get("result")).encode())
    elif do == "fail":
        body = json.dumps({"errorType": "Test.Failure", "errorMessage": "as asked"}).encode()
        post(connection, f"{path}/error", body)
    elif do == "stream":
        stream(connection, f"{path}/response", event)
    elif do == "big":
        post(connection, f"{path}/response", b"x" * event["size_bytes"])
    elif do == "exit":
        os._exit(event["status"])
    elif do == "answer then leave the next event unread":
        post(connection, f"{path}/response", b"null")
        connection.request("GET", f"{API}/invocation/next")
        import select

        select.select([connection.sock], [], [])  # the event is there, and is not read
        os._exit(0)


def post(connection: Any, path: str, body: bytes) -> None:
    connection.request("POST", path, body=body)
    connection.getresponse().read()


def stream(connection: Any, path: str, event: Any) -> None:
    connection.putrequest("POST", path)
    connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.putheader("Trailer", "Lambda-Runtime-Function-Error-Type")
    connection.endheaders()
    send_chunk(connection, b"first")
    if event.get("until_released"):
        wait_for_release(event["until_released"])
    if event.get("die"):
        os._exit(7)
    block = b"y" * 65536
    for _ in range(event.get("blocks", 0)):
        send_chunk(connection, block)
    trailer = b""
    if event.get("error"):
        details = json.dumps({"errorType": "Test.Late", "errorMessage": "too late"}).encode()
        trailer = b"Lambda-Runtime-Function-Error-Type: Test.Late\r\n"
        trailer += b"Lambda-Runtime-Function-Error-Body: " + base64.b64encode(details) + b"\r\n"
    connection.send(b"0\r\n" + trailer + b"\r\n")
    connection.getresponse().read()


def send_chunk(connection: Any, chunk: bytes) -> None:
    connection.send(b"%x\r\n" % len(chunk) + chunk + b"\r\n")


def wait_for_release(key: str) -> None:
    import boto3
    from botocore.exceptions import ClientError

    client = boto3.client("s3")
    while True:
        try:
            client.get_object(Bucket="lkg-overflow", Key=key)
        except ClientError:
            time.sleep(0.05)
        else:
            return


def run_awslambdaric() -> None:
    import boto3

    bucket, key = os.environ["LKG_HANDLER_URI"].removeprefix("s3://").split("/", 1)
    archive = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    zipfile.ZipFile(io.BytesIO(archive)).extractall(os.environ["LAMBDA_TASK_ROOT"])
    arguments = [sys.executable, "-m", "awslambdaric", os.environ["_HANDLER"]]
    os.execve(sys.executable, arguments, os.environ)


main()
