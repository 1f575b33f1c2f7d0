"""What configured patterns match is replaced before it is written to a journal.

The patterns are RE2's: a search takes time in proportion to the text, whatever a cell prints. It
is a net against accidents: what is encoded, encrypted or taken apart is not found.
Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import re2

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    CellStarted,
    Event,
    KernelRestarted,
    RecordedMessage,
    SessionClosed,
)
from kernel_gateway.audit.events import SessionForked, SessionOpened
from kernel_gateway.audit.facts import HandlerFacts
from kernel_gateway.errors import ConfigError
from kernel_gateway.messaging.caller import Actor, Caller
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.schema import encode
from lambda_kernel.contract.witness import file_list_bytes

MAX_DEPTH = 200
"""Nothing legible is so deep; what is deeper is not written."""
MAX_PATTERN_BYTES = 16 << 20
BUDGET_S = 20.0
"""For one event. Only alternatives that match much and little of the same text come near it."""
TOO_LONG, TOO_DEEP = "[redacted: the search took too long]", "[redacted: nested too deeply]"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
ACTED = SessionOpened | SessionForked | SessionClosed | KernelRestarted | CellInterrupted
GENERATED_ID = re.compile(r"[0-9a-f-]{32,36}(_[0-9]+){0,2}")
"""As Jupyter clients and widgets draw them: what a later connection finds its messages by."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces what patterns match by ``[redacted:<name>]``.

    Attributes:
        key: of the keyed digest of a source in which something was replaced.
        clock: in seconds.
    """

    key: bytes = field(default=b"", repr=False)
    clock: Callable[[], float] = time.monotonic
    _patterns: tuple[tuple[bytes, Any], ...] = ()

    @classmethod
    def of(
        cls,
        patterns: Mapping[str, str],
        key: bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> Redactor:
        """Return the redactor with these patterns by name.

        Raises:
            ConfigError: a name or pattern cannot be used.
        """
        options = re2.Options()
        options.log_errors = False
        options.max_mem = MAX_PATTERN_BYTES
        made = []
        for name, pattern in patterns.items():
            where = f"audit.redact {name!r}"
            if not NAME.fullmatch(name):
                raise ConfigError(f"{where}: a name is up to 64 letters, digits, `_`, `.`, `-`")
            try:
                compiled = re2.compile(pattern, options)
            except re2.error as problem:
                why = problem.args[0]
                why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
                raise ConfigError(
                    f"{where}: {pattern!r} is no regular expression of RE2, which has neither "
                    f"lookaround nor backreferences: {why}"
                ) from None
            if compiled.search(b""):
                raise ConfigError(f"{where}: {pattern!r} matches the empty text: it says nothing")
            made.append((f"[redacted:{name}]".encode(), compiled))
        return cls(key, clock, tuple(made))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._patterns

    def event(self, event: Event) -> Event:
        """Return what may be written of an event."""
        if self.is_idle:
            return event
        if isinstance(event, CellStarted):
            return self.started(event)
        search = self._search()
        if isinstance(event, ACTED):
            acted: Any = event
            return replace(acted, actor=_actor(event.actor, search))  # type: ignore[no-any-return]
        if isinstance(event, CellFinished):
            said = search.messages(event.outputs.messages)
            return replace(
                event,
                reply=None if event.reply is None else search.messages([event.reply])[0],
                outputs=replace(event.outputs, messages=said),
                answers=tuple(_answer(each, search) for each in event.answers),
                handler=None if event.handler is None else _facts(event.handler, search),
            )
        return event

    def started(self, event: CellStarted) -> CellStarted:
        """Return what may be written of a request."""
        search = self._search()
        found = replace(
            event,
            header=search.header(event.header),
            metadata=search.fields(event.metadata, {"cellId"}),
            content=search.fields(event.content, {"comm_id"}),
        )
        facts = event.gateway
        if facts is not None and facts.caller is not None:
            facts = replace(facts, caller=_caller(facts.caller, search))
            found = replace(found, gateway=facts)
        if facts is not None and facts.idempotency is not None and found.content != event.content:
            # It is a plain digest of what was received.
            facts = replace(facts, idempotency=replace(facts.idempotency, fingerprint=""))
            found = replace(found, gateway=facts)
        if facts is None or facts.source_digest is None or found.source == event.source:
            return found
        # From the digest of what was received, a short secret could be guessed.
        received = event.source.encode("utf-8", "surrogatepass")
        written = found.source.encode("utf-8", "surrogatepass")
        facts = replace(
            facts,
            source_digest=hashlib.sha256(written).hexdigest(),
            received_mac=hmac.digest(self.key, received, "sha256").hex(),
        )
        return replace(found, gateway=facts)

    def file_list(self, stored: bytes) -> bytes:
        """Return what may be written of a list of files; see `file_list_bytes`."""
        search, rows = self._search(), json.loads(stored)["files"]
        names = "\n".join(row[0] for row in rows)
        if search.text(names) == names:
            return stored
        return file_list_bytes((search.text(name), *rest) for name, *rest in rows)

    def _search(self) -> _Search:
        return _Search(self._patterns, self.clock, self.clock() + BUDGET_S)


@dataclass(frozen=True, slots=True)
class _Search:
    """The search through one event."""

    patterns: tuple[tuple[bytes, Any], ...]
    clock: Callable[[], float]
    deadline_s: float

    def text(self, text: str) -> str:
        return self.parts([text])[0]

    def parts(self, texts: Sequence[str]) -> list[str]:
        """Return texts that follow each other; what stands in several of them is found too."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        for label, pattern in self.patterns:
            joined = b"".join(parts)
            spans = []
            for match in pattern.finditer(joined):
                spans.append(match.span())
                if self.clock() > self.deadline_s:
                    return [TOO_LONG, *([""] * (len(parts) - 1))]
            spans = [(begin, end) for begin, end in spans if begin < end]
            if spans:
                parts = _cut(parts, spans, label)
        return [_decoded(part) for part in parts]

    def json(self, value: Any, depth: int = 0) -> Any:
        """Return plain JSON with every text and name in it searched."""
        if isinstance(value, str):
            return self.text(value)
        if depth > MAX_DEPTH:
            return TOO_DEEP
        if isinstance(value, dict):
            return {self.text(name): self.json(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self.json(item, depth + 1) for item in value]
        return value

    def fields(self, found: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
        """Return fields whose names are the protocol's; generated ids stay."""
        return {
            name: value if name in ids and _is_generated(value) else self.json(value)
            for name, value in found.items()
        }

    def header(self, header: Mapping[str, Any]) -> dict[str, Any]:
        found = self.fields(header, {"msg_id", "session"})
        return found | {"msg_type": header["msg_type"]} if "msg_type" in header else found

    def messages(self, messages: Sequence[RecordedMessage]) -> tuple[RecordedMessage, ...]:
        """Return messages; text of a stream is searched as a whole."""
        found = [self._message(each) for each in messages]
        streams: dict[str, list[int]] = {}
        for number, each in enumerate(messages):
            if each.header["msg_type"] == "stream" and isinstance(each.content.get("text"), str):
                streams.setdefault(str(each.content.get("name")), []).append(number)
        for numbers in streams.values():
            texts = self.parts([messages[number].content["text"] for number in numbers])
            for number, text in zip(numbers, texts, strict=True):
                content = found[number].content | {"text": text}
                found[number] = replace(found[number], content=content)
        return tuple(found)

    def _message(self, message: RecordedMessage) -> RecordedMessage:
        content = self.fields(message.content, {"comm_id"})
        data = message.content.get("data")
        if isinstance(data, dict):
            content["data"] = {self.text(mime): self._lines(value) for mime, value in data.items()}
        transient = message.content.get("transient")
        if isinstance(transient, dict):
            content["transient"] = self.fields(transient, {"display_id"})
        return replace(
            message,
            header=self.header(message.header),
            metadata=self.json(message.metadata),
            content=content,
            buffers=tuple(self._buffer(part) for part in message.buffers),
        )

    def _lines(self, value: Any) -> Any:
        """Return one representation of a display, which may be a list of lines."""
        if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
            return self.parts(value)
        return self.json(value, 1)

    def _buffer(self, part: str) -> str:
        stored = base64.b64decode(part)
        for label, pattern in self.patterns:
            if pattern.search(stored):
                return base64.b64encode(label).decode("ascii")
        return part


def _actor(actor: Actor | None, search: _Search) -> Actor | None:
    if actor is None or actor.caller is None:
        return actor
    return replace(actor, caller=_caller(actor.caller, search))


def _answer(answer: Answer, search: _Search) -> Answer:
    prompt, value, caller = search.text(answer.prompt), answer.value, answer.caller
    found = replace(
        answer, prompt=prompt, caller=None if caller is None else _caller(caller, search)
    )
    written = None if value is None else search.text(value)
    return found if written == value else replace(found, value=written, left_out="redacted")


def _caller(caller: Caller, search: _Search) -> Caller:
    named = caller.user_agent
    return caller if named is None else replace(caller, user_agent=search.text(named))


def _facts(facts: HandlerFacts, search: _Search) -> HandlerFacts:
    """Return what the serving process says, with names and texts that code has chosen searched.

    Digests and versions stay: a pattern for keys would take them for some.
    """
    workspace, inputs = facts.workspace, facts.inputs
    if workspace is not None:
        workspace = replace(workspace, files=_renamed(workspace.files, search))
    if inputs is not None:
        inputs = replace(inputs, files=_renamed(inputs.files, search))
    return replace(
        facts,
        files=tuple(
            replace(file, path=search.text(file.path), key=search.text(file.key))
            for file in facts.files
        ),
        workspace=workspace,
        inputs=inputs,
        lost=tuple(type(lost)(**search.json(encode(lost))) for lost in facts.lost),
        message=search.text(facts.message),
    )


def _renamed(files: Sequence[CommittedFile], search: _Search) -> tuple[CommittedFile, ...]:
    return tuple(replace(file, key=search.text(file.key)) for file in files)


def _cut(parts: Sequence[bytes], spans: Sequence[tuple[int, int]], label: bytes) -> list[bytes]:
    """Return parts with ``label`` where a span begins, and nothing for the rest of it.

    Args:
        parts: what follows each other.
        spans: in all of them together; in order, none in another.
        label: stands for each.
    """
    found, number, start = [], 0, 0
    for part in parts:
        end, position = start + len(part), start
        pieces = []
        while number < len(spans) and spans[number][0] < end:
            begins, ends = spans[number]
            if begins >= start:
                pieces += [part[position - start : begins - start], label]
            position = max(position, min(ends, end))
            if ends > end:
                break  # it goes on in the next part
            number += 1
        pieces.append(part[position - start :])
        found.append(b"".join(pieces))
        start = end
    return found


def _is_generated(value: object) -> bool:
    return isinstance(value, str) and GENERATED_ID.fullmatch(value) is not None


def _decoded(part: bytes) -> str:
    try:
        return part.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # RE2's \C takes single bytes.
        return part.decode("utf-8", "replace")
