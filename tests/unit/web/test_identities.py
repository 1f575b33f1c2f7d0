"""Tokens and the identities behind them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.web.identities import IdentityTable, check_token, read_identities, token_digest

DIGEST = hashlib.sha256(b"secret").hexdigest()


def test_a_token_is_whose_the_table_says() -> None:
    table = IdentityTable(
        read_identities(
            [
                {"user": "u1", "token_sha256": DIGEST},
                {"user": "u1", "agent": "a1", "token_sha256": token_digest("other")},
                {"user": "root", "admin": True, "token_sha256": token_digest("third")},
            ]
        )
    )
    assert table.identify("secret") == Identity(user="u1")
    assert table.identify("other") == Identity(user="u1", agent="a1")
    assert table.identify("third") == Identity(user="root", admin=True)
    for wrong in ("", "Secret", "secret ", DIGEST, "ü", "\udc80"):
        assert table.identify(wrong) is None


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({}, "identity[0].user"),
        ({"user": "u"}, "identity[0].token_sha256"),
        ({"user": "u", "token_sha256": "abc"}, "identity[0].token_sha256"),
        ({"user": "u", "token_sha256": DIGEST.upper()}, "identity[0].token_sha256"),
        ({"user": "../u", "token_sha256": DIGEST}, "identity[0].user"),
        ({"user": "u", "agent": "*", "token_sha256": DIGEST}, "identity[0].agent"),
        ({"user": "u", "admin": "yes", "token_sha256": DIGEST}, "identity[0].admin"),
        ({"user": "u", "token": "secret", "token_sha256": DIGEST}, "identity[0].token"),
        ({"user": 7, "token_sha256": DIGEST}, "identity[0].user"),
    ],
)
def test_a_wrong_table_is_refused_with_the_fields_name(table: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_identities([table])
    assert str(refused.value).startswith(f"{named}:")
    assert "secret" not in str(refused.value)


def test_a_token_that_stands_twice_is_refused() -> None:
    tables = [{"user": name, "token_sha256": DIGEST} for name in ("u1", "u2")]
    with pytest.raises(ConfigError, match=r"identity\[1\].token_sha256"):
        read_identities(tables)


@pytest.mark.parametrize("token", ["", " ", "a b", "ü", "a\n"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        check_token(token)
