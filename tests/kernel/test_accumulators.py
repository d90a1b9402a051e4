"""Accumulators: combine elements, merge partial results and compute values for all keys and windows at once."""

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import strandline as sl
from strandline.kernel.aggregation import accumulators
from strandline.kernel.aggregation.accumulators import (
    ELEMENTS,
    TURN,
    Combined,
    combine,
    identity,
    items_of,
    merge_rows,
    parts_of,
    together,
    with_values,
)
from strandline.kernel.blocks.block import AT, COUNTED, EARLIEST, END, NEW, NEWEST, OFFSET, PARTITION, START, TIME
from strandline.kernel.window.assign import assign
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep
from tests.kernel.batches import Score, asking, elements

SCORES: list[Score] = [("red", 5, 1_000), ("blue", 3, 2_000), ("red", 7, 9_999), ("red", 2, 10_000), (None, 1, 500)]
BOTH = (("total", sl.sum("score")), ("all", sl.collect("score")))


def placed(step: WindowedStep, scores: list[Score] = SCORES) -> pl.DataFrame:
    return assign(elements(scores), step.window)


def combined(step: WindowedStep, scores: list[Score] = SCORES) -> Combined:
    return combine(placed(step, scores), ["team"], step)


def by_team(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.sort(*identity(["team"])).select("team", START, *columns).rows()


def test_combining_gives_one_row_per_window_and_one_item_per_collected_value() -> None:
    found = combined(asking(aggregates=BOTH))
    assert by_team(found.rows, NEW, "@total") == [
        (None, 0, 1, 1),
        ("blue", 0, 1, 3),
        ("red", 0, 2, 12),
        ("red", 10_000, 1, 2),
    ]
    assert by_team(found.items["all"], "@value") == [
        (None, 0, 1),
        ("blue", 0, 3),
        ("red", 0, 5),
        ("red", 0, 7),
        ("red", 10_000, 2),
    ]


def test_an_element_of_several_windows_is_counted_in_the_last_of_them() -> None:
    step = asking(window=sl.sliding(seconds=10, every="5s"))
    found = combined(step, [("red", 1, 7_000), ("red", 2, 11_000)])
    assert NEWEST in placed(step).columns
    assert by_team(found.rows, NEW, COUNTED) == [("red", 0, 1, 0), ("red", 5_000, 2, 1), ("red", 10_000, 1, 1)]


def test_earliest_and_time_are_kept_only_by_steps_that_read_them() -> None:
    plain = combined(asking())
    assert {EARLIEST, TIME}.isdisjoint(plain.rows.columns)
    by_event_time = combined(asking(trigger=sl.repeatedly(sl.after_event_time(seconds=1))))
    assert by_team(by_event_time.rows, EARLIEST)[2] == ("red", 0, 1_000)


@pytest.mark.parametrize(("how", "time"), [(PaneTimestamp.EARLIEST, 1_000), (PaneTimestamp.LATEST, 9_999)])
def test_an_element_based_pane_timestamp_is_combined_and_merged(how: PaneTimestamp, time: int) -> None:
    step = asking(pane_timestamp=how)
    assert by_team(combined(step).rows, TIME)[2] == ("red", 0, time)
    pieces = [combined(step, [score]).rows for score in SCORES]
    assert by_team(merge_rows(pieces, ["team"], step), TIME)[2] == ("red", 0, time)


def test_merging_parts_of_several_tasks_equals_combining_in_one_task() -> None:
    step = asking(aggregates=BOTH, trigger=sl.repeatedly(sl.after_event_time(seconds=1)))
    whole, pieces = combined(step), [combined(step, SCORES[:2]), combined(step, SCORES[2:])]
    rows = merge_rows([piece.rows for piece in pieces], ["team"], step)
    assert_frame_equal(rows.sort(identity(["team"])), whole.rows.sort(identity(["team"])))
    (kind,) = items_of(step).values()
    items = together([piece.items["all"] for piece in pieces], ["team"], kind)
    assert sorted(items["@value"].to_list()) == sorted(whole.items["all"]["@value"].to_list())


@pytest.mark.parametrize("windows", [3, 500], ids=["few windows", "many windows"])
def test_grouping_gives_the_same_rows_for_few_and_for_many_windows(
    windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = asking(aggregates=BOTH)
    scores: list[Score] = [(f"team {n % 7}" if n % 11 else None, n, n % windows * 10_000) for n in range(2_000)]
    names = identity(["team"])
    plain = combined(step, scores).rows.sort(names)
    monkeypatch.setattr(accumulators, "_WORTH_IT", 0)
    assert_frame_equal(combined(step, scores).rows.sort(names), plain)


def test_keys_may_be_several_columns_or_also_item_columns() -> None:
    step = asking(aggregates=(("times", sl.collect("team")),), evictor=sl.keep_last(1))
    frame = placed(step).with_columns(pl.lit(0, pl.Int64).alias(TURN))
    found = combine(frame, ["team"], step).items[ELEMENTS]
    assert found.columns.count("team") == 1
    two = combine(placed(asking()).with_columns(level=pl.lit(1)), ["team", "level"], asking())
    assert two.rows.columns[:4] == ["team", "level", START, END]


def test_a_step_with_an_evictor_keeps_elements_only() -> None:
    step = asking(evictor=sl.keep_delta("last.level - level", bound=3), aggregates=(("total", sl.sum("score")),))
    assert parts_of(step) == ()
    (kind,) = items_of(step).values()
    assert sorted(kind.made) == [AT, OFFSET, PARTITION, TURN, "level", "score"]


def test_top_k_and_first_keep_their_limit_after_every_merge() -> None:
    step = asking(aggregates=(("best", sl.top_k("score", 2)), ("oldest", sl.first("score"))))
    pieces = [combined(step, [("red", score, 9_000 - score)]) for score in (4, 9, 1, 7)]
    items = pieces[0].items["best"]
    for piece in pieces[1:]:
        items = together([items, piece.items["best"]], ["team"], items_of(step)["best"])
    assert sorted(items["@value"].to_list()) == [7, 9]
    assert merge_rows([each.rows for each in pieces], ["team"], step)["@oldest"].to_list() == [9]


def values_of(step: WindowedStep, found: Combined) -> list[tuple[Any, ...]]:
    values = with_values(found.rows, found.items, ["team"], step, "@now.")
    return by_team(values, *(f"@now.{name}" for name, _ in step.aggregates))


def test_values_are_computed_from_accumulators() -> None:
    step = asking(aggregates=(*BOTH, ("best", sl.top_k("score", 1)), ("kinds", sl.count_distinct("score"))))
    assert values_of(step, combined(step)) == [
        (None, 0, 1, [1], [1], 1),
        ("blue", 0, 3, [3], [3], 1),
        ("red", 0, 12, [5, 7], [7], 2),
        ("red", 10_000, 2, [2], [2], 1),
    ]


def test_a_window_without_items_has_the_empty_values_of_its_aggregates() -> None:
    longest = sl.UserAggregate("score", list, lambda kept, value: [*kept, value], len, name="how many")
    step = asking(
        aggregates=(
            ("all", sl.collect("score")),
            ("best", sl.top_k("score", 1)),
            ("many", longest),
        )
    )
    found = combined(step)
    nothing: tuple[Any, ...] = ([], [], 0)
    assert values_of(step, Combined(found.rows, {})) == [(*row[:2], *nothing) for row in by_team(found.rows)]
    others = {name: items.filter(pl.col("team") == "blue") for name, items in found.items.items()}
    some = values_of(step, Combined(found.rows, others))
    assert some[1] == ("blue", 0, [3], [3], 1)
    assert some[2] == ("red", 0, *nothing)


@pytest.mark.parametrize("key", ["text", "number"])
@pytest.mark.parametrize("largest", [1_000, 2**62], ids=["small sums", "overflowing sums"])
@pytest.mark.parametrize("different", [3, 9_000])
def test_every_grouping_strategy_gives_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, key: str, largest: int, different: int
) -> None:
    number = pl.int_range(15_000, dtype=pl.Int64)
    drawn = (number * 7_919) % different
    team = pl.when(drawn > 0).then(drawn if key == "number" else pl.concat_str(pl.lit("team "), drawn))
    frame = pl.select(team.alias("team"), ((number * largest) // 15_000).alias("score"), (number * 3).alias("at"))
    step = asking(aggregates=(("total", sl.sum("score")), ("plays", sl.count()), ("best", sl.max("score"))))
    spread = assign(frame.select("team", "score", pl.col("at").alias(AT)), step.window)
    fast = combine(spread, ["team"], step).rows
    monkeypatch.setattr(accumulators, "_WORTH_IT", 10**9)
    plain = combine(spread, ["team"], step).rows
    assert fast.height > different
    assert_frame_equal(fast.sort(identity(["team"])), plain.sort(identity(["team"])), check_column_order=False)
    monkeypatch.undo()
    both = merge_rows([fast, plain], ["team"], step)
    monkeypatch.setattr(accumulators, "_WORTH_IT", 10**9)
    again = merge_rows([plain, fast], ["team"], step)
    assert_frame_equal(both.sort(identity(["team"])), again.sort(identity(["team"])), check_column_order=False)
