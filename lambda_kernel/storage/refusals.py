"""What AWS's refusals are called, and what to do where two machines' clocks differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

ADMITTED_SKEW_S = 300
"""Lambda, STS and Secrets Manager refuse a signature that is older or younger; S3 at 900 s."""

_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_SIGNATURE = frozenset({"SignatureDoesNotMatch", "InvalidSignatureException"})
_WORDS = ("Signature expired", "Signature not yet current")


def refusal_text(code: str, message: str, date: str | None, now_s: float | None = None) -> str:
    """Return a refusal's code, and what is wrong with the clock where that is why.

    Args:
        code: such as ``RequestTimeTooSkewed``.
        message: AWS's.
        date: header Date of the answer, None where there was none.
        now_s: Unix time by this machine's clock when the answer came; None = now.

    Source: AWS Signature Version 4, "Troubleshooting"; S3, "Error responses".
    """
    if code not in _SKEWED and not (code in _SIGNATURE and message.startswith(_WORDS)):
        return code
    return (
        f"{code}: the clock of the machine that asked is wrong{_by(date, now_s)}; set it (NTP), "
        f"nothing else helps: AWS admits {ADMITTED_SKEW_S // 60} minutes"
    )


def refusal_of(response: Mapping[str, Any], code: str = "") -> str:
    """Return `refusal_text` of a botocore ClientError's ``response``.

    Args:
        response: of the error.
        code: of the refusal, where it stands elsewhere than usual.
    """
    told = response.get("Error") or {}
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    code = code or str(told.get("Code", ""))
    return refusal_text(code, str(told.get("Message", "")), headers.get("date"))


def _by(date: str | None, now_s: float | None) -> str:
    try:
        there_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return ""
    ahead_s = (time.time() if now_s is None else now_s) - there_s
    return f", {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'} by AWS's"
