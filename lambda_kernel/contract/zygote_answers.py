"""What a zygote says to the serving process, each a datagram; see ``contract.cell_protocol``."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lambda_kernel.contract.schema import InvalidField, decode, encode, json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The zygote takes requests.

    Attributes:
        pid: its own.
        preloaded: modules that are imported already; optional ones follow while it is idle.
    """

    pid: int
    preloaded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A request has its child."""

    forked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A child stands by for the next request."""

    prepared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request has no child: it was malformed, or the fork failed."""

    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A child was reaped.

    Attributes:
        exited: its pid.
        status: as ``os.waitpid`` gave it.
    """

    exited: int
    status: int


ZygoteAnswer = Ready | Forked | Prepared | Refused | Exited

_ANSWERS: dict[str, type[ZygoteAnswer]] = {
    "pid": Ready,
    "forked": Forked,
    "prepared": Prepared,
    "refused": Refused,
    "exited": Exited,
}


def encode_answer(answer: ZygoteAnswer) -> bytes:
    """Return the datagram of a zygote's answer."""
    return json.dumps(encode(answer)).encode("ascii")


def decode_answer(datagram: bytes) -> ZygoteAnswer:
    """Return the zygote's answer in ``datagram``.

    Raises:
        InvalidField: it is none.
    """
    data = json_of(datagram, "zygote")
    for name, cls in _ANSWERS.items():
        if isinstance(data, dict) and name in data:
            return decode(cls, data, "zygote")
    raise InvalidField("zygote", "is not an answer")
