"""A replay as JSON: what asks for it, and the events that come of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.audit.chain import Entry, SignedEntry, digest_of
from kernel_gateway.audit.envelopes import PAYLOAD_TYPE, Envelope
from kernel_gateway.errors import BadRequest
from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.selecting import Mode, Network, ReplayRequest
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField, decode, encode

MAX_ENTRIES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBody:
    """The body of ``POST /api/replays``.

    Attributes:
        kernel_id: whose trail.
        entries: how many of its entries; None = all there are.
        head: SHA-256 (hex) of the last of them, which must be in the journal.
        trail: payloads of the entries, base64, where this deployment has no such journal.
        verified: the caller has checked that a key it trusts has signed ``trail``; else nothing of
            the caller's is opened for it, whatever owner it names.
        mode, begin, only, parameters, network, connectors, keep_files: see ReplayRequest.
    """

    kernel_id: str
    entries: int | None = None
    head: str | None = None
    trail: tuple[str, ...] = ()
    verified: bool = False
    mode: Mode = "sequential"
    begin: int | None = None
    only: tuple[int, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    network: Network = "none"
    connectors: bool = False
    keep_files: bool = True

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> ReplayBody:
        """Return what JSON asks for (raises BadRequest, which names the field)."""
        try:
            return decode(cls, data, "body")
        except InvalidField as problem:
            raise BadRequest(str(problem)) from problem

    def __post_init__(self) -> None:
        names.check_kernel_id(self.kernel_id, "body.kernel_id")
        if (self.entries is None) != (self.head is None):
            raise InvalidField("body.head", "and body.entries belong together")
        if len(self.trail) > MAX_ENTRIES:
            raise InvalidField("body.trail", f"has more than {MAX_ENTRIES:,} entries")

    @property
    def request(self) -> ReplayRequest:
        """How it is to be replayed (raises BadRequest)."""
        return ReplayRequest(
            mode=self.mode,
            begin=self.begin,
            only=self.only,
            parameters=self.parameters,
            network=self.network,
            has_connectors=self.connectors,
            keeps_files=self.keep_files,
        )

    def signed(self) -> list[SignedEntry]:
        """Return the entries in ``trail`` (raises BadRequest); signatures are not looked at."""
        found = []
        for place, payload in enumerate(self.trail, 1):
            try:
                stored = base64.b64decode(payload, validate=True)
                entry = Entry.from_bytes(stored)
                if entry.kernel_id != self.kernel_id:
                    raise InvalidField("kernel_id", "is that of another kernel")
            except (binascii.Error, ValueError) as problem:
                raise BadRequest(f"body.trail: entry {place} cannot be read: {problem}") from None
            envelope = Envelope(payload=payload, payloadType=PAYLOAD_TYPE)
            found.append(SignedEntry(entry=entry, digest=digest_of(stored), envelope=envelope))
        return found


def pair_to_dict(pair: CellPair) -> dict[str, Any]:
    """Return a cell as JSON."""
    data: dict[str, Any] = encode(pair)
    return data


def pair_from_dict(data: Mapping[str, Any]) -> CellPair:
    """Return the cell that a gateway sent (raises InvalidField)."""
    try:
        sides = {name: _execution(data[name]) for name in ("recorded", "replayed")}
        listed = {name: tuple(data[name]) for name in ("tags", "withheld")}
        return CellPair(**{**data, **sides, **listed})
    except (KeyError, TypeError, AttributeError) as problem:
        raise InvalidField("cell", "is not what a gateway sends") from problem


def _execution(data: Mapping[str, Any] | None) -> Execution | None:
    return None if data is None else Execution(**{**data, "outputs": tuple(data["outputs"])})
