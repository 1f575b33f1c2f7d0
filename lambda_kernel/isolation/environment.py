"""Which variables of the function's environment may stay in it."""

from __future__ import annotations

from collections.abc import Mapping

SECRET_NAMES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_LAMBDA_RUNTIME_API",
)
"""Source: product.md 3. Listed for the probe; ``clean`` removes far more than these."""

_KEPT_AWS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REMOVED_PREFIXES = ("AWS_", "LKG_", "_AWS_", "_X_AMZN_", "LAMBDA_", "PYTHON", "LD_", "COVERAGE_")
_REMOVED_NAMES = ("_HANDLER", "_LAMBDA_TELEMETRY_LOG_FD", "HOME", "PWD", "OLDPWD", "SHLVL", "_")


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an image put into its environment, and nothing that a platform put there.

    No credential, endpoint or setting of ours, nothing that changes how Python or the dynamic
    loader start.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT_AWS or not (name in _REMOVED_NAMES or name.startswith(_REMOVED_PREFIXES))
    }


def secrets_left(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret names that are still in ``environment``."""
    return tuple(name for name in SECRET_NAMES if name in environment)
