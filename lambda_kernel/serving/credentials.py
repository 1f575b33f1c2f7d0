"""Credentials: the execution role's, and one narrowed session per invocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialResolver, ReadOnlyCredentials
from botocore.credentials import Credentials as BotoCredentials
from botocore.exceptions import BotoCoreError, ClientError

from lambda_kernel.serving.errors import CredentialsExpired, StorageUnavailable
from lambda_kernel.serving.objects import ERRORS
from lambda_kernel.storage.refusals import refusal_of
from lambda_kernel.storage.s3_requests import S3Requests

CONNECTIONS = 32

_EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidAccessKeyId"}
)
"""The last one is SeaweedFS's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """AWS credentials; never logged.

    Attributes:
        expires: when; ISO 8601; None where they do not, or it is not known.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires: str | None = None


class RoleAssumer(Protocol):
    """STS, as far as it is needed."""

    def assume(self, session_name: str, policy: str, duration_s: int) -> Credentials:
        """Return credentials of the scoped role, narrowed to ``policy``.

        Raises:
            StorageUnavailable: STS did not answer or refused.
        """


class SwappableCredentials(BotoCredentials):  # type: ignore[misc]
    """What the one S3 client signs with; a new client would cost 8 to 100 ms per cell."""

    def __init__(self) -> None:
        super().__init__("", "")
        self._current = ReadOnlyCredentials("", "", None)

    def swap(self, credentials: Credentials | None) -> None:
        """Sign with ``credentials`` from now on; None = with nothing that is valid."""
        if credentials is None:
            self._current = ReadOnlyCredentials("", "", None)
            return
        self._current = ReadOnlyCredentials(
            credentials.access_key_id, credentials.secret_access_key, credentials.session_token
        )

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the current credentials, as botocore asks for before each request."""
        return self._current


class StsRoleAssumer:
    """RoleAssumer on STS."""

    def __init__(self, client: Any, role_arn: str) -> None:
        self._client = client
        self._role_arn = role_arn

    def assume(self, session_name: str, policy: str, duration_s: int) -> Credentials:
        """Return credentials of the scoped role (raises StorageUnavailable)."""
        try:
            answer = self._client.assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=session_name,
                Policy=policy,
                DurationSeconds=duration_s,
            )["Credentials"]
        except ClientError as error:
            # SeaweedFS answers some requests to STS in S3's form, which has no "Error" around it.
            answered = error.response.get("Error") or error.response
            code = str(answered.get("Code", ""))
            if code in _EXPIRED:
                raise CredentialsExpired(
                    f"this container's own credentials have run out ({code}): send the cell again"
                ) from error
            why = refusal_of(error.response, code)
            raise StorageUnavailable(f"STS refused the session of this cell: {why}") from error
        except BotoCoreError as error:
            raise StorageUnavailable(f"STS did not answer: {error}") from error
        return Credentials(
            access_key_id=answer["AccessKeyId"],
            secret_access_key=answer["SecretAccessKey"],
            session_token=answer["SessionToken"],
            expires=answer["Expiration"].isoformat(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsClients:
    """The clients of one container.

    Attributes:
        s3: signs with ``swappable``; for what is rare.
        requests: the same S3, for what is frequent.
        sts: signs with the execution role.
        secrets: Secrets Manager; signs with ``swappable``.
        swappable: the credentials of ``s3`` and ``secrets``.
    """

    s3: Any
    requests: S3Requests
    sts: Any
    secrets: Any
    swappable: SwappableCredentials


def execution_role(platform: Mapping[str, str]) -> Credentials:
    """Return the credentials that Lambda put into the function's environment.

    Raises:
        KeyError: there are none.
    """
    return Credentials(
        access_key_id=platform["AWS_ACCESS_KEY_ID"],
        secret_access_key=platform["AWS_SECRET_ACCESS_KEY"],
        session_token=platform.get("AWS_SESSION_TOKEN"),
    )


def open_clients(platform: Mapping[str, str], count: Callable[..., None]) -> AwsClients:
    """Return the container's clients.

    Args:
        platform: the function's environment: credentials, region, endpoints.
        count: called once for each request that goes out.
    """
    swappable = SwappableCredentials()
    session = botocore.session.Session()
    session.register_component("credential_provider", CredentialResolver([_Provider(swappable)]))
    region = platform.get("AWS_REGION") or platform.get("AWS_DEFAULT_REGION") or "us-east-1"
    boto = boto3.Session(botocore_session=session, region_name=region)
    endpoint = platform.get("AWS_ENDPOINT_URL_S3")
    shared: dict[str, Any] = {
        "connect_timeout": 5,
        "read_timeout": 60,
        "retries": {"mode": "standard", "total_max_attempts": 3},
    }
    s3 = boto.client(
        "s3",
        endpoint_url=endpoint,
        config=Config(
            signature_version="s3v4",
            # "virtual", not left open: else botocore signs addresses in us-east-1's domain.
            s3={"addressing_style": "path" if endpoint else "virtual"},
            max_pool_connections=CONNECTIONS,
            # Digests are ours; without this every PUT is also CRC-32ed and framed.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **shared,
        ),
    )
    secrets = boto.client(
        "secretsmanager",
        endpoint_url=platform.get("AWS_ENDPOINT_URL_SECRETS_MANAGER"),
        config=Config(**shared),
    )
    role = execution_role(platform)
    sts = boto3.Session(
        aws_access_key_id=role.access_key_id,
        aws_secret_access_key=role.secret_access_key,
        aws_session_token=role.session_token,
        region_name=region,
        botocore_session=botocore.session.Session(),
    ).client("sts", endpoint_url=platform.get("AWS_ENDPOINT_URL_STS"), config=Config(**shared))
    for client in (s3, sts, secrets):
        client.meta.events.register("before-send", count)
    requests = S3Requests(
        s3,
        swappable,
        errors=ERRORS,
        count=count,
        connections=CONNECTIONS,
        ca_bundle=platform.get("AWS_CA_BUNDLE"),
    )
    return AwsClients(s3=s3, requests=requests, sts=sts, secrets=secrets, swappable=swappable)


class _Provider:
    METHOD = "invocation"
    CANONICAL_NAME = None

    def __init__(self, credentials: SwappableCredentials) -> None:
        self._credentials = credentials

    def load(self) -> SwappableCredentials:
        return self._credentials
