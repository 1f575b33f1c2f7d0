"""boto3 clients; where an endpoint is given, nothing of the user's own AWS set-up applies."""

from __future__ import annotations

import functools
import os
from typing import Any

import boto3
import botocore.session
from botocore.config import Config


def client(service: str, *, config: Config, endpoint_url: str | None, **arguments: Any) -> Any:
    """Return a boto3 client.

    Args:
        service: such as ``s3``.
        config: botocore's.
        endpoint_url: a server of our own: neither ``~/.aws`` nor ``AWS_…`` variables nor a proxy
            may decide what is sent there. None is AWS, with boto3's usual chain.
        arguments: further ones of ``boto3.client``.
    """
    own = endpoint_url is not None
    if own:
        config = config.merge(Config(proxies={}))
    return _session(own).client(service, config=config, endpoint_url=endpoint_url, **arguments)


@functools.cache
def _session(own: bool) -> boto3.Session:
    variables: dict[str, Any] = {}
    if own:
        no_file = (None, None, os.devnull, None)
        variables = {"config_file": no_file, "credentials_file": no_file}
        variables |= dict.fromkeys(("profile", "ca_bundle"), (None, None, None, None))
    return boto3.Session(botocore_session=botocore.session.Session(session_vars=variables))
