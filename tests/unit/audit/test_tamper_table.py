"""The table of manipulations that readers see is made of the rows that tests go through.

``python -m tests.unit.audit.test_tamper_table`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from tests.functional.kernels.test_tampered_journals import CHANGES
from tests.unit.audit.test_tampering import DETECTED, HOSTILE, UNDETECTABLE

TABLE = Path(__file__).with_name("tampering.md")
BEGIN = """\
# What can be done to a trail, and what verification says

Made of the rows of [test_tampering.py](test_tampering.py) and
[test_tampered_journals.py](../../functional/kernels/test_tampered_journals.py).
Each row is a test.
"""
BUCKET = """
## Changed in the bucket

Whatever reads the journal refuses it and names the entry: {names}.

Not detectable there: the newest entries deleted in the bucket, where no gateway that wrote them
still runs and nobody has exported them before. An export of before shows it (`trail verify FILE
--journal` says `truncated-journal`), and Object Lock keeps them. The rendered `trail.ipynb` and the
index for searches stand in the same bucket: who can change the one can change the others.
"""
END = """
What is signed is proven as far as the key is secret: who has the gateway's private key and the
bucket can write another history (in KMS the key stays). That the gateway writes what is true is its
word; what came from untrusted code (outputs) is proven to have been said, not to be true.
"""


def table() -> str:
    """Return the table as it is to be."""
    lines = ["", f"## Detected: {len(DETECTED)}", "", "| change | said |", "|---|---|"]
    lines += [f"| {name} | `{kind}` |" for name, (kind, _) in DETECTED.items()]
    lines += ["", f"## Not detectable in the file: {len(UNDETECTABLE)}", "", "| change | why |"]
    lines += ["|---|---|", *(f"| {name} | {why} |" for name, (why, _) in UNDETECTABLE.items())]
    lines += ["", "## Refused as no trail, with the reason (exit code 2)", "", ", ".join(HOSTILE)]
    return BEGIN + "\n".join(lines) + "\n" + BUCKET.format(names=", ".join(CHANGES)) + END


def test_the_table_is_what_is_tested() -> None:
    assert TABLE.read_text(encoding="utf-8") == table()


def test_there_are_enough_rows_and_each_has_its_reason() -> None:
    assert len(DETECTED) >= 25
    assert all(len(why) > 15 for why, _ in UNDETECTABLE.values())


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
