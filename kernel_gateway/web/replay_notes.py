"""What a reader of a replay's report should know of its trail, and of where it ran."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kernel_gateway.audit.facts import DerivedFrom
from kernel_gateway.audit.journal import Journal
from kernel_gateway.errors import Forbidden, NotFound
from kernel_gateway.replay.parameters import place_of
from kernel_gateway.replay.recorded import SentSource
from kernel_gateway.replay.running import Replay

MAX_ID_CHARACTERS = 64


def notes_of(replay: Replay) -> list[str]:
    """Return what is known of it before it runs, a sentence each."""
    facts = replay.trail.facts
    if facts is None:
        return ["The trail does not say what its cells ran in."]
    notes = []
    dispatcher = replay.registry.services.dispatcher
    if facts.environment.handler_digest != dispatcher.handler_digest:
        notes.append("The code that runs cells is of another version than when it was recorded.")
    if isinstance(replay.source, SentSource):
        notes.append("This gateway has no journal of the kernel: it replayed what the file holds.")
    ends = (cell.finished for cell in replay.trail.cells)
    if any(end is not None and end.handler and end.handler.home_head for end in ends):
        notes.append("The recorded session had files in its HOME; a replayed cell's HOME is empty.")
    request = replay.request
    if request.parameters and place_of(request.selected(replay.trail.cells)) is None:
        notes.append("No cell is tagged `parameters`: they were set before the first one.")
    return notes


async def note_of_origin(
    derived: DerivedFrom, journal_of: Callable[[str], Awaitable[Journal]]
) -> str:
    """Return what is known of the trail that a trail says it is itself a replay of.

    Args:
        derived: what it says; anybody may have written that.
        journal_of: returns the journal of a kernel (raises NotFound, Forbidden: not the caller's).

    Raises:
        StorageError: S3 does not answer.
    """
    kernel_id = derived.kernel_id[:MAX_ID_CHARACTERS]
    said = f"The trail says that it is a replay of kernel {kernel_id} up to entry {derived.number}"
    try:
        journal = await journal_of(derived.kernel_id)
    except (NotFound, Forbidden):
        return f"{said}: that is not proven, the journal of that kernel is not here for you."
    is_there = 0 < derived.number <= await journal.open()
    if is_there and (await journal.signed(derived.number)).digest == derived.digest:
        return f"{said}: that kernel's journal has this entry."
    return f"WARNING: {said}: that is FALSE, that kernel's journal has no such entry."
