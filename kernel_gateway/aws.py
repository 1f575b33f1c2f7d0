"""boto3 clients and what else AWS is reached with.

Where an endpoint is given, nothing of the user's own AWS set-up applies.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.utils import get_environ_proxies

from kernel_gateway.errors import ConfigError


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


def credentials(
    *, own: bool, access_key_id: str | None, secret_access_key: str | None
) -> Credentials:
    """Return what to sign with, which renews itself where it has to.

    Args:
        own: for a server of our own.
        access_key_id: None = boto3's usual chain.
        secret_access_key: belongs to it.

    Raises:
        ConfigError: there is nothing.
    """
    if access_key_id is not None:
        return Credentials(access_key_id, secret_access_key)
    found = _session(own).get_credentials()
    if found is None:
        raise ConfigError(
            "there are no AWS credentials: give the gateway a role, or set AWS_PROFILE or "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return found


def ca_bundle(*, own: bool) -> str | None:
    """Return the path of certificates to trust; None = botocore's."""
    found: str | None = _session(own)._session.get_config_variable("ca_bundle")
    return found


def proxy_url(url: str) -> str | None:
    """Return the proxy through which AWS's ``url`` is asked, None = straight."""
    found: str | None = get_environ_proxies(url).get(url.partition(":")[0])
    return found


@functools.cache
def _session(own: bool) -> boto3.Session:
    variables: dict[str, Any] = {}
    if own:
        no_file = (None, None, os.devnull, None)
        variables = {"config_file": no_file, "credentials_file": no_file}
        variables |= dict.fromkeys(("profile", "ca_bundle"), (None, None, None, None))
    return boto3.Session(botocore_session=botocore.session.Session(session_vars=variables))
