"""Before the shuffle: surely accepted elements are pre-aggregated, possibly late ones stay single rows."""

import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation.accumulators import merged
from strandline.kernel.blocks.block import AT, END, GAP, NEW, OFFSET, PARTITION, REASON, START, Block, pack
from strandline.kernel.state.partitioning import key_groups
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window.prepare import admit, gather, prepare
from strandline.model.elements import TimeDomain
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep, lifts
from strandline.model.triggers import Trigger
from strandline.model.windows import WindowKind
from tests.kernel.batches import Score, asking, elements

SCORES: list[Score] = [("red", 5, 1_000), ("blue", 3, 2_000), ("red", 7, 9_999), ("red", 2, 10_000)]
LATE = sl.after_watermark(late=sl.after_count(1))


def prepared(definition: WindowedStep, horizon: int | None, scores: list[Score] = SCORES) -> Block:
    """Return the block of a pipeline with one key group."""
    (block,) = prepare(elements(scores), ["team"], definition, 1, horizon).blocks.values()
    return block


def times_in(block: Block, name: str) -> list[tuple[str, int]]:
    frame = block.frames.get(name)
    return [] if frame is None else sorted(frame.select("team", START).rows())


def test_elements_of_one_key_and_window_are_pre_aggregated() -> None:
    parts = prepared(asking(trigger=LATE), -1).frames["parts"]
    assert sorted(parts.select("team", START, END, NEW, "@total", "@plays").rows()) == [
        ("blue", 0, 10_000, 1, 3, 1),
        ("red", 0, 10_000, 2, 12, 2),
        ("red", 10_000, 20_000, 1, 2, 1),
    ]


def test_possibly_late_elements_stay_single_rows_with_all_columns() -> None:
    block = prepared(asking(trigger=LATE), 9_999)
    assert times_in(block, "parts") == [("red", 10_000)]
    assert block.frames["rows"].select("team", "score", AT, PARTITION, OFFSET).rows() == [
        ("red", 5, 1_000, "0", 0),
        ("blue", 3, 2_000, "0", 1),
        ("red", 7, 9_999, "0", 2),
    ]


@pytest.mark.parametrize(("horizon", "combined"), [(14_998, True), (14_999, False)])
def test_elements_are_pre_aggregated_only_for_windows_that_expire_after_the_horizon(
    horizon: int, combined: bool
) -> None:
    block = prepared(asking(trigger=LATE, lateness=5_000), horizon, [("red", 1, 0)])
    assert list(block.frames) == (["parts"] if combined else ["rows"])


def test_without_a_horizon_nothing_is_pre_aggregated() -> None:
    block = prepared(asking(trigger=LATE), None)
    assert list(block.frames) == ["rows"]
    assert block.frames["rows"].height == len(SCORES)


def test_elements_of_windows_that_never_expire_are_pre_aggregated() -> None:
    assert list(prepared(asking(trigger=LATE, lateness=None), 10**15).frames) == ["parts"]


@pytest.mark.parametrize("trigger", [sl.after_count(2), sl.after_processing_time(seconds=1)])
def test_under_a_trigger_that_may_close_a_window_at_any_time_nothing_is_pre_aggregated(trigger: Trigger) -> None:
    assert list(prepared(asking(trigger=trigger), -1).frames) == ["rows"]


def test_under_a_trigger_that_closes_at_the_end_elements_of_open_windows_are_pre_aggregated() -> None:
    """A bare after_watermark closes a window with its on-time pane, though lateness would keep it."""
    definition = asking(trigger=sl.after_watermark(), lateness=60_000)
    assert list(prepared(definition, 9_998, [("red", 1, 0)]).frames) == ["parts"]
    assert list(prepared(definition, 9_999, [("red", 1, 0)]).frames) == ["rows"]


def test_each_key_group_gets_its_own_keys_and_no_other() -> None:
    scores: list[Score] = [(f"team {number}", 1, number * 700) for number in range(200)] + [(None, 1, 0)]
    blocks = prepare(elements(scores), ["team"], asking(trigger=LATE), 16, 50_000).blocks
    assert len(blocks) > 10
    found = []
    for group, block in blocks.items():
        for frame in block.frames.values():
            assert set(key_groups(frame.select("team"), 16)) == {group}
            found += frame["team"].to_list()
    assert sorted(found, key=str) == sorted((team for team, _, _ in scores), key=str)


def test_no_elements_give_no_blocks() -> None:
    assert prepare(elements([]), ["team"], asking(), 16, 0).blocks == {}


MANY = 2_000
FRACTIONS = pl.DataFrame(
    {
        "team": [f"a team with a long name, number {number % 97}" for number in range(MANY)],
        "score": [number * 0.1 for number in range(MANY)],
        AT: [number * 13 % 50_000 for number in range(MANY)],
        PARTITION: ["0"] * MANY,
        OFFSET: list(range(MANY)),
    }
)


@pytest.mark.parametrize("window", [sl.tumbling("10s"), sl.sliding("10s", every="4s"), sl.session("50ms")], ids=repr)
def test_a_task_that_runs_again_gives_the_same_rows(window: WindowKind) -> None:
    """To the last digit, in any order; rows are sorted before they are stored or emitted."""
    aggregates = (
        ("total", sl.sum("score")),
        ("average", sl.mean("score")),
        ("spread", sl.variance("score")),
        ("kinds", sl.count_distinct("score")),
        ("middle", sl.quantile("score", 0.5)),
        ("best", sl.top_k("score", 2)),
        ("teams", sl.approx_count_distinct("team")),
    )
    definition = asking(window=window, trigger=LATE, aggregates=aggregates)
    runs = [prepare(FRACTIONS, ["team"], definition, 4, 20_000).blocks for _ in range(4)]
    packed = [{group: pack(in_order(block)) for group, block in run.items()} for run in runs]
    assert all(each == packed[0] for each in packed)


def in_order(block: Block) -> Block:
    return Block({name: frame.sort(frame.columns) for name, frame in block.frames.items()}, block.facts)


@pytest.mark.slow
def test_a_task_of_another_process_gives_the_same_rows() -> None:
    """Hashes may be seeded anew in every process."""
    code = """
import polars as pl, hashlib, strandline as sl
from tests.kernel.test_prepare import FRACTIONS, LATE, asking, in_order, pack, prepare
definition = asking(trigger=LATE, aggregates=(("total", sl.sum("score")), ("kinds", sl.count_distinct("score"))))
blocks = prepare(FRACTIONS, ["team"], definition, 4, 20_000).blocks
print(hashlib.sha256(b"".join(pack(in_order(block)) for block in blocks.values())).hexdigest())
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout != ""


def test_keys_may_be_several_columns() -> None:
    frame = elements(SCORES).with_columns(pl.Series("level", [1, 1, 2, 1]))
    (block,) = prepare(frame, ["team", "level"], asking(trigger=LATE), 1, -1).blocks.values()
    assert sorted(block.frames["parts"].select("team", "level", "@total").rows()) == [
        ("blue", 1, 3),
        ("red", 1, 2),
        ("red", 1, 5),
        ("red", 2, 7),
    ]


def test_elements_between_windows_are_counted_as_filtered() -> None:
    definition = asking(window=sl.sliding("3s", every="10s"), trigger=LATE)
    made = prepare(elements(SCORES), ["team"], definition, 1, None)
    assert made.filtered == 1
    assert made.blocks[0].frames["rows"]["score"].to_list() == [5, 3, 2]
    assert prepare(elements(SCORES), ["team"], definition, 1, -1).filtered == 1
    assert prepare(elements(SCORES), ["team"], asking(), 1, -1).filtered == 0


def test_overlapping_sessions_of_one_task_are_merged() -> None:
    parts = prepared(asking(window=sl.session("5s"), trigger=LATE), -1).frames["parts"]
    assert sorted(parts.select("team", START, END, NEW).rows()) == [
        ("blue", 2_000, 7_000, 1),
        ("red", 1_000, 6_000, 1),
        ("red", 9_999, 15_000, 2),
    ]


def test_an_element_may_be_pre_aggregated_for_some_of_its_windows_only() -> None:
    early_and_late = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
    block = prepared(asking(window=sl.sliding("10s", every="5s"), trigger=early_and_late), 9_999, [("red", 5, 7_000)])
    assert times_in(block, "parts") == [("red", 5_000)]
    assert block.frames["rows"].select("team", "score").rows() == [("red", 5)]
    assert block.facts == {"horizon": 9_999}


@pytest.mark.parametrize(
    ("window", "slices"),
    [
        (sl.sliding("60s", every="1s"), [("blue", 2_000, 3_000), ("red", 1_000, 2_000), ("red", 9_000, 10_000)]),
        (sl.sliding("10s", every="4s"), [("blue", 2_000, 4_000), ("red", 0, 2_000), ("red", 8_000, 10_000)]),
        (sl.cumulating("60s", step="5s"), [("blue", 0, 5_000), ("red", 0, 5_000), ("red", 5_000, 10_000)]),
    ],
    ids=str,
)
def test_an_element_of_many_windows_is_pre_aggregated_once_by_shared_slice(
    window: WindowKind, slices: list[Any]
) -> None:
    parts = prepared(asking(window=window, trigger=LATE), -1, SCORES[:3]).frames["parts"]
    assert sorted(parts.select("team", START, END).rows()) == slices


@pytest.mark.parametrize(("horizon", "combined"), [(7_998, True), (7_999, False)])
def test_an_element_with_a_possibly_ended_window_stays_a_single_row(horizon: int, combined: bool) -> None:
    block = prepared(asking(window=sl.sliding("60s", every="2s"), lateness=60_000), horizon, [("red", 5, 7_000)])
    assert list(block.frames) == (["parts"] if combined else ["rows"])


def test_with_element_pane_timestamps_elements_behind_the_horizon_stay_single_rows() -> None:
    block = prepared(asking(trigger=LATE, pane_timestamp=PaneTimestamp.EARLIEST), 1_500)
    assert times_in(block, "parts") == [("blue", 0), ("red", 0), ("red", 10_000)]
    assert block.frames["rows"]["score"].to_list() == [5]


@pytest.mark.parametrize(
    "definition",
    [
        asking(window=sl.count_window(3)),
        asking(trigger=LATE, evictor=sl.keep_last(1)),
        asking(trigger=LATE, aggregates=(("mine", sl.UserAggregate("score", int, int.__add__, int)),)),
        asking(trigger=sl.after_count(1)),
    ],
    ids=["counts", "an evictor", "an aggregate without a merge", "a trigger that may close at any time"],
)
def test_steps_that_need_each_element_pre_aggregate_nothing(definition: WindowedStep) -> None:
    assert not lifts(definition)
    assert list(prepared(definition, -(10**15)).frames) == ["rows"]


WATERMARK = sl.bounded("0s")


def admitted(frame: pl.DataFrame, **options: Any) -> tuple[pl.DataFrame, list[str]]:
    """Return the valid elements at clock 60 s, and the reasons of the dead letters."""
    taken, dead = admit(frame, asking(**options), WATERMARK, 60_000)
    return taken, dead[REASON].to_list()


def test_an_element_without_a_valid_event_time_is_a_dead_letter() -> None:
    frame = elements(SCORES).with_columns(pl.Series(AT, [1, None, NEVER, FOREVER], pl.Int64))
    taken, reasons = admitted(frame)
    assert taken.equals(frame[:1])
    assert reasons == ["no_event_time"] * 3


def test_an_element_beyond_the_future_bound_is_a_dead_letter_only_if_configured() -> None:
    frame = elements([("red", 1, 65_000), ("red", 2, 65_001)])
    for strict, scores in ((False, [1, 2]), (True, [1])):
        rule = WATERMARK.future_bound("5s", dead_letter=strict)
        taken, dead = admit(frame, asking(), rule, 60_000)
        assert taken["score"].to_list() == scores
        assert dead[REASON].to_list() == ["future"] * (2 - len(scores))


@pytest.mark.parametrize(
    ("gaps", "kind", "read"),
    [
        ([5, 0, -1, None], pl.Int64, [5]),
        (["5s", "soon", "0s", None, "1m"], pl.String, [5_000, 60_000]),
        ([timedelta(seconds=2), timedelta(0), None], pl.Duration("us"), [2_000]),
        ([1.5, None], pl.Float64, []),
    ],
    ids=["milliseconds", "texts", "durations", "anything else"],
)
def test_a_missing_unreadable_or_non_positive_gap_is_a_dead_letter(gaps: Any, kind: Any, read: list[int]) -> None:
    frame = elements([("red", 1, 0)] * len(gaps)).with_columns(pl.Series("gap", gaps, kind))
    taken, reasons = admitted(frame, window=sl.session(column="gap"))
    assert taken[GAP].to_list() == read
    assert reasons == ["bad_gap"] * (len(gaps) - len(read))


@pytest.mark.parametrize(
    ("starts", "ends", "kind", "read"),
    [
        ([5, 5, 9, None, NEVER], [7, 5, 7, 7, 7], pl.Int64, [(5, 7)]),
        (["1970-01-01T00:00:01Z", "then", None], ["1970-01-01T00:00:02Z"] * 3, pl.String, [(1_000, 2_000)]),
        ([datetime(1970, 1, 1), None], [datetime(1970, 1, 2)] * 2, pl.Datetime("ms"), [(0, 86_400_000)]),  # noqa: DTZ001
    ],
    ids=["milliseconds", "texts", "times"],
)
def test_missing_unreadable_or_empty_bounds_are_dead_letters(
    starts: Any, ends: Any, kind: Any, read: list[tuple[int, int]]
) -> None:
    frame = elements([("red", 1, 0)] * len(starts)).with_columns(
        pl.Series("from", starts, kind), pl.Series("to", ends, kind)
    )
    taken, reasons = admitted(frame, window=sl.custom(start="from", end="to"))
    assert taken.select(START, END).rows() == read
    assert reasons == ["bad_window"] * (len(starts) - len(read))


def test_in_processing_time_the_clock_is_an_elements_time() -> None:
    frame = elements([("red", 1, 5), ("red", 2, 6)]).with_columns(pl.lit(None, pl.Int64).alias(AT))
    taken, reasons = admitted(frame, time=TimeDomain.PROCESSING)
    assert taken[AT].to_list() == [60_000, 60_000]
    assert reasons == []


def test_parts_of_several_tasks_are_merged() -> None:
    definition = asking(trigger=LATE, aggregates=(("total", sl.sum("score")), ("all", sl.collect("score"))))
    blocks = [prepared(definition, -1, SCORES[:2]), prepared(definition, -1, SCORES[2:]), Block()]
    found = merged(gather(blocks, definition), ["team"], definition)
    assert found is not None
    assert sorted(found.rows.select("team", START, "@total").rows()) == [
        ("blue", 0, 3),
        ("red", 0, 12),
        ("red", 10_000, 2),
    ]
    assert sorted(found.items["all"]["@value"].to_list()) == [2, 3, 5, 7]
    assert gather([Block()], definition) == []
