"""The versions of environments with a Python of their own."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_gateway.environments.environment import Environment
from kernel_gateway.environments.python_version import versions_of
from kernel_gateway.messaging.message import InMessage
from kernel_gateway.messaging.replies import KernelView, reply_content


async def test_an_interpreter_tells_its_version_and_a_broken_one_is_left_out(
    tmp_path: Path,
) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 3.99.1\n")
    other.chmod(0o755)
    environments = [
        Environment(),
        Environment(id="same", python=sys.executable),
        Environment(id="other", python=str(other)),
        Environment(id="gone", python=str(tmp_path / "gone")),
    ]

    assert await versions_of(environments) == {"other": "3.99.1"}


def test_kernel_info_speaks_of_the_environments_python() -> None:
    message = InMessage(header={"msg_id": "1", "msg_type": "kernel_info_request"})

    info = reply_content(message, KernelView(python="3.99.1"))

    assert info["language_info"]["version"] == "3.99.1"
    assert "Python 3.99.1" in info["banner"]
    assert info["help_links"][0]["url"].endswith("/3.99")
