"""boto3: service and region; never credentials."""

from __future__ import annotations

import importlib
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried

_FOUND = (
    "env",
    "iam-role",
    "container-role",
    "shared-credentials-file",
    "config-file",
    "assume-role",
    "assume-role-with-web-identity",
    "custom-process",
    "sso",
)
_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def reduce_client(client: Any) -> Any:
    """Carry what it was made of."""
    _refuse_given(client._request_signer._credentials)
    return make_client, _parts(client)


def reduce_resource(resource: Any) -> Any:
    """Carry what it was made of, identifiers included (a bucket, an object)."""
    client = resource.meta.client
    _refuse_given(client._request_signer._credentials)
    identifiers = {name: getattr(resource, name) for name in resource.meta.identifiers}
    kind = type(resource).__name__.rpartition(".")[2]
    return make_resource, (*_parts(client), kind, identifiers)


def reduce_session(session: Any) -> Any:
    """Carry region and profile."""
    # Those it has not looked for yet are found anew in any case.
    _refuse_given(session._session._credentials)
    profile = session._session.get_config_variable("profile")
    return make_session, (session.region_name, profile)


def make_client(
    service: str, region: str | None, endpoint: str | None, options: dict[str, Any]
) -> Any:
    """Return a client that finds its credentials anew."""
    boto3 = importlib.import_module("boto3")
    config = importlib.import_module("botocore.config").Config(**options)
    return boto3.client(service, region_name=region, endpoint_url=endpoint, config=config)


def make_resource(
    service: str,
    region: str | None,
    endpoint: str | None,
    options: dict[str, Any],
    kind: str,
    identifiers: dict[str, str],
) -> Any:
    """Return a resource that finds its credentials anew."""
    boto3 = importlib.import_module("boto3")
    config = importlib.import_module("botocore.config").Config(**options)
    resource = boto3.resource(service, region_name=region, endpoint_url=endpoint, config=config)
    return getattr(resource, kind)(*identifiers.values()) if identifiers else resource


def make_session(region: str | None, profile: str | None) -> Any:
    """Return a session that finds its credentials anew."""
    return importlib.import_module("boto3").Session(region_name=region, profile_name=profile)


def _parts(client: Any) -> tuple[str, str | None, str | None, dict[str, Any]]:
    meta = client.meta
    endpoint = meta.endpoint_url
    host = endpoint.partition("//")[2].partition("/")[0].partition(":")[0]
    own_endpoint = None if host.endswith(_OF_AWS) else endpoint
    options = dict(getattr(meta.config, "_user_provided_options", {}))
    return meta.service_model.service_name, meta.region_name, own_endpoint, options


def _refuse_given(credentials: Any) -> None:
    method = getattr(credentials, "method", None)
    if credentials is not None and method not in _FOUND:
        raise NotCarried(
            "it holds credentials that were given to it, which are never stored",
            "make it again in the cell that uses it",
        )
