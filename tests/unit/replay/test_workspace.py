"""The workspace of a sequential replay never holds another version than the recorded one."""

from __future__ import annotations

from kernel_gateway.replay.recorded import RecordedCell
from kernel_gateway.replay.workspace import SessionWorkspace
from kernel_gateway.web.workspace_files import MemoryFileStore
from tests.unit.replay.test_pins import TARGET, states_of, stored
from tests.unit.replay.trails import a_cell, change


def workspace_of(*cells: RecordedCell, files: MemoryFileStore) -> SessionWorkspace:
    states = states_of(*cells, files=files)
    return SessionWorkspace(states=states, files=files, target=TARGET)


async def test_a_version_that_is_gone_is_missing_and_no_older_one_stays() -> None:
    files = stored(("in.csv", "v1"), ("other", "v1"))
    cells = [
        a_cell(1, files={"in.csv": "v1"}),
        a_cell(2, files={"in.csv": "v2", "other": "v1"}),
        a_cell(3, files={"in.csv": "v3"}, changes=[change("in.csv", "modified", "v3")]),
        a_cell(4, files={"in.csv": "v3"}),
    ]
    workspace = workspace_of(*cells, files=files)
    seen = []
    for cell in cells[:2]:
        await workspace.prepare(cell)
        seen.append((sorted(files.files), sorted(workspace.missing)))

    assert seen == [
        ([TARGET + "in.csv"], []),
        ([TARGET + "other"], ["in.csv"]),
    ]
    assert workspace.missing == {"in.csv": "in.csv (version v2) is not kept any more"}
    # The fourth cell finds what the third has written.
    for cell in cells[2:]:
        await workspace.prepare(cell)
    assert workspace.missing == {}


async def test_a_path_that_leads_out_of_the_replay_is_never_deleted() -> None:
    path = "../../../../u2/w/precious"
    files = stored()
    files.files[TARGET + path] = stored(("x", "v1")).versions["users/u1/w/x", "v1"]
    cells = [a_cell(1, files={path: "v1"}), a_cell(2, files={})]
    workspace = workspace_of(*cells, files=files)
    for cell in cells:
        await workspace.prepare(cell)
    assert list(files.files) == [TARGET + path]
