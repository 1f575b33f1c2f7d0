"""The ladder: from identical to skipped, with a reason for everything that is not the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kernel_gateway.replay.cells import Execution
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import FirstDifference, Standing, Verdict
from tests.unit.replay.examples import (
    RULES,
    display,
    encoded,
    error,
    pair,
    png,
    png_bomb,
    ran,
    result,
    stream,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
MIMES = st.sampled_from(
    ["text/plain", "text/html", "image/png", "image/jpeg", "image/svg+xml", "application/json",
     "application/x+json", "video/mp4"]
)  # fmt: skip
OUTPUTS = st.lists(
    st.builds(stream, st.text(), st.sampled_from(["stdout", "stderr"]))
    | st.builds(error, st.text(), st.text(), st.lists(st.text()))
    | st.builds(result, st.text(), st.integers(0, 99))
    | st.builds(
        lambda data, metadata: {"output_type": "display_data", "data": data, "metadata": metadata},
        st.dictionaries(MIMES, st.text() | JSON, max_size=3),
        st.dictionaries(st.text(), JSON, max_size=2),
    )
    | st.dictionaries(st.text(), JSON, max_size=3),
    max_size=4,
)


def verdict_of(one: Execution, other: Execution, **options: Any) -> Verdict:
    return compared(pair(one, other, **options), RULES)


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.all_reasons]


@given(OUTPUTS)
def test_whatever_a_cell_gave_is_identical_to_itself(outputs: list[dict[str, Any]]) -> None:
    again = json.loads(json.dumps(outputs))
    verdict = verdict_of(ran(*outputs, state={}), ran(*again, state={}))
    assert verdict.standing is Standing.IDENTICAL
    assert verdict.all_reasons == ()


@given(OUTPUTS, OUTPUTS)
def test_any_two_runs_can_be_compared_and_either_way_round(
    one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> None:
    there = verdict_of(ran(*one), ran(*other))
    back = verdict_of(ran(*other), ran(*one))
    assert there.standing is back.standing
    assert (there.standing is Standing.IDENTICAL) == (there.all_reasons == ())


def test_text_that_another_program_wrote_as_lines_is_the_same() -> None:
    lines = {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}
    assert verdict_of(ran(stream("a\nb\n")), ran(lines)).standing is Standing.IDENTICAL


def test_streams_that_were_flushed_at_other_times_are_equivalent() -> None:
    one = ran(stream("a\nb\n"), stream("e\n", "stderr"), result("1"))
    other = ran(stream("a\n"), stream("e\n", "stderr"), stream("b\n"), result("1"))
    verdict = verdict_of(one, other)
    assert verdict.standing is Standing.EQUIVALENT
    assert codes(verdict) == ["stream-coalesced"]


def test_text_on_the_other_stream_differs() -> None:
    verdict = verdict_of(ran(stream("a")), ran(stream("a", "stderr")))
    assert verdict.standing is Standing.DIFFERENT
    assert codes(verdict) == ["output-missing", "output-added"]


def test_a_rule_makes_equivalent_and_is_named_with_its_place() -> None:
    one, other = result("<T at 0x7f3a5c0b1d90>"), result("<T at 0x7f3a5c0b1d91>")
    verdict = verdict_of(ran(one), ran(other))
    assert verdict.standing is Standing.EQUIVALENT
    (reason,) = verdict.all_reasons
    assert (reason.code, reason.where) == ("sanitised:address", "output 1, text/plain")


def test_the_first_line_that_counts_is_reported_not_one_that_a_rule_allows() -> None:
    one = stream("start\ntook 1.5 s\nmean 3\n")
    other = stream("start\ntook 2.5 s\nmean 4\n")
    verdict = verdict_of(ran(one), ran(other))
    assert verdict.standing is Standing.DIFFERENT
    assert verdict.first == FirstDifference(where="stdout", recorded="mean 3", replayed="mean 4")


def test_the_order_of_a_set_is_a_difference() -> None:
    verdict = verdict_of(ran(result("{'a', 'b'}")), ran(result("{'b', 'a'}")))
    assert verdict.standing is Standing.DIFFERENT


def test_another_execution_count_is_equivalent() -> None:
    verdict = verdict_of(ran(result("1", count=7)), ran(result("1", count=1)))
    assert verdict.standing is Standing.EQUIVALENT
    assert codes(verdict) == ["execution-count"]


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        (display(text_plain="x", text_html="<b>"), display(text_plain="x"), "mime-missing"),
        (display(text_plain="x"), display(text_plain="x", text_html="<b>"), "mime-added"),
        (display(text_plain="x"), result("x"), "type-differs"),
        (error("KeyError", "'a'"), error("TypeError", "'a'"), "error-differs"),
        (error("KeyError", "'a'"), error("KeyError", "'b'"), "text-differs"),
        (error("E", "", ["line 1"]), error("E", "", ["line 2"]), "text-differs"),
        (display(json={"a": 1}), display(json={"a": 2}), "text-differs"),
        (display(video_mp4="AAAA"), display(video_mp4="AAAB"), "bytes-differ"),
        (stream("x"), stream("x\n"), "text-differs"),
        ({"output_type": "new", "x": 1}, {"output_type": "new", "x": 2}, "text-differs"),
        (
            {**display(text_plain="x"), "metadata": {"width": 1}},
            {**display(text_plain="x"), "metadata": {"width": 2}},
            "metadata-differs",
        ),
    ],
)
def test_each_kind_of_difference_has_its_code(
    one: dict[str, Any], other: dict[str, Any], code: str
) -> None:
    verdict = verdict_of(ran(one), ran(other))
    assert verdict.standing is Standing.DIFFERENT
    assert codes(verdict) == [code]


def test_the_order_of_keys_in_json_is_none() -> None:
    one, other = {"a": 1, "b": [1.0]}, {"b": [1], "a": 1}
    assert verdict_of(ran(display(json=one)), ran(display(json=other))).standing is (
        Standing.IDENTICAL
    )


def test_an_output_more_is_found_where_it_is() -> None:
    three = [display(text_plain=name) for name in "abc"]
    verdict = verdict_of(ran(*three), ran(display(text_plain="new"), *three))
    (reason,) = verdict.all_reasons
    assert (reason.code, reason.where) == ("output-added", "output 1")
    assert verdict.first == FirstDifference(where="output 1", recorded=None, replayed="new")


def test_images_with_the_same_pixels_are_equivalent() -> None:
    image = Image.linear_gradient("L").convert("RGB")
    one, other = png(image, compress_level=1), png(image, compress_level=9)
    assert one != other
    verdict = verdict_of(ran(display(image_png=one)), ran(display(image_png=other)))
    assert verdict.standing is Standing.EQUIVALENT
    assert codes(verdict) == ["pixels-equal"]


def test_one_pixel_is_a_difference() -> None:
    image = Image.new("RGB", (10, 10), "white")
    changed = image.copy()
    changed.putpixel((3, 3), (255, 255, 254))
    verdict = verdict_of(ran(display(image_png=png(image))), ran(display(image_png=png(changed))))
    assert verdict.standing is Standing.DIFFERENT
    (reason,) = verdict.all_reasons
    assert (reason.code, reason.detail) == ("pixels-differ", "1 of 100 pixels differ")


def test_sixteen_bits_a_pixel_are_not_cut_to_eight() -> None:
    images = [Image.new("I;16", (4, 4), value) for value in (1000, 1001)]
    one, other = (ran(display(image_png=png(image))) for image in images)
    assert codes(verdict_of(one, other)) == ["pixels-differ"]


def test_images_of_other_sizes_say_so() -> None:
    one, other = (png(Image.new("L", (width, 5))) for width in (4, 5))
    (reason,) = verdict_of(ran(display(image_png=one)), ran(display(image_png=other))).all_reasons
    assert reason.detail == "4 x 5 became 5 x 5 pixels"


def test_base64_that_is_broken_into_lines_is_the_same_image() -> None:
    text = png(Image.new("L", (40, 40)))
    broken = f"{text[:20]}\n{text[20:]}\n"
    verdict = verdict_of(ran(display(image_png=text)), ran(display(image_png=broken)))
    assert codes(verdict) == ["written-otherwise"]
    assert verdict.standing is Standing.EQUIVALENT


@pytest.mark.parametrize(
    "hostile",
    [
        png_bomb(60_000),
        png_bomb(4_100),
        png_bomb(64)[:60],
        "not base64!",
        "é",
        "",
        encoded(Image.new("L", (3, 3)), "GIF"),
    ],
)
def test_an_image_that_must_not_be_decoded_is_different_and_says_why(hostile: str) -> None:
    good = png(Image.new("L", (4, 4)))
    verdict = verdict_of(ran(display(image_png=good)), ran(display(image_png=hostile)))
    (reason,) = verdict.all_reasons
    assert reason.code == "bytes-differ"
    assert reason.detail.startswith("not compared by pixels: ")


def test_a_second_frame_is_not_overlooked() -> None:
    first, second, third = (Image.new("RGB", (4, 4), colour) for colour in ("red", "green", "blue"))
    one = png(first, save_all=True, append_images=[second])
    other = png(first, save_all=True, append_images=[third])
    verdict = verdict_of(ran(display(image_png=one)), ran(display(image_png=other)))
    assert verdict.standing is Standing.DIFFERENT


def test_outputs_nested_without_end_are_not_comparable() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    verdict = verdict_of(ran(display(json=deep)), ran(display(json=[])))
    assert verdict.standing is Standing.DIFFERENT
    assert codes(verdict) == ["not-comparable"]


def test_many_reasons_are_bounded() -> None:
    one = ran(files={f"f{number}": "a" for number in range(5000)})
    verdict = verdict_of(one, ran())
    assert verdict.files is not None
    assert len(verdict.files.reasons) == 200
    assert verdict.files.reasons[-1].detail == "4,801 reasons more"


def test_files_decide_and_each_is_named() -> None:
    one = ran(files={"same": "1", "other": "2", "gone": "3", "rm": None, "kept": "4"})
    other = ran(files={"same": "1", "other": "9", "new": "3", "rm": "5", "kept": None})
    verdict = verdict_of(one, other)
    assert verdict.standing is Standing.DIFFERENT
    assert [(reason.code, reason.where) for reason in verdict.all_reasons] == [
        ("file-missing", "gone"),
        ("file-deleted", "kept"),
        ("file-added", "new"),
        ("file-differs", "other"),
        ("file-not-deleted", "rm"),
    ]


def test_state_is_reported_and_does_not_decide() -> None:
    verdict = verdict_of(ran(state={"x": "1", "y": "2"}), ran(state={"x": "3", "z": "2"}))
    assert verdict.standing is Standing.IDENTICAL
    assert verdict.state is not None
    assert verdict.state.standing is Standing.DIFFERENT
    assert codes(verdict) == ["state-differs", "state-missing", "state-added"]


def test_state_that_is_not_known_has_no_verdict() -> None:
    assert verdict_of(ran(state={}), ran(state=None)).state is None


ENDS = {
    "ok": ran(stream("1\n")),
    "error": ran(error("KeyError", "'a'"), status="error", ename="KeyError"),
    "lost": ran(status="lost", ename="CellTimeout"),
}


@pytest.mark.parametrize(
    ("recorded", "replayed", "standing"),
    [
        ("ok", "ok", Standing.IDENTICAL),
        ("error", "error", Standing.IDENTICAL),
        ("lost", "lost", Standing.IDENTICAL),
        ("ok", "error", Standing.FAILED),
        ("ok", "lost", Standing.FAILED),
        ("error", "lost", Standing.FAILED),
        ("error", "ok", Standing.FIXED),
        ("lost", "ok", Standing.FIXED),
        ("lost", "error", Standing.DIFFERENT),
    ],
)
def test_how_a_cell_ended_decides_first(recorded: str, replayed: str, standing: Standing) -> None:
    assert verdict_of(ENDS[recorded], ENDS[replayed]).standing is standing


def test_another_failure_is_a_difference_even_without_output() -> None:
    one, other = (ran(status="lost", ename=name) for name in ("CellTimeout", "CellOutOfMemory"))
    verdict = verdict_of(one, other)
    assert verdict.standing is Standing.DIFFERENT
    assert verdict.reasons[0].detail == "lost (CellTimeout) became lost (CellOutOfMemory)"


@pytest.mark.parametrize(
    ("tags", "recorded", "replayed", "standing"),
    [
        (["nbval-ignore-output"], ran(stream("1")), ran(stream("2")), Standing.DECLARED),
        (["nbval-ignore-output"], ran(stream("1")), ran(stream("1")), Standing.IDENTICAL),
        (
            ["nbval-ignore-output"],
            ran(stream("took 1 s")),
            ran(stream("took 2 s")),
            Standing.EQUIVALENT,
        ),
        # Only its outputs are declared, not its files and not that it raises.
        (["nbval-ignore-output"], ran(files={"a": "1"}), ran(files={"a": "2"}), Standing.DIFFERENT),
        (["nbval-ignore-output"], ENDS["ok"], ENDS["error"], Standing.FAILED),
        (["raises-exception"], ENDS["ok"], ENDS["error"], Standing.DIFFERENT),
        (["raises-exception"], ENDS["error"], ENDS["ok"], Standing.DIFFERENT),
        (["raises-exception"], ENDS["error"], ENDS["error"], Standing.IDENTICAL),
        (["raises-exception"], ENDS["ok"], ENDS["lost"], Standing.FAILED),
        (
            ["nbval-raises-exception", "nbval-ignore-output"],
            ENDS["ok"],
            ENDS["error"],
            Standing.DECLARED,
        ),
        (["nbval-check-output"], ran(stream("1")), ran(stream("2")), Standing.DIFFERENT),
        (["nbval-skip"], ran(stream("1")), ran(stream("2")), Standing.SKIPPED),
    ],
)
def test_what_an_author_declared_is_honoured_as_nbval_does(
    tags: list[str], recorded: Execution, replayed: Execution, standing: Standing
) -> None:
    assert verdict_of(recorded, replayed, tags=tuple(tags)).standing is standing


@pytest.mark.parametrize(
    ("reason", "standing", "detail"),
    [
        ("unavailable: a.csv is gone", Standing.UNAVAILABLE, "a.csv is gone"),
        ("not-replayable: a comm message", Standing.NOT_REPLAYABLE, "a comm message"),
        ("skipped: not in --only", Standing.SKIPPED, "not in --only"),
    ],
)
def test_a_cell_that_was_not_run_says_why(reason: str, standing: Standing, detail: str) -> None:
    verdict = compared(pair(ran(), None, reason=reason), RULES)
    assert verdict.standing is standing
    assert verdict.reasons[0].detail == detail
    assert (verdict.outputs, verdict.files, verdict.state) == (None, None, None)


def test_without_a_recorded_file_a_cell_is_the_same_or_unavailable_never_different() -> None:
    same, other = ran(stream("1\n")), ran(stream("2\n"))
    raised = ran(error("FileNotFoundError"), status="error", ename="FileNotFoundError")
    missing = {"in.csv": "in.csv (version v1) is not kept any more"}
    for replayed, standing in (
        (same, Standing.IDENTICAL),
        (other, Standing.UNAVAILABLE),
        (raised, Standing.UNAVAILABLE),
    ):
        verdict = compared(pair(same, replayed, missing=missing), RULES)
        assert verdict.standing is standing
        assert ("input-missing", "in.csv") in [(r.code, r.where) for r in verdict.reasons]


def test_without_a_recorded_connector_a_cell_is_the_same_or_unavailable_and_names_the_option() -> (
    None
):
    raised = ran(error("KeyError", "'CONN_gh_TOKEN'"), status="error", ename="KeyError")
    for replayed, standing in ((ran(), Standing.IDENTICAL), (raised, Standing.UNAVAILABLE)):
        verdict = compared(pair(ran(), replayed, withheld=("gh",)), RULES)
        assert verdict.standing is standing
        assert (verdict.reasons[-1].code, verdict.reasons[-1].where) == ("connector-withheld", "gh")
        assert "--with-connectors" in verdict.reasons[-1].detail


def test_a_cell_behind_one_that_missed_a_file_is_compared_and_says_so() -> None:
    same, other = ran(stream("1\n")), ran(stream("2\n"))
    for replayed, standing in ((same, Standing.IDENTICAL), (other, Standing.DIFFERENT)):
        verdict = compared(pair(same, replayed, after=1), RULES)
        assert (verdict.standing, verdict.reasons[-1].code) == (standing, "after-input-missing")


def test_a_cell_that_fails_says_with_which_message() -> None:
    raised = ran(error("OSError", "no\n space " + "x" * 300), status="error", ename="OSError")
    verdict = compared(pair(ran(), raised), RULES)
    assert verdict.reasons[0].detail.startswith("ok became error (OSError: no space xxx")
    assert len(verdict.reasons[0].detail) < 250


def test_a_reason_that_is_none_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no such reason: 'whatever'"):
        compared(pair(ran(), None, reason="whatever"), RULES)


def test_a_record_without_an_end_cannot_be_compared() -> None:
    verdict = compared(pair(None, ran()), RULES)
    assert verdict.standing is Standing.NOT_REPLAYABLE
    assert codes(verdict) == ["never-ended"]


def test_without_rules_only_streams_and_pixels_are_forgiven() -> None:
    cell = pair(ran(stream("took 1 s")), ran(stream("took 2 s")))
    assert compared(cell, Rules()).standing is Standing.DIFFERENT
