"""The body of ``POST /api/kernels/{id}/execute``, checked: nothing in it is guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from kernel_gateway.errors import BadRequest
from lambda_kernel.contract.frames import NestedTooDeeply, check_nesting

KEY_HEADER = "Idempotency-Key"
MAX_KEY_CHARACTERS = 255
MAX_TIMEOUT_S = 7 * 24 * 3600
_CONTENT: Mapping[str, tuple[type, str]] = {
    "code": (str, "text"),
    "silent": (bool, "true or false"),
    "store_history": (bool, "true or false"),
    "stop_on_error": (bool, "true or false"),
    "user_expressions": (dict, "an object"),
}
_OPTIONS: Mapping[str, tuple[type, str]] = {
    "interrupt_on_disconnect": (bool, "true or false"),
    "idempotency_key": (str, "text"),
}
NAMES = (*_CONTENT, *_OPTIONS, "timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteBody:
    """What a caller asks to be executed, and how.

    Attributes:
        content: of the execute_request.
        timeout_s: the cell is interrupted after so long; None = the environment's own limit.
        interrupt_on_disconnect: whether the cell ends with the connection.
        idempotency_key: of this request and its retries, None where it has none.
    """

    content: dict[str, Any]
    timeout_s: float | None
    interrupt_on_disconnect: bool
    idempotency_key: str | None

    @classmethod
    def read(cls, body: bytes, key_header: str | None) -> ExecuteBody:
        """Return what ``body`` says (raises BadRequest, which names the field).

        Args:
            body: JSON.
            key_header: value of the header Idempotency-Key, None where there is none.
        """
        data = _object(body)
        unknown = sorted(set(data) - set(NAMES))
        if unknown:
            raise BadRequest(
                f"{unknown[0][:64]!a}: is not known here; known are {', '.join(NAMES)}"
            )
        data = {name: value for name, value in data.items() if value is not None}
        if "code" not in data:
            raise BadRequest("code: is missing")
        for name, (kind, described) in {**_CONTENT, **_OPTIONS}.items():
            if name in data and type(data[name]) is not kind:
                raise BadRequest(f"{name}: must be {described}")
        for name, value in data.get("user_expressions", {}).items():
            if not isinstance(value, str):
                raise BadRequest(f"user_expressions[{name[:64]!a}]: must be text")
        return cls(
            content={name: data[name] for name in _CONTENT if name in data},
            timeout_s=_timeout_s(data.get("timeout_s")),
            interrupt_on_disconnect=data.get("interrupt_on_disconnect", False),
            idempotency_key=_key(data.get("idempotency_key"), key_header),
        )


def _object(body: bytes) -> dict[str, Any]:
    try:
        check_nesting(body)
        data = json.loads(
            body.decode(), object_pairs_hook=_pairs, parse_constant=_no_number, parse_float=_finite
        )
    except NestedTooDeeply as problem:
        raise BadRequest(f"the body is nested too deeply: {problem}") from None
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except (ValueError, RecursionError) as problem:
        raise BadRequest(f"the body is not JSON: {problem}") from None
    if not isinstance(data, dict):
        raise BadRequest('the body must be a JSON object such as {"code": "1 + 1"}')
    return data


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequest(f"{twice[:64]!a}: stands there more than once")
    return found


def _no_number(text: str) -> NoReturn:
    raise BadRequest(f"{text}: is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadRequest(f"{text[:32]}: is too large a number")
    return value


def _timeout_s(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in {int, float} or not 0 < value <= MAX_TIMEOUT_S:
        raise BadRequest(f"timeout_s: must be a number of seconds over 0, at most {MAX_TIMEOUT_S}")
    return float(value)


def _key(of_body: str | None, header: str | None) -> str | None:
    # The draft makes the header's value a quoted string; most clients send it bare.
    of_header = header.strip().removeprefix('"').removesuffix('"') if header is not None else None
    if of_body is not None and of_header is not None and of_body != of_header:
        raise BadRequest(f"idempotency_key: is another than that of the header {KEY_HEADER}")
    key = of_body if of_body is not None else of_header
    if key is not None and not (
        0 < len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable()
    ):
        raise BadRequest(
            f"idempotency_key: must be 1 to {MAX_KEY_CHARACTERS} printable ASCII characters, such "
            "as a UUID"
        )
    return key
