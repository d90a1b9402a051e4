"""What windows hold: combined from elements, merged from parts, and told, for every key and window at once."""

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


def placed(ask: WindowedStep, scores: list[Score] = SCORES) -> pl.DataFrame:
    return assign(elements(scores), ask.window)


def combined(ask: WindowedStep, scores: list[Score] = SCORES) -> Combined:
    return combine(placed(ask, scores), ["team"], ask)


def by_team(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.sort(*identity(["team"])).select("team", START, *columns).rows()


def test_a_window_has_one_row_and_as_many_items_as_it_holds() -> None:
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
    ask = asking(window=sl.sliding(seconds=10, every="5s"))
    found = combined(ask, [("red", 1, 7_000), ("red", 2, 11_000)])
    assert NEWEST in placed(ask).columns
    assert by_team(found.rows, NEW, COUNTED) == [("red", 0, 1, 0), ("red", 5_000, 2, 1), ("red", 10_000, 1, 1)]


def test_what_only_some_steps_need_only_they_keep() -> None:
    plain = combined(asking())
    assert {EARLIEST, TIME}.isdisjoint(plain.rows.columns)
    by_event_time = combined(asking(trigger=sl.repeatedly(sl.after_event_time(seconds=1))))
    assert by_team(by_event_time.rows, EARLIEST)[2] == ("red", 0, 1_000)


@pytest.mark.parametrize(("how", "time"), [(PaneTimestamp.EARLIEST, 1_000), (PaneTimestamp.LATEST, 9_999)])
def test_a_pane_time_that_goes_by_elements_is_combined_with_them(how: PaneTimestamp, time: int) -> None:
    ask = asking(pane_timestamp=how)
    assert by_team(combined(ask).rows, TIME)[2] == ("red", 0, time)
    pieces = [combined(ask, [score]).rows for score in SCORES]
    assert by_team(merge_rows(pieces, ["team"], ask), TIME)[2] == ("red", 0, time)


def test_parts_from_several_tasks_merge_to_what_one_task_would_have_combined() -> None:
    ask = asking(aggregates=BOTH, trigger=sl.repeatedly(sl.after_event_time(seconds=1)))
    whole, pieces = combined(ask), [combined(ask, SCORES[:2]), combined(ask, SCORES[2:])]
    rows = merge_rows([piece.rows for piece in pieces], ["team"], ask)
    assert_frame_equal(rows.sort(identity(["team"])), whole.rows.sort(identity(["team"])))
    (kind,) = items_of(ask).values()
    items = together([piece.items["all"] for piece in pieces], ["team"], kind)
    assert sorted(items["@value"].to_list()) == sorted(whole.items["all"]["@value"].to_list())


@pytest.mark.parametrize("windows", [3, 500], ids=["few windows", "many windows"])
def test_however_many_windows_there_are_grouping_gives_the_same(windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asking(aggregates=BOTH)
    scores: list[Score] = [(f"team {n % 7}" if n % 11 else None, n, n % windows * 10_000) for n in range(2_000)]
    names = identity(["team"])
    plain = combined(ask, scores).rows.sort(names)
    monkeypatch.setattr(accumulators, "_WORTH_IT", 0)
    assert_frame_equal(combined(ask, scores).rows.sort(names), plain)


def test_keys_may_be_several_columns_or_one_that_is_also_an_items_column() -> None:
    ask = asking(aggregates=(("times", sl.collect("team")),), evictor=sl.keep_last(1))
    frame = placed(ask).with_columns(pl.lit(0, pl.Int64).alias(TURN))
    found = combine(frame, ["team"], ask).items[ELEMENTS]
    assert found.columns.count("team") == 1
    two = combine(placed(asking()).with_columns(level=pl.lit(1)), ["team", "level"], asking())
    assert two.rows.columns[:4] == ["team", "level", START, END]


def test_under_an_evictor_elements_are_kept_and_nothing_else() -> None:
    ask = asking(evictor=sl.keep_delta("last.level - level", bound=3), aggregates=(("total", sl.sum("score")),))
    assert parts_of(ask) == ()
    (kind,) = items_of(ask).values()
    assert sorted(kind.made) == [AT, OFFSET, PARTITION, TURN, "level", "score"]


def test_of_the_first_few_no_more_than_they_are_kept_however_often_they_meet() -> None:
    ask = asking(aggregates=(("best", sl.top_k("score", 2)), ("oldest", sl.first("score"))))
    pieces = [combined(ask, [("red", score, 9_000 - score)]) for score in (4, 9, 1, 7)]
    items = pieces[0].items["best"]
    for piece in pieces[1:]:
        items = together([items, piece.items["best"]], ["team"], items_of(ask)["best"])
    assert sorted(items["@value"].to_list()) == [7, 9]
    assert merge_rows([each.rows for each in pieces], ["team"], ask)["@oldest"].to_list() == [9]


def told(ask: WindowedStep, found: Combined) -> list[tuple[Any, ...]]:
    values = with_values(found.rows, found.items, ["team"], ask, "@now.")
    return by_team(values, *(f"@now.{name}" for name, _ in ask.aggregates))


def test_windows_tell_the_values_of_what_they_hold() -> None:
    ask = asking(aggregates=(*BOTH, ("best", sl.top_k("score", 1)), ("kinds", sl.count_distinct("score"))))
    assert told(ask, combined(ask)) == [
        (None, 0, 1, [1], [1], 1),
        ("blue", 0, 3, [3], [3], 1),
        ("red", 0, 12, [5, 7], [7], 2),
        ("red", 10_000, 2, [2], [2], 1),
    ]


def test_a_window_without_items_tells_what_its_aggregates_say_of_nothing() -> None:
    longest = sl.UserAggregate("score", list, lambda kept, value: [*kept, value], len, name="how many")
    ask = asking(
        aggregates=(
            ("all", sl.collect("score")),
            ("best", sl.top_k("score", 1)),
            ("many", longest),
        )
    )
    found = combined(ask)
    nothing: tuple[Any, ...] = ([], [], 0)
    assert told(ask, Combined(found.rows, {})) == [(*row[:2], *nothing) for row in by_team(found.rows)]
    others = {name: items.filter(pl.col("team") == "blue") for name, items in found.items.items()}
    some = told(ask, Combined(found.rows, others))
    assert some[1] == ("blue", 0, [3], [3], 1)
    assert some[2] == ("red", 0, *nothing)


@pytest.mark.parametrize("key", ["text", "number"])
@pytest.mark.parametrize("largest", [1_000, 2**62], ids=["small sums", "sums that leave their range"])
@pytest.mark.parametrize("different", [3, 9_000])
def test_many_elements_give_the_same_rows_whichever_way_they_are_grouped(
    monkeypatch: pytest.MonkeyPatch, key: str, largest: int, different: int
) -> None:
    number = pl.int_range(15_000, dtype=pl.Int64)
    drawn = (number * 7_919) % different
    team = pl.when(drawn > 0).then(drawn if key == "number" else pl.concat_str(pl.lit("team "), drawn))
    frame = pl.select(team.alias("team"), ((number * largest) // 15_000).alias("score"), (number * 3).alias("at"))
    ask = asking(aggregates=(("total", sl.sum("score")), ("plays", sl.count()), ("best", sl.max("score"))))
    spread = assign(frame.select("team", "score", pl.col("at").alias(AT)), ask.window)
    fast = combine(spread, ["team"], ask).rows
    monkeypatch.setattr(accumulators, "_WORTH_IT", 10**9)
    plain = combine(spread, ["team"], ask).rows
    assert fast.height > different
    assert_frame_equal(fast.sort(identity(["team"])), plain.sort(identity(["team"])), check_column_order=False)
    monkeypatch.undo()
    both = merge_rows([fast, plain], ["team"], ask)
    monkeypatch.setattr(accumulators, "_WORTH_IT", 10**9)
    again = merge_rows([plain, fast], ["team"], ask)
    assert_frame_equal(both.sort(identity(["team"])), again.sort(identity(["team"])), check_column_order=False)
