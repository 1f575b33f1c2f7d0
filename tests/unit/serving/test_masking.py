"""Connector values never leave as they are, wherever the chunks of a stream are cut."""

from __future__ import annotations

import html
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.masking import MaskedStream, Masker
from lambda_kernel.serving.output import Output

TOKEN = "ghp_0123456789"
VARIABLES = {"CONN_gh_TOKEN": TOKEN, "CONN_gh_USER": "bob"}
LABEL = "[CONN_gh_TOKEN]"

VALUES = st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=3, unique=True)


def streamed(masker: Masker, chunks: list[str]) -> str:
    stream = MaskedStream(masker)
    return "".join([*map(stream.feed, chunks), stream.flush()])


@given(values=VALUES, data=st.data())
def test_no_value_survives_in_any_chunks(values: list[str], data: st.DataObject) -> None:
    masker = Masker({f"CONN_{number}_K": value for number, value in enumerate(values)})
    piece = st.sampled_from(values) | st.text("abc", max_size=6)
    text = "".join(data.draw(st.lists(piece, max_size=6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    result = streamed(masker, chunks)
    assert not any(value in result for value in values)
    assert result == streamed(masker, list(text)) == masker.text(text)


@given(chunks=st.lists(st.text("cd\n")))
def test_other_text_passes_at_once_and_unchanged(chunks: list[str]) -> None:
    stream = MaskedStream(Masker({"CONN_a_K": "a" * 8}))
    assert [stream.feed(chunk) for chunk in chunks] == chunks
    assert stream.flush() == ""


@given(chunks=st.lists(st.text("ab", max_size=30)))
def test_less_than_a_value_is_ever_held(chunks: list[str]) -> None:
    stream = MaskedStream(Masker({"CONN_a_K": "abababab", "CONN_a_L": "abab" * 4}))
    for chunk in chunks:
        stream.feed(chunk)
        assert len(stream._held) < 16


def test_the_longer_of_two_values_that_begin_alike_goes_whole() -> None:
    masker = Masker({"CONN_a_K": "secret-1", "CONN_b_K": "secret-1-and-more"})
    text = "x secret-1-and-more y secret-1 z"
    assert streamed(masker, list(text)) == "x [CONN_b_K] y [CONN_a_K] z"


def test_short_values_are_not_looked_for() -> None:
    assert Masker({"CONN_a_K": "1234567"}).is_idle
    assert Masker(VARIABLES).text(f"bob {TOKEN}") == f"bob {LABEL}"


def test_values_are_found_as_python_json_and_html_spell_them() -> None:
    value = "pa'ss\"wörd\\n<&\n2"
    masker = Masker({"CONN_a_K": value})
    for text in (value, repr(value), ascii(value), json.dumps(value), html.escape(value)):
        assert "wörd" not in masker.text(text)
        assert "[CONN_a_K]" in masker.text(text)


def test_texts_and_names_in_json_are_replaced_and_the_rest_is_not() -> None:
    data = {"a": [1, None, f"x{TOKEN}y"], TOKEN: {"b": True}}
    expected = {"a": [1, None, f"x{LABEL}y"], LABEL: {"b": True}}
    assert Masker(VARIABLES).json(data) == expected


def test_nothing_unseen_hides_in_the_depth() -> None:
    deep: Any = TOKEN
    for _ in range(500):
        deep = [deep]
    assert TOKEN not in str(Masker(VARIABLES).json(deep))


def passed(*steps: tuple[str, Any], variables: dict[str, str] = VARIABLES) -> list[ChildMessage]:
    sent: list[ChildMessage] = []
    output = Output(sent.append, 1_000_000)
    output.mask(Masker(variables))
    for kind, value in steps:
        if kind in {"stdout", "stderr"}:
            output.raw(kind, value)
        else:
            output.message({"msg_type": kind, "content": value, "metadata": {"m": TOKEN}}, ())
    output.close()
    return sent


def stream(name: str, text: str) -> tuple[str, dict[str, str]]:
    return ("stream", {"name": name, "text": text})


def texts(messages: list[ChildMessage], name: str) -> str:
    return "".join(m.content["text"] for m in messages if m.content.get("name") == name)


def test_pipe_and_messages_are_one_stream() -> None:
    sent = passed(("stdout", b"a ghp_0123"), stream("stdout", "456789 b\n"))
    assert texts(sent, "stdout") == f"a {LABEL} b\n"


def test_streams_do_not_disturb_each_other() -> None:
    sent = passed(
        stream("stdout", "ghp_0123"), stream("stderr", "ghp_01234"), ("stderr", b"56789"),
        stream("stdout", "456789"),
    )  # fmt: skip
    assert texts(sent, "stdout") == texts(sent, "stderr") == LABEL


def test_a_display_comes_after_what_was_printed_before_it() -> None:
    sent = passed(stream("stdout", "x ghp_"), ("display_data", {"data": {"text/html": TOKEN}}))
    assert [m.content for m in sent] == [
        {"name": "stdout", "text": "x ghp_"},
        {"data": {"text/html": LABEL}, "metadata": {}, "transient": {}},
    ]
    assert sent[-1].metadata == {"m": LABEL}


def test_errors_and_results_are_masked() -> None:
    sent = passed(
        ("error", {"ename": "E", "evalue": TOKEN, "traceback": [f"\x1b[31m{TOKEN}\x1b[0m"]}),
        ("execute_result", {"data": {"text/plain": repr(TOKEN)}, "execution_count": 1}),
        ("comm_msg", {"comm_id": "c", "data": {TOKEN: [TOKEN]}}),
    )
    assert TOKEN not in str([(m.content, m.metadata) for m in sent])
    assert len(sent) == 3


def test_a_character_that_is_cut_in_half_hides_nothing() -> None:
    value = "wörter-und-mehr"
    raw = f"<{value}>".encode()
    sent = passed(
        *(("stdout", raw[i : i + 1]) for i in range(len(raw))), variables={"CONN_a_K": value}
    )
    assert texts(sent, "stdout") == "<[CONN_a_K]>"


def test_notices_of_our_own_are_masked_too() -> None:
    sent: list[ChildMessage] = []
    output = Output(sent.append, 1000)
    output.mask(Masker(VARIABLES))
    output.notice(f"file {TOKEN} is not stored")
    assert sent[0].content["text"] == f"file {LABEL} is not stored\n"
