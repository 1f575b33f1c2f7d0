"""What is remembered of idle kernels is bounded."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.kernels.caches import INPUT_OVERHEAD, InputHistory, ManifestCache
from lambda_kernel.contract.invocation import INLINE_MANIFEST_BYTES, Head

HEAD = Head(seq=1, digest="a" * 64)


def test_only_the_very_head_is_returned() -> None:
    cache = ManifestCache()
    cache.put("k", HEAD, b"stored")

    assert cache.get("k", HEAD) == base64.b64encode(b"stored").decode()
    assert cache.get("k", Head(seq=2, digest="a" * 64)) is None
    assert cache.get("k", None) is None
    assert cache.get("other", HEAD) is None


def test_a_large_commit_is_not_kept_and_pushes_its_predecessor_out() -> None:
    cache = ManifestCache()
    cache.put("k", HEAD, b"stored")

    cache.put("k", HEAD, bytes(INLINE_MANIFEST_BYTES + 1))

    assert cache.get("k", HEAD) is None


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 60))))
def test_manifests_never_hold_more_than_allowed(puts: list[tuple[str, int]]) -> None:
    cache = ManifestCache(max_bytes=100)
    for kernel_id, size in puts:
        cache.put(kernel_id, HEAD, bytes(size))
        held = [cache.get(each, HEAD) or "" for each in "abcde"]
        assert sum(map(len, held)) == cache._size_bytes <= 100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=40))))
def test_history_never_holds_more_than_allowed(adds: list[tuple[str, str]]) -> None:
    limit = 50 + 4 * INPUT_OVERHEAD
    history = InputHistory(max_characters=limit, max_inputs=3, max_input_characters=30)
    for count, (kernel_id, source) in enumerate(adds):
        history.add(kernel_id, count, source)
        held = [entry for each in "abc" for entry in history.of(each)]
        sizes = [len(entry.source) + INPUT_OVERHEAD for entry in held]
        assert sum(sizes) == history._characters <= limit
        assert all(len(history.of(each)) <= 3 for each in "abc")
        if len(source) <= 30:
            assert history.of(kernel_id)[-1].source == source


def test_many_short_inputs_of_many_kernels_are_bounded_too() -> None:
    history = InputHistory(max_characters=100 * INPUT_OVERHEAD)
    kernel_ids = [str(i) for i in range(50)]

    for kernel_id in kernel_ids:
        for count in range(10):
            history.add(kernel_id, count, "1")

    assert 90 <= sum(len(history.of(each)) for each in kernel_ids) <= 100


def test_a_forgotten_kernel_leaves_nothing() -> None:
    history = InputHistory()
    history.add("a", 1, "x")

    history.drop("a")
    history.drop("a")

    assert history.of("a") == []
    assert history._characters == 0
