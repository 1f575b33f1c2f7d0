"""SeaweedFS's configuration as values: who there is, which roles, which policies, which flags."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import decode
from lambda_kernel.contract.session_policy import MAX_DURATION_S

GATEWAY_IDENTITY = "gateway"
LAMBDA_IDENTITY = "lambda-service"
SOCKET_NAME = "s3.sock"
TOKEN_ISSUER = "lambda-kernel-gateway"  # noqa: S105  (a name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """An access key."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new one."""
        return cls(
            access_key_id=f"AKIA{secrets.token_hex(8).upper()}",
            secret_access_key=secrets.token_urlsafe(30),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageKeys:
    """The secrets of one state directory.

    Attributes:
        gateway: the gateway's key, with full S3 rights.
        lambda_service: the key by which the Lambda service assumes the execution role.
        session_key: signs session tokens (base64).
        jwt_keys: SeaweedFS's own four, which close its inner ports.
    """

    gateway: KeyPair
    lambda_service: KeyPair
    session_key: str = field(repr=False)
    jwt_keys: tuple[str, ...] = field(repr=False)

    @classmethod
    def generate(cls) -> StorageKeys:
        """Return new secrets."""
        return cls(
            gateway=KeyPair.generate(),
            lambda_service=KeyPair.generate(),
            session_key=base64.b64encode(secrets.token_bytes(32)).decode(),
            jwt_keys=tuple(secrets.token_hex(32) for _ in _JWT_NAMES),
        )

    @classmethod
    def load_or_create(cls, path: Path) -> StorageKeys:
        """Return the secrets kept in ``path``, made and written (0600) where there are none."""
        if path.exists():
            return decode(cls, json.loads(path.read_text()), "keys")
        keys = cls.generate()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(keys), file)
        draft.replace(path)
        return keys


_JWT_NAMES = (
    "WEED_JWT_SIGNING_KEY",
    "WEED_JWT_SIGNING_READ_KEY",
    "WEED_JWT_FILER_SIGNING_KEY",
    "WEED_JWT_FILER_SIGNING_READ_KEY",
)


def environment(keys: StorageKeys) -> dict[str, str]:
    """Return SeaweedFS's environment."""
    return {
        **dict(zip(_JWT_NAMES, keys.jwt_keys, strict=True)),
        "GOMEMLIMIT": "384MiB",
        "HOME": "/tmp",  # noqa: S108  (its own, private one)
    }


def identities(keys: StorageKeys) -> dict[str, Any]:
    """Return ``-s3.config``: the gateway's full rights, and an identity with none."""
    return {
        "identities": [
            _identity(GATEWAY_IDENTITY, keys.gateway, ["Admin"]),
            _identity(LAMBDA_IDENTITY, keys.lambda_service, []),
        ]
    }


def iam(stack: Stack, keys: StorageKeys, session_s: int = MAX_DURATION_S) -> dict[str, Any]:
    """Return ``-s3.iam.config``: roles, trust and policies (storage.md, "Roles").

    Args:
        stack: names of everything.
        keys: signs the sessions.
        session_s: no session lives longer, whatever it asks for.
    """
    account = stack.account_id
    service = f"arn:aws:iam::{account}:user/{LAMBDA_IDENTITY}"
    execution_session = f"arn:aws:sts::{account}:assumed-role/{stack.execution_role}/*"
    return {
        "sts": {
            "tokenDuration": f"{session_s}s",
            "maxSessionLength": f"{session_s}s",
            "issuer": TOKEN_ISSUER,
            "accountId": account,
            "signingKey": keys.session_key,
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "roles": [
            _role(stack, stack.execution_role, service, "execution"),
            _role(stack, stack.scoped_role, execution_session, "scoped"),
        ],
        "policies": [
            {"name": name, "document": document} for name, document in role_policies(stack).items()
        ],
    }


def role_policies(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the roles' policies by the names that session tokens carry."""
    return {"execution": execution_policy(stack), "scoped": scoped_policy(stack)}


def execution_policy(stack: Stack) -> dict[str, Any]:
    """Return what the function's own role may do: read its handler, become the scoped role."""
    overflow = f"arn:aws:s3:::{stack.overflow}"
    return _document(
        _allow(["s3:GetObject"], [f"{overflow}/handler/*", f"{overflow}/requests/*"]),
        _allow(["sts:AssumeRole"], [stack.role_arn(stack.scoped_role)]),
    )


def scoped_policy(stack: Stack) -> dict[str, Any]:
    """Return what an invocation may do at most, before its session policy narrows it."""
    workspaces, state = f"arn:aws:s3:::{stack.workspaces}", f"arn:aws:s3:::{stack.state}"
    secret = f"arn:aws:secretsmanager:*:{stack.account_id}:secret:{stack.connector_secret('*')}"
    return _document(
        _allow(
            [
                "s3:GetObject",
                "s3:GetObjectVersion",
                "s3:PutObject",
                "s3:PutObjectTagging",
                "s3:DeleteObject",
                "s3:AbortMultipartUpload",
            ],
            [f"{workspaces}/users/*", f"{state}/users/*"],
        ),
        *(
            [_allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{workspaces}/{governed}*"])]
            if (governed := stack.governed_read_prefix) is not None
            else []
        ),
        _allow(["s3:ListBucket"], [workspaces, state]),
        _allow(["s3:GetObject", "s3:DeleteObject"], [f"arn:aws:s3:::{stack.overflow}/control/*"]),
        _allow(["secretsmanager:GetSecretValue"], [secret]),
    )


def weed_arguments() -> list[str]:
    """Return the command line after the program, as paths inside its sandbox."""
    return [
        "mini",
        "-dir=/data",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-disableHttp",
        "-webdav=false",
        "-admin.ui=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.config=/etc/s3.json",
        "-s3.iam.config=/etc/iam.json",
        f"-s3.localSocket=/sockets/{SOCKET_NAME}",
    ]


def sandbox_argv(
    *,
    bwrap: str,
    weed: str,
    data: Path,
    sockets: Path,
    as_root: bool,
    info_fd: int,
    file_fds: Mapping[str, int],
) -> list[str]:
    """Return the command line of SeaweedFS in a network namespace of its own.

    Its filer, master and gRPC ports need no credentials; there they reach nobody. Only the S3
    unix socket is shared with the host.

    Args:
        bwrap: bubblewrap.
        weed: SeaweedFS, a static program.
        data: its data folder.
        sockets: where its S3 socket appears.
        as_root: whether the host user is root, where no user namespace is made.
        info_fd: where bubblewrap reports the first process's pid.
        file_fds: path in the sandbox to a descriptor that holds its content.
    """
    argv = [bwrap, *(["--unshare-user"] if not as_root else [])]
    argv += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--cap-drop", "ALL", "--as-pid-1", "--die-with-parent"]
    argv += ["--new-session", "--ro-bind", weed, "/weed", "--proc", "/proc", "--dev", "/dev"]
    argv += ["--tmpfs", "/tmp"]  # noqa: S108  (its own, private one)
    for path, fd in file_fds.items():
        argv += ["--perms", "0400", "--ro-bind-data", str(fd), path]
    argv += ["--bind", str(data), "/data", "--bind", str(sockets), "/sockets", "--chdir", "/data"]
    return [*argv, "--info-fd", str(info_fd), "--", "/weed", *weed_arguments()]


def _identity(name: str, key: KeyPair, actions: list[str]) -> dict[str, Any]:
    credentials = {"accessKey": key.access_key_id, "secretKey": key.secret_access_key}
    return {"name": name, "credentials": [credentials], "actions": actions}


def _role(stack: Stack, name: str, trusted: str, policy: str) -> dict[str, Any]:
    # SeaweedFS wants the principal as a condition; AWS's own form names it as `Principal`.
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": ["sts:AssumeRole"],
        "Condition": {"StringLike": {"aws:PrincipalArn": trusted}},
    }
    return {
        "roleName": name,
        "roleArn": stack.role_arn(name),
        "maxSessionDuration": MAX_DURATION_S,
        "trustPolicy": _document(trust),
        "attachedPolicies": [policy],
    }


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}
