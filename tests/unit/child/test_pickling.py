from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.child.pickling import SessionPickler, SessionUnpickler, read_around


class Grenade:
    """Can be stored, but not read."""

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return explode, ()


def explode() -> None:
    raise RuntimeError("boom")


@st.composite
def namespaces(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Names for lists that hold each other in any way, cycles included."""
    count = draw(st.integers(1, 8))
    values: list[list[Any]] = [[i] for i in range(count)]
    for i, j in draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=16)
    ):
        values[i].append(values[j])
    chosen = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    return {f"v{n}": values[i] for n, i in enumerate(chosen)}


def dump(values: list[Any], namespace: dict[str, Any]) -> list[bytes]:
    stream = io.BytesIO()
    pickler = SessionPickler(stream, namespace, {})
    segments, start = [], 0
    for value in values:
        pickler.dump(value)
        segments.append(stream.getvalue()[start:])
        start = stream.tell()
    return segments


def shape(values: list[Any]) -> list[tuple[int, list[Any]]]:
    """Describe a graph of lists: which is which, and what each holds."""
    numbers: dict[int, int] = {}
    found: list[tuple[int, list[Any]]] = []
    queue = list(values)
    order = []
    while queue:
        value = queue.pop(0)
        order.append(value)
        if id(value) not in numbers:
            numbers[id(value)] = len(numbers)
            queue.extend(item for item in value if isinstance(item, list))
    for value in order:
        items = [numbers[id(i)] if isinstance(i, list) else ("leaf", i) for i in value]
        found.append((numbers[id(value)], items))
    return found


def reaches(value: Any, target: Any) -> bool:
    seen: set[int] = set()
    queue = [value]
    while queue:
        item = queue.pop()
        if item is target:
            return True
        if isinstance(item, list) and id(item) not in seen:
            seen.add(id(item))
            queue.extend(item)
    return False


@given(namespaces())
def test_names_read_one_by_one_share_what_they_shared(namespace: dict[str, list[Any]]) -> None:
    values = list(namespace.values())
    segments = dump(values, namespace)

    unpickler = SessionUnpickler(io.BytesIO(b"".join(segments)), {})
    fast = [unpickler.load() for _ in segments]
    slow = read_around(segments, {})

    assert shape(fast) == shape(values)
    assert all(is_read for is_read, _ in slow)
    assert shape([value for _, value in slow]) == shape(values)


@given(namespaces(), st.data())
def test_only_what_reaches_the_unreadable_can_be_lost(
    namespace: dict[str, list[Any]], data: st.DataObject
) -> None:
    values = list(namespace.values())
    grenade = Grenade()
    data.draw(st.sampled_from(values)).append(grenade)

    results = read_around(dump(values, namespace), {})

    # Who shares with a lost name may be lost with it, but nobody is ever read half.
    lost_parts = [v for v, (is_read, _) in zip(values, results, strict=True) if not is_read]
    for value, (is_read, _) in zip(values, results, strict=True):
        if reaches(value, grenade):
            assert not is_read
        elif not any(reaches(lost, part) for lost in lost_parts for part in [value, *value]):
            assert is_read
    kept = [(v, r) for v, (is_read, r) in zip(values, results, strict=True) if is_read]
    assert shape([r for _, r in kept]) == shape([v for v, _ in kept])
