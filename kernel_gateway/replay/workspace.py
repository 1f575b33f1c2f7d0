"""The workspace of a sequential replay, in which what others did between cells is done again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_gateway.errors import NotFound
from kernel_gateway.replay.pins import (
    Pin,
    Pins,
    RecordedStates,
    Unavailable,
    VersionedFiles,
    all_of,
)
from kernel_gateway.replay.recorded import RecordedCell
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField


@dataclass(slots=True, kw_only=True)
class SessionWorkspace:
    """What the cells of a sequential replay find, one after the other.

    A recorded file that is not kept any more is missing in it: neither a newer nor an older version
    stands for it.

    Args:
        states: what recorded cells found and left.
        files: the workspaces bucket.
        target: the prefix of the replay.
    """

    states: RecordedStates
    files: VersionedFiles
    target: str
    _recorded: Pins = field(default_factory=dict)
    _missing: dict[str, tuple[Pin, str]] = field(default_factory=dict)

    @property
    def missing(self) -> Mapping[str, str]:
        """Why recorded files are missing, by path, for the cell that it was prepared for."""
        return {path: why for path, (_, why) in self._missing.items()}

    async def prepare(self, cell: RecordedCell) -> None:
        """Do what others than recorded cells did to the workspace before a cell.

        Raises:
            Unavailable: what the cell found or left is not known.
            StorageError: S3 does not answer.
        """
        if not cell.has_committed:
            return
        before = await self.states.files_before(cell)
        new = {path: pin for path, pin in before.items() if self._recorded.get(path) != pin}
        # What a cell has written anew, or deleted, is not missing any more.
        self._missing = {
            path: found for path, found in self._missing.items() if before.get(path) == found[0]
        }
        await all_of(self._bring(path, pin) for path, pin in new.items())
        for path in self._recorded.keys() - before.keys():
            await self._remove(path)
        self._recorded = await self.states.files_after(cell)

    async def _bring(self, path: str, pin: Pin) -> None:
        try:
            await self.states.bring({path: pin}, self.target)
        except Unavailable as gone:
            self._missing[path] = pin, str(gone)
            await self._remove(path)

    async def _remove(self, path: str) -> None:
        try:
            # A trail that is brought along names any path: storage must not be asked to climb.
            names.check_file_key(path)
            await self.files.delete(self.target + path)
        except (InvalidField, NotFound):
            return
