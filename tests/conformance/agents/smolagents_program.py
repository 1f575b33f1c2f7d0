"""smolagents' websocket functions on a gateway: ``… HOST PORT TOKEN``; prints JSON."""

import json
import sys

from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import (
    _create_kernel_http,
    _websocket_run_code_raise_errors,
)
from smolagents.utils import AgentError
from websocket import create_connection

host, port, token = sys.argv[1:]
logger = AgentLogger(level=LogLevel.OFF)
kernel_id = _create_kernel_http(f"http://{host}:{port}/api/kernels?token={token}", logger)
url = f"ws://{host}:{port}/api/kernels/{kernel_id}/channels?token={token}"


def run(code: str) -> tuple[object, str]:
    socket = create_connection(url)
    try:
        output = _websocket_run_code_raise_errors(code, socket, logger)
    finally:
        socket.close()
    return output.output, output.logs


said = [run("x = 20\nprint('hello')"), run("x + 1")]
try:
    run("1 / 0")
except AgentError as problem:
    said.append(("AgentError", str(problem)))
print(json.dumps(said))
