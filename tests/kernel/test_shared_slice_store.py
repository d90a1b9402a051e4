"""Overlapping windows store elements once by shared slice; late elements restore ended windows as rows."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import StateError
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION, START
from strandline.kernel.state.slice_store import read_index
from strandline.kernel.step import PARTIAL
from strandline.kernel.watermarks import Control
from strandline.kernel.window import shared_slice_store, windows_from_slices
from strandline.kernel.window.panes import INDEX, LAST, TIMESTAMP, TIMING
from strandline.kernel.window.prepare import prepare
from strandline.model.panes import Emit, Lateness, LateRows
from tests.kernel.batches import KeyGroup, Score, asking, elements, refused, said

MINUTE = sl.sliding("60s", every="1s")
FEW = sl.sliding("4s", every="2s")

both_ways = pytest.mark.parametrize("combined", [False, True], ids=["one by one", "combined"])


def rows(group: KeyGroup) -> tuple[int, int]:
    """Return the number of window rows and of shared slices."""
    index = read_index(group.held)
    return sum(each.rows for each in index.store("slice").values()), sum(
        each.rows for each in index.store("strips").values()
    )


@both_ways
def test_an_element_of_sixty_windows_is_stored_once(combined: bool) -> None:
    group = KeyGroup(asking(window=MINUTE), combined)
    group.play(("red", 5, 0), ("red", 2, 999), ("blue", 1, 30_000))
    assert rows(group) == (0, 2)
    emitted = said(group.play(watermark=29_999), "team", START, "total")
    assert emitted == [("+", "red", start * 1_000, 7) for start in range(-59, -29)]
    assert rows(group) == (0, 2)
    rest = said(group.play(watermark=200_000), "team", START, "total")
    assert rest == [
        *(("+", "blue", start * 1_000, 1) for start in range(-29, 31)),
        *(("+", "red", start * 1_000, 7) for start in range(-29, 1)),
    ]
    assert list(group.held) == ["index"]


@both_ways
def test_a_late_element_reaches_ended_and_open_windows(combined: bool) -> None:
    group = KeyGroup(asking(window=FEW, accumulation=sl.accumulating, lateness=10_000), combined)
    group.play(("red", 5, 2_500))
    assert said(group.play(watermark=3_999)) == [("+", "red", 0, 5, "on_time")]
    assert rows(group) == (0, 1)
    assert said(group.play(("red", 2, 2_600))) == [("+", "red", 0, 7, "late")]
    assert rows(group) == (1, 1)
    assert said(group.play(watermark=5_999)) == [("+", "red", 2_000, 7, "on_time")]
    assert said(group.play(("red", 1, 3_000))) == [("+", "red", 0, 8, "late"), ("+", "red", 2_000, 8, "late")]


@pytest.mark.parametrize(
    ("how", "emitted"),
    [
        (sl.discarding, [("+", 2, "late", 1)]),
        (sl.accumulating, [("+", 7, "late", 1)]),
        (sl.retracting, [("-", 5, "on_time", 0), ("+", 7, "late", 1)]),
    ],
)
def test_a_restored_window_has_its_last_values(how: Any, emitted: list[Any]) -> None:
    group = KeyGroup(asking(window=FEW, accumulation=how, lateness=10_000))
    group.play(("red", 5, 500), watermark=3_999)
    assert said(group.play(("red", 2, 0)), "total", TIMING, INDEX)[-len(emitted) :] == emitted


def test_a_window_with_a_finished_trigger_rejects_elements_without_a_row() -> None:
    group = KeyGroup(asking(window=FEW, trigger=sl.after_watermark(), lateness=10_000))
    assert said(group.play(("red", 5, 500), watermark=3_999), START, LAST) == [("+", -2_000, True), ("+", 0, True)]
    assert rows(group) == (0, 1)
    late = group.play(("red", 2, 0))
    assert (refused(late), late.contributed, late.refused) == ([("red", 2, "closed")], 0, 1)


def test_an_element_is_late_only_for_the_windows_that_reject_it() -> None:
    step = asking(window=FEW)
    group = KeyGroup(replace(step, lateness=Lateness(step.lateness.allowed, LateRows.PER_WINDOW)))
    group.play(watermark=3_999)
    stepped = group.play(("red", 2, 3_000))
    assert stepped.late is not None
    assert stepped.late.select(START, PARTIAL).rows() == [(0, True)]
    assert (stepped.contributed, stepped.refused) == (1, 0)
    assert said(group.play(watermark=5_999)) == [("+", "red", 2_000, 2, "on_time")]


def test_windows_with_a_required_final_pane_get_a_row_when_they_end() -> None:
    group = KeyGroup(asking(window=FEW, final_pane=Emit.ALWAYS, lateness=1_000))
    group.play(("red", 5, 500), watermark=1_999)
    assert rows(group) == (1, 1)
    assert said(group.play(watermark=2_999), START, LAST) == [("+", -2_000, True)]
    assert rows(group) == (0, 1)


def test_only_touched_or_needed_slices_are_read_and_only_touched_ones_are_written() -> None:
    group = KeyGroup(asking(window=sl.sliding("4s", every="1s")))
    group.play(*(("red", 1, second * 1_000) for second in range(10)), watermark=-5_000)
    assert set(group.held) == {"index", *(f"strips:{number}" for number in range(10))}
    touched = group.play(("blue", 1, 7_500))
    assert group.reads == ["index", "strips:7"]
    assert set(touched.writes) == {"index", "strips:7"}
    due = group.play(watermark=2_999)
    assert group.reads == ["index", "strips:0", "strips:1", "strips:2"]
    assert set(due.writes) == {"index"}
    gone = group.play(watermark=3_999)
    assert group.reads == ["index", "strips:0", "strips:1", "strips:2", "strips:3"]
    assert gone.writes["strips:0"] is None
    quiet = group.play(watermark=4_500)
    assert group.reads == ["index"]
    assert set(quiet.writes) == {"index"}


def test_few_additions_go_to_the_side_block_and_many_rewrite_the_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_slice_store, "LARGE", 8)
    many: list[Score] = [(f"team {n}", 1, 500) for n in range(8)]
    group = KeyGroup(asking(window=MINUTE))
    group.play(*many)
    first = group.play(("team 3", 5, 600))
    assert group.reads == ["index"]
    assert set(first.writes) == {"index", "strips:beside"}
    assert rows(group) == (0, 8)
    emitted = said(group.play(watermark=999), "team", "total", "plays")
    assert emitted == [("+", f"team {n}", *((6, 2) if n == 3 else (1, 1))) for n in range(8)]
    second = group.play(("team 3", 2, 1_500), ("team 5", 1, 1_500))
    assert set(second.writes) == {"index", "strips:beside", "strips:0"}
    assert second.writes["strips:beside"] is None
    assert rows(group) == (0, 10)
    emitted = said(group.play(watermark=1_999), "team", "total")
    assert emitted == [("+", f"team {n}", {3: 8, 5: 2}.get(n, 1)) for n in range(8)]
    group.play(watermark=200_000)
    assert list(group.held) == ["index"]


def test_the_side_block_holds_the_output_watermark_back_and_expires_with_its_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_slice_store, "LARGE", 8)
    group = KeyGroup(asking(window=sl.sliding("48s", every="1s"), accumulation=sl.accumulating, lateness=5_000))
    group.play(*((f"team {n}", 1, 500) for n in range(16)))
    group.play(("late", 1, 2_500))
    assert set(group.held) == {"index", "strips:0", "strips:beside"}
    assert read_index(group.held).output_watermark < 0
    # The last window of the shared slices at 0 ends at 48 s, that of the one in the side block two seconds later.
    group.play(watermark=48_999)
    assert said(group.play(("late", 2, 2_900)), START, "total")[-1] == ("+", 1_000, 3)
    group.play(watermark=53_999)
    assert {each for each in group.held if each.startswith("strips")} == {"strips:beside"}
    assert said(group.play(("late", 4, 2_600)), START, "total") == [("+", 2_000, 7)]
    group.play(watermark=60_000)
    assert list(group.held) == ["index"]


def test_the_output_watermark_stays_below_the_next_window_that_will_fire() -> None:
    group = KeyGroup(asking(window=FEW))
    assert group.play(("red", 1, 500), watermark=1_000).output_watermark == 1_000
    assert group.play(watermark=1_998).output_watermark == 1_998
    assert group.play(watermark=3_000).output_watermark == 3_000
    assert group.play(watermark=9_000).output_watermark == 9_000


def test_shared_slices_behind_the_watermark_raise_an_error() -> None:
    group = KeyGroup(asking(window=FEW))
    group.play(watermark=50_000)
    parts = prepare(elements([("red", 5, 0)]), ["team"], group.step, 1, -1).blocks[0]
    with pytest.raises(StateError, match="already gone"):
        group.take([parts], Control(0))


def test_many_keys_are_combined_in_chunks_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scores: list[Score] = [(f"team {n % 7}", n, n * 997 % 9_000) for n in range(60)]
    once = KeyGroup(asking(window=FEW)).play(*scores, watermark=20_000).rows
    monkeypatch.setattr(windows_from_slices, "_CELLS", 16)
    chunked = KeyGroup(asking(window=FEW)).play(*scores, watermark=20_000).rows
    assert once is not None
    assert chunked is not None
    assert once.equals(chunked)
    assert once.equals(once.sort("team", START))
    assert once[TIMESTAMP].equals((once[START] + 3_999).alias(TIMESTAMP))


VALUES: dict[str, list[Any]] = {
    "whole": [3, None, -4, 7, 7, None, 0, 2],
    "fractions": [0.1, 0.2, None, float("nan"), 1e300, -1e300, 0.3, float("inf")],
    "texts": ["b", None, "a", "c", "a", "b", None, ""],
    "truths": [True, None, False, False, True, None, None, False],
}


def test_every_aggregate_is_the_same_from_shared_slices_as_from_elements() -> None:
    """Compare each window with the same elements in one window of their own."""
    count = len(VALUES["whole"])
    frame = pl.DataFrame(
        {
            "team": ["red", "blue"] * (count // 2),
            **VALUES,
            AT: [n * 700 for n in range(count)],
            PARTITION: ["0"] * count,
            OFFSET: list(range(count)),
        }
    )
    aggregates = (
        ("n", sl.count()),
        ("total", sl.sum("whole")),
        ("least", sl.min("fractions")),
        ("most", sl.max("fractions")),
        ("low", sl.min("whole")),
        ("high", sl.max("whole")),
        ("text", sl.max("texts")),
        ("mean", sl.mean("whole")),
        ("spread", sl.variance("whole")),
        ("any", sl.any_true("truths")),
        ("bits", sl.bit_xor("whole")),
        ("all", sl.collect("texts")),
        ("kinds", sl.count_distinct("texts")),
    )
    shared = KeyGroup(asking(window=FEW, aggregates=aggregates))
    emitted = shared.take(
        list(prepare(frame, ["team"], shared.step, 1, -5_000).blocks.values()), Control(0, drain=True)
    )
    assert emitted.rows is not None
    for row in emitted.rows.iter_rows(named=True):
        own_elements = frame.filter(
            pl.col(AT).is_between(row[START], row[START] + 3_999) & (pl.col("team") == row["team"])
        )
        single = KeyGroup(asking(window=sl.tumbling("1h", offset="30m"), aggregates=aggregates))
        blocks = list(prepare(own_elements, ["team"], single.step, 1, -5_000_000).blocks.values())
        panes = single.take(blocks, Control(0, drain=True)).rows
        assert panes is not None
        for name, _ in aggregates:
            assert row[name] == pytest.approx(panes[name].to_list()[0], nan_ok=True), (name, row[START])
