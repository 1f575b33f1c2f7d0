from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.messaging.backlog import MERGED_CHARACTERS, Backlog, rough_bytes
from kernel_gateway.messaging.message import OutMessage, new_header


def message(msg_type: str, content: dict[str, Any], parent: str = "cell") -> OutMessage:
    header = new_header(msg_type, session="s")
    return OutMessage(
        channel="iopub", header=header, parent_header={"msg_id": parent}, content=content
    )


def text(name: str, text: str, parent: str = "cell") -> OutMessage:
    return message("stream", {"name": name, "text": text}, parent)


def taken(*messages: OutMessage) -> list[dict[str, Any]]:
    backlog = Backlog()
    for each in messages:
        backlog.add(each)
    found = [backlog.take() for _ in range(len(backlog))]
    assert backlog.size_bytes == 0
    return [each.content for each in found]


def test_text_of_one_stream_and_cell_waits_as_one_message() -> None:
    found = taken(
        text("stdout", "a"), text("stdout", "b"), text("stderr", "c"), text("stdout", "d")
    )
    assert [content["text"] for content in found] == ["ab", "c", "d"]


def test_text_of_two_cells_stays_apart() -> None:
    assert len(taken(text("stdout", "a", "1"), text("stdout", "b", "2"))) == 2


def test_long_text_is_not_copied_again_and_again() -> None:
    assert len(taken(text("stdout", "a" * MERGED_CHARACTERS), text("stdout", "b"))) == 2


def test_clearing_twice_is_clearing_once() -> None:
    waits, now = {"wait": True}, {"wait": False}
    clear = [message("clear_output", wait) for wait in (waits, now, waits, now)]
    assert taken(*clear) == [now]
    assert taken(clear[0], clear[2]) == [waits]


def test_other_messages_are_kept_one_by_one() -> None:
    shown = message("display_data", {"data": {}})
    assert len(taken(shown, shown)) == 2


def test_what_waits_is_counted() -> None:
    backlog = Backlog()
    for i in range(1000):
        backlog.add(text("stdout", f"{i}\n"))
    assert len(backlog) == 1
    assert backlog.size_bytes == rough_bytes(backlog.take())


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(nested, nested)
def test_whatever_is_shown_counts_with_all_that_is_in_it(data: Any, metadata: Any) -> None:
    long = 10_000
    hidden = [[data, {"a": [{"b": "x" * long}]}], {"c": [10 ** (3 * long)]}]
    bare = rough_bytes(message("display_data", {"data": {}}))
    shown = message("display_data", {"data": {"application/json": hidden}, "metadata": metadata})

    assert rough_bytes(shown) > bare + 2 * long
