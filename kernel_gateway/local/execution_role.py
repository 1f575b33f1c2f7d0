"""The execution role's credentials, as Lambda obtains them for each container."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from kernel_gateway.errors import StartError
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.session_policy import MAX_DURATION_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRole:
    """Assumes the execution role.

    Attributes:
        client: an STS client with the Lambda service's own key.
        stack: names the role.
    """

    client: Any
    stack: Stack

    async def environment(self, function_name: str) -> Mapping[str, str]:
        """Return fresh credentials as the variables that AWS sets (raises StartError)."""
        arguments = {
            "RoleArn": self.stack.role_arn(self.stack.execution_role),
            "RoleSessionName": function_name[:64],
            "DurationSeconds": MAX_DURATION_S,
        }
        try:
            answer = await asyncio.to_thread(lambda: self.client.assume_role(**arguments))
        except (ClientError, BotoCoreError) as error:
            raise StartError(f"the execution role cannot be assumed: {error}") from error
        credentials = answer["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
            "AWS_SESSION_TOKEN": credentials["SessionToken"],
        }
