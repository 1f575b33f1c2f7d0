"""Entries are signed by a key that only the gateway holds, and verified by its public half."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kernel_gateway.audit.envelopes import PAYLOAD_TYPE, Envelope, payload_of
from kernel_gateway.audit.key_folder import KeyFolder, open_sealer
from kernel_gateway.audit.signing import (
    BadSignature,
    UnknownKey,
    check_signature,
    exported,
    imported,
)
from kernel_gateway.errors import ConfigError, StorageError
from lambda_kernel.contract.schema import InvalidField

PAYLOAD = b'{"schema":2}'


async def test_what_was_sealed_is_verified_by_the_exported_keys(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    stored = await folder.seal(PAYLOAD)

    keys = imported(exported(list(folder.keys().values())), "keys.json")
    assert payload_of(stored) == PAYLOAD
    assert check_signature(Envelope.around(stored), keys) == next(iter(folder.keys()))


async def test_the_private_key_is_its_owners_only(tmp_path: Path) -> None:
    await KeyFolder(tmp_path).seal(PAYLOAD)

    for path in (tmp_path / "keys").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert "PRIVATE" not in exported(list(KeyFolder(tmp_path).keys().values()))


async def test_a_rotated_key_signs_at_once_and_the_old_one_still_verifies(tmp_path: Path) -> None:
    running = KeyFolder(tmp_path)
    before = await running.seal(PAYLOAD)
    new = KeyFolder(tmp_path).rotate()
    after = await running.seal(PAYLOAD)

    keys = KeyFolder(tmp_path).keys()
    assert len(keys) == 2
    assert check_signature(Envelope.around(before), keys) != new.keyid
    assert check_signature(Envelope.around(after), keys) == new.keyid


async def test_the_key_outlives_the_gateway(tmp_path: Path) -> None:
    first, second = [await KeyFolder(tmp_path).seal(PAYLOAD) for _ in range(2)]

    assert first == second


async def test_other_bytes_other_types_and_other_keys_are_refused(tmp_path: Path) -> None:
    ours, other = KeyFolder(tmp_path / "a"), KeyFolder(tmp_path / "b")
    data = json.loads(await ours.seal(PAYLOAD))
    stranger = json.loads(await other.seal(PAYLOAD))
    keys = ours.keys()
    changed = data | {"payload": base64.b64encode(PAYLOAD + b" ").decode()}

    with pytest.raises(BadSignature):
        check_signature(Envelope.from_json(changed), keys)
    with pytest.raises(UnknownKey):
        check_signature(Envelope.from_json(stranger), keys)
    with pytest.raises(UnknownKey):
        check_signature(Envelope.from_json(data | {"signatures": []}), keys)
    (own,) = data["signatures"]
    claimed = {**stranger["signatures"][0], "keyid": own["keyid"]}
    for signatures in ([claimed], [own, claimed], [{**own, "sig": "!"}], [{**own, "sig": ""}]):
        with pytest.raises(BadSignature):
            check_signature(Envelope.from_json(data | {"signatures": signatures}), keys)
    with pytest.raises(InvalidField, match="payloadType"):
        Envelope.from_json(data | {"payloadType": "application/json"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2, "keys": []}', "[" * 100_000])
def test_a_file_without_keys_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"auditor\.json"):
        imported(text, "auditor.json")


def test_a_key_file_that_is_no_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signing.pem").write_text("nonsense")

    with pytest.raises(ConfigError, match=r"signing\.pem"):
        KeyFolder(tmp_path).signer()


@contextmanager
def a_kms(key: ec.EllipticCurvePrivateKey) -> Iterator[str]:
    """Yield the endpoint of a KMS that has one key."""

    class Kms(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers["X-Amz-Target"] == "TrentService.GetPublicKey":
                public = key.public_key().public_bytes(
                    Encoding.DER, PublicFormat.SubjectPublicKeyInfo
                )
                answer = {
                    "KeyId": asked["KeyId"],
                    "PublicKey": base64.b64encode(public).decode(),
                    "SigningAlgorithms": ["ECDSA_SHA_256"],
                    "KeyUsage": "SIGN_VERIFY",
                }
            else:
                digest = base64.b64decode(asked["Message"])
                made = key.sign(digest, ec.ECDSA(utils.Prehashed(SHA256())))
                answer = {"KeyId": asked["KeyId"], "Signature": base64.b64encode(made).decode()}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Kms) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def test_a_key_of_kms_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with a_kms(ec.generate_private_key(ec.SECP256R1())) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", url)
        sealer = open_sealer(tmp_path, "awskms:alias/audit")
        stored = await sealer.seal(PAYLOAD)

    keys = imported(exported(list(KeyFolder(tmp_path).keys().values())), "keys.json")
    assert json.loads(stored)["payloadType"] == PAYLOAD_TYPE
    check_signature(Envelope.around(stored), keys)
    with pytest.raises(StorageError, match="signing key"):
        await sealer.seal(PAYLOAD)
    with pytest.raises(ConfigError, match="awskms:alias/audit"):
        open_sealer(tmp_path, "awskms:alias/audit")
    with pytest.raises(ConfigError, match="must be awskms:"):
        open_sealer(tmp_path, "gcpkms:x")
