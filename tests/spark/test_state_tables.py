"""What a job keeps, as tables: made by the kernel, carried by hand, told with plain names."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import strandline as sl
from strandline.errors import SetupError
from strandline.execution.block_addresses import place
from strandline.plan.compile import to_stages
from strandline.plan.explain import explain_stages
from strandline.plan.pipeline import Panes
from strandline.savepoints.state_reader import JobState, KeyGroup
from strandline.savepoints.state_tables import Retention, chosen, key_groups_of, keys_of, retention_of, tables_of
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Carrier, rows


def record(team: str, score: int, at: str) -> bytes:
    return f'{{"team": "{team}", "user": "u", "score": {score}, "at": "2024-05-01T{at}+00:00"}}'.encode()


def kept(asked: Callable[[Any], Panes], *records: bytes) -> JobState:
    """What is kept once these records were taken in, in one batch."""
    read = sl.read(sl.scores()).event_time("at", sl.bounded(seconds=10))
    carrier = Carrier(to_stages(asked(read).write(PaperSink()).root))
    carrier.carry([rows(*records)], 0)
    groups = [KeyGroup(*place(to), 0, state.held) for to, state in carrier.groups.items()]
    return JobState(3, tuple(sorted(groups, key=lambda each: (each.step, each.group))))


def totals(read: Any) -> Panes:
    panes: Panes = (
        read.key_by("team").window(sl.tumbling(minutes=1)).aggregate(total=sl.sum("score"), key_group=sl.count())
    )
    return panes


STATE = kept(totals, record("red", 1, "12:00:01"), record("blue", 2, "12:00:02"), record("red", 4, "12:01:30"))


def noon(minute: int, second: int = 0) -> datetime:
    return datetime(2024, 5, 1, 12, minute, second, tzinfo=UTC)


def test_open_windows_are_rows_with_their_key_their_bounds_and_what_they_hold() -> None:
    windows = tables_of(STATE)["step_0"]
    assert keys_of(windows) == ["team"]
    told = windows.select("team", "window_start", "window_end", "total").sort("team", "window_start").rows()
    assert told == [
        ("blue", noon(0), noon(1), 2),
        ("red", noon(0), noon(1), 1),
        ("red", noon(1), noon(2), 4),
    ]
    assert windows["kept_key_group"].to_list() == [1, 1, 1]


def test_windows_are_found_by_key_and_by_instant() -> None:
    windows = tables_of(STATE)["step_0"]
    assert chosen(windows, "red", None)["total"].sort().to_list() == [1, 4]
    assert chosen(windows, None, noon(0, 59))["total"].sort().to_list() == [1, 2]
    assert chosen(windows, "red", noon(1))["total"].to_list() == [4]
    assert chosen(windows, "green", None).is_empty()


def test_a_key_of_several_columns_is_given_with_commas() -> None:
    state = kept(
        lambda read: read.key_by("team", "user").time_to_live(hours=1).aggregate(n=sl.count()),
        record("red", 1, "12:00:01"),
    )
    windows = tables_of(state)["step_0"]
    assert chosen(windows, "red, u", None).height == 1
    assert chosen(windows, "red, u", noon(0)).height == 1  # a window without ends is over every instant
    assert chosen(windows, "red,v", None).is_empty()
    with pytest.raises(SetupError, match="keys have 2 columns here"):
        chosen(windows, "red", None)


def test_how_much_each_key_group_holds_is_told() -> None:
    groups, slices = key_groups_of(STATE), tables_of(STATE)["slices"]
    assert groups.height == len(STATE.groups)
    assert groups["rows"].sum() == slices["rows"].sum() == 3
    assert groups["bytes"].sum() == sum(each.size for each in STATE.groups) > slices["bytes"].sum()
    assert groups["oldest"].min() == slices["oldest"].min() == noon(0)
    assert groups["watermark"].n_unique() == 1


def test_strips_and_items_have_tables_of_their_own() -> None:
    sliding = kept(
        lambda read: read.key_by("team").window(sl.sliding(minutes=1, every="20s")).aggregate(all=sl.collect("score")),
        record("red", 1, "12:00:01"),
    )
    assert {"slices", "step_0_strips"} <= set(tables_of(sliding))
    held = kept(
        lambda read: read.key_by("team").window(sl.tumbling(minutes=1)).aggregate(all=sl.collect("score")),
        record("red", 1, "12:00:01"), record("red", 5, "12:00:02"),
    )  # fmt: skip
    (items,) = [table for name, table in tables_of(held).items() if name.startswith("step_0_items_")]
    assert items.height == 2


def test_a_job_that_keeps_nothing_has_an_empty_table() -> None:
    assert tables_of(JobState(0, ()))["slices"].is_empty()
    assert key_groups_of(JobState(0, ())).is_empty()


def test_how_long_a_step_keeps_what_is_told_as_explain_tells_it() -> None:
    read = sl.read(sl.scores()).event_time("at", sl.bounded(seconds=10)).key_by("team")
    one = read.window(sl.tumbling(minutes=1)).allow_lateness(minutes=5).aggregate(total=sl.sum("score"))
    told = explain_stages(to_stages(one.write(PaperSink()).root))
    assert retention_of(told) == [Retention(0, "keeps total per key and window until 5m after the window's end")]
    lasting = read.time_to_live(hours=1).trigger(sl.repeatedly(sl.after_count(1))).aggregate(n=sl.count())
    both = sl.together(one.write(PaperSink("one")), lasting.write(PaperSink("other")))
    assert [each.step for each in retention_of(explain_stages(to_stages(both.root)))] == [0, 1]
    assert "1h of processing time after its last element" in retention_of(explain_stages(to_stages(both.root)))[1].words
