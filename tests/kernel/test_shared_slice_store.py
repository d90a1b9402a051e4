"""Elements that windows share: kept once, told from their strips, recalled when something comes late."""

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
    """Windows kept by themselves, and strips."""
    index = read_index(group.held)
    return sum(each.rows for each in index.store("slice").values()), sum(
        each.rows for each in index.store("strips").values()
    )


@both_ways
def test_an_element_of_sixty_windows_is_kept_once(combined: bool) -> None:
    group = KeyGroup(asking(window=MINUTE), combined)
    group.play(("red", 5, 0), ("red", 2, 999), ("blue", 1, 30_000))
    assert rows(group) == (0, 2)
    told = said(group.play(watermark=29_999), "team", START, "total")
    assert told == [("+", "red", start * 1_000, 7) for start in range(-59, -29)]
    assert rows(group) == (0, 2)
    rest = said(group.play(watermark=200_000), "team", START, "total")
    assert rest == [
        *(("+", "blue", start * 1_000, 1) for start in range(-29, 31)),
        *(("+", "red", start * 1_000, 7) for start in range(-29, 1)),
    ]
    assert list(group.held) == ["index"]


@both_ways
def test_a_late_element_reaches_the_windows_that_are_over_and_those_that_are_not(combined: bool) -> None:
    group = KeyGroup(asking(window=FEW, accumulation=sl.accumulating, lateness=10_000), combined)
    group.play(("red", 5, 2_500))
    assert said(group.play(watermark=3_999)) == [("+", "red", 0, 5, "on_time")]
    assert rows(group) == (0, 1)
    assert said(group.play(("red", 2, 2_600))) == [("+", "red", 0, 7, "late")]
    assert rows(group) == (1, 1)
    assert said(group.play(watermark=5_999)) == [("+", "red", 2_000, 7, "on_time")]
    assert said(group.play(("red", 1, 3_000))) == [("+", "red", 0, 8, "late"), ("+", "red", 2_000, 8, "late")]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (sl.discarding, [("+", 2, "late", 1)]),
        (sl.accumulating, [("+", 7, "late", 1)]),
        (sl.retracting, [("-", 5, "on_time", 0), ("+", 7, "late", 1)]),
    ],
)
def test_a_window_that_comes_back_knows_what_it_said(how: Any, told: list[Any]) -> None:
    group = KeyGroup(asking(window=FEW, accumulation=how, lateness=10_000))
    group.play(("red", 5, 500), watermark=3_999)
    assert said(group.play(("red", 2, 0)), "total", TIMING, INDEX)[-len(told) :] == told


def test_a_window_whose_trigger_has_finished_refuses_without_having_a_row() -> None:
    group = KeyGroup(asking(window=FEW, trigger=sl.after_watermark(), lateness=10_000))
    assert said(group.play(("red", 5, 500), watermark=3_999), START, LAST) == [("+", -2_000, True), ("+", 0, True)]
    assert rows(group) == (0, 1)
    late = group.play(("red", 2, 0))
    assert (refused(late), late.contributed, late.refused) == ([("red", 2, "closed")], 0, 1)


def test_an_element_is_told_as_late_for_the_windows_that_refuse_it_only() -> None:
    step = asking(window=FEW)
    group = KeyGroup(replace(step, lateness=Lateness(step.lateness.allowed, LateRows.PER_WINDOW)))
    group.play(watermark=3_999)
    stepped = group.play(("red", 2, 3_000))
    assert stepped.late is not None
    assert stepped.late.select(START, PARTIAL).rows() == [(0, True)]
    assert (stepped.contributed, stepped.refused) == (1, 0)
    assert said(group.play(watermark=5_999)) == [("+", "red", 2_000, 2, "on_time")]


def test_windows_that_must_speak_when_they_close_are_kept_by_themselves_once_they_have_ended() -> None:
    group = KeyGroup(asking(window=FEW, final_pane=Emit.ALWAYS, lateness=1_000))
    group.play(("red", 5, 500), watermark=1_999)
    assert rows(group) == (1, 1)
    assert said(group.play(watermark=2_999), START, LAST) == [("+", -2_000, True)]
    assert rows(group) == (0, 1)


def test_only_strips_that_are_touched_or_needed_are_read_and_only_touched_ones_are_written() -> None:
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


def test_what_comes_to_few_of_many_strips_goes_beside_them_and_they_take_it_in_when_it_is_much(
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
    told = said(group.play(watermark=999), "team", "total", "plays")
    assert told == [("+", f"team {n}", *((6, 2) if n == 3 else (1, 1))) for n in range(8)]
    second = group.play(("team 3", 2, 1_500), ("team 5", 1, 1_500))
    assert set(second.writes) == {"index", "strips:beside", "strips:0"}
    assert second.writes["strips:beside"] is None
    assert rows(group) == (0, 10)
    told = said(group.play(watermark=1_999), "team", "total")
    assert told == [("+", f"team {n}", {3: 8, 5: 2}.get(n, 1)) for n in range(8)]
    group.play(watermark=200_000)
    assert list(group.held) == ["index"]


def test_what_is_beside_slices_holds_the_output_back_and_goes_when_its_windows_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_slice_store, "LARGE", 8)
    group = KeyGroup(asking(window=sl.sliding("48s", every="1s"), accumulation=sl.accumulating, lateness=5_000))
    group.play(*((f"team {n}", 1, 500) for n in range(16)))
    group.play(("late", 1, 2_500))
    assert set(group.held) == {"index", "strips:0", "strips:beside"}
    assert read_index(group.held).output_watermark < 0
    # The last window of the strips at 0 is over at 48 s, that of the strip beside them two seconds later.
    group.play(watermark=48_999)
    assert said(group.play(("late", 2, 2_900)), START, "total")[-1] == ("+", 1_000, 3)
    group.play(watermark=53_999)
    assert {each for each in group.held if each.startswith("strips")} == {"strips:beside"}
    assert said(group.play(("late", 4, 2_600)), START, "total") == [("+", 2_000, 7)]
    group.play(watermark=60_000)
    assert list(group.held) == ["index"]


def test_the_output_watermark_stays_below_the_next_window_that_will_speak() -> None:
    group = KeyGroup(asking(window=FEW))
    assert group.play(("red", 1, 500), watermark=1_000).output_watermark == 1_000
    assert group.play(watermark=1_998).output_watermark == 1_998
    assert group.play(watermark=3_000).output_watermark == 3_000
    assert group.play(watermark=9_000).output_watermark == 9_000


def test_strips_behind_the_watermark_are_a_defect_and_stop_the_job() -> None:
    group = KeyGroup(asking(window=FEW))
    group.play(watermark=50_000)
    parts = prepare(elements([("red", 5, 0)]), ["team"], group.step, 1, -1).blocks[0]
    with pytest.raises(StateError, match="already gone"):
        group.take([parts], Control(0))


def test_many_keys_are_spread_a_few_at_a_time_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scores: list[Score] = [(f"team {n % 7}", n, n * 997 % 9_000) for n in range(60)]
    once = KeyGroup(asking(window=FEW)).play(*scores, watermark=20_000).rows
    monkeypatch.setattr(windows_from_slices, "_CELLS", 16)
    apart = KeyGroup(asking(window=FEW)).play(*scores, watermark=20_000).rows
    assert once is not None
    assert apart is not None
    assert once.equals(apart)
    assert once.equals(once.sort("team", START))
    assert once[TIMESTAMP].equals((once[START] + 3_999).alias(TIMESTAMP))


VALUES: dict[str, list[Any]] = {
    "whole": [3, None, -4, 7, 7, None, 0, 2],
    "fractions": [0.1, 0.2, None, float("nan"), 1e300, -1e300, 0.3, float("inf")],
    "texts": ["b", None, "a", "c", "a", "b", None, ""],
    "truths": [True, None, False, False, True, None, None, False],
}


def test_every_aggregate_is_told_from_strips_as_from_its_elements() -> None:
    """Each window against the same elements in a window of their own."""
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
    told = shared.take(list(prepare(frame, ["team"], shared.step, 1, -5_000).blocks.values()), Control(0, drain=True))
    assert told.rows is not None
    for row in told.rows.iter_rows(named=True):
        mine = frame.filter(pl.col(AT).is_between(row[START], row[START] + 3_999) & (pl.col("team") == row["team"]))
        alone = KeyGroup(asking(window=sl.tumbling("1h", offset="30m"), aggregates=aggregates))
        blocks = list(prepare(mine, ["team"], alone.step, 1, -5_000_000).blocks.values())
        panes = alone.take(blocks, Control(0, drain=True)).rows
        assert panes is not None
        for name, _ in aggregates:
            assert row[name] == pytest.approx(panes[name].to_list()[0], nan_ok=True), (name, row[START])
