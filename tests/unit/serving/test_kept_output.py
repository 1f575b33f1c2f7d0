"""What is kept of an output that is too long to be sent."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.kept_output import IN_MEMORY_BYTES, KeptOutput
from lambda_kernel.serving.output import Output

ADDRESS = "/api/kernels/k/outputs/3"


def said(folder: Path, texts: list[str], *, max_bytes: int = 10**7, broken: bool = False) -> Any:
    """Return the notice of a cell with a limit of 5,000 bytes, and what was uploaded."""
    uploads: list[bytes] = []
    sent: list[ChildMessage] = []

    def upload(file: IO[bytes], size_bytes: int) -> None:
        if broken:
            raise StorageUnavailable("S3 does not answer")
        uploads.append(file.read())
        assert len(uploads[-1]) == size_bytes

    output = Output(sent.append, 5000, KeptOutput(folder, max_bytes, ADDRESS, upload))
    for text in texts:
        content = {"name": "stdout", "text": text}
        output.message({"msg_type": "stream", "content": content, "metadata": {}}, ())
    output.close()
    return sent[-1].content["text"], uploads


def test_the_whole_is_kept_where_it_was_cut_and_the_notice_says_where(tmp_path: Path) -> None:
    texts = ["é" * 3000, "b" * IN_MEMORY_BYTES, "end"]
    notice, uploads = said(tmp_path, texts)
    assert uploads == ["".join(texts).encode()]
    assert notice.endswith(f"more were cut; the whole is kept: GET {ADDRESS}\n")


def test_nothing_is_kept_of_a_cell_that_said_little(tmp_path: Path) -> None:
    assert said(tmp_path, ["short"]) == ("short", [])


def test_what_is_kept_is_bounded_and_said_to_be(tmp_path: Path) -> None:
    notice, uploads = said(tmp_path, ["x" * 9000, "y" * 9000, "z"], max_bytes=10_000)
    assert uploads == [b"x" * 9000 + b"y" * 1000]
    assert "its first 0.0 MB are kept" in notice


def test_storage_that_does_not_answer_is_told(tmp_path: Path) -> None:
    notice, _ = said(tmp_path, ["x" * 9000], broken=True)
    assert notice.endswith("the whole could not be kept: S3 does not answer\n")


def test_a_folder_that_a_cell_removed_costs_no_cell(tmp_path: Path) -> None:
    notice, uploads = said(tmp_path / "gone", ["x" * 9000, "y" * IN_MEMORY_BYTES])
    assert uploads == [b"x" * 9000]
    assert "its first 0.0 MB are kept" in notice


def test_results_and_errors_are_kept_as_text(tmp_path: Path) -> None:
    uploads: list[bytes] = []
    kept = KeptOutput(tmp_path, 10**6, ADDRESS, lambda file, _: uploads.append(file.read()))
    for msg_type, content in (
        ("execute_result", {"data": {"text/plain": "42", "image/png": "AAAA"}}),
        ("display_data", {"data": {"image/png": "AAAA"}}),
        ("error", {"ename": "E", "evalue": "v", "traceback": ["one", "two"]}),
    ):
        kept.add(ChildMessage(msg_type=msg_type, content=content, metadata={}))
    kept.store()
    kept.close()
    assert uploads == [b"42\none\ntwo\n"]
