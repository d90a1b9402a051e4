"""Before the shuffle: what is surely taken is combined, what may be refused stays as it came."""

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.blocks import AT, END, NEW, OFFSET, PARTITION, START, Block, pack
from strandline.kernel.prepare import prepare
from strandline.kernel.slices import key_groups
from strandline.model.steps import WindowedStep
from strandline.model.triggers import Trigger
from tests.kernel.batches import Score, asking, elements

SCORES: list[Score] = [("red", 5, 1_000), ("blue", 3, 2_000), ("red", 7, 9_999), ("red", 2, 10_000)]
LATE = sl.after_watermark(late=sl.after_count(1))


def prepared(ask: WindowedStep, horizon: int | None, scores: list[Score] = SCORES) -> Block:
    """The one block of a pipeline with one key group."""
    (block,) = prepare(elements(scores), ["team"], ask, 1, horizon).blocks.values()
    return block


def times_in(block: Block, name: str) -> list[tuple[str, int]]:
    frame = block.frames.get(name)
    return [] if frame is None else sorted(frame.select("team", START).rows())


def test_elements_of_one_key_and_window_are_combined() -> None:
    parts = prepared(asking(trigger=LATE), -1).frames["parts"]
    assert sorted(parts.select("team", START, END, NEW, "@total", "@plays").rows()) == [
        ("blue", 0, 10_000, 1, 3, 1),
        ("red", 0, 10_000, 2, 12, 2),
        ("red", 10_000, 20_000, 1, 2, 1),
    ]


def test_elements_that_a_window_may_refuse_stay_one_by_one_with_all_their_columns() -> None:
    block = prepared(asking(trigger=LATE), 9_999)
    assert times_in(block, "parts") == [("red", 10_000)]
    assert block.frames["rows"].select("team", "score", AT, PARTITION, OFFSET).rows() == [
        ("red", 5, 1_000, "0", 0),
        ("blue", 3, 2_000, "0", 1),
        ("red", 7, 9_999, "0", 2),
    ]


@pytest.mark.parametrize(("horizon", "combined"), [(14_998, True), (14_999, False)])
def test_a_window_is_surely_open_only_while_it_lives_beyond_the_horizon(horizon: int, combined: bool) -> None:
    block = prepared(asking(trigger=LATE, lateness=5_000), horizon, [("red", 1, 0)])
    assert list(block.frames) == (["parts"] if combined else ["rows"])


def test_without_a_horizon_nothing_is_combined() -> None:
    block = prepared(asking(trigger=LATE), None)
    assert list(block.frames) == ["rows"]
    assert block.frames["rows"].height == len(SCORES)


def test_windows_that_never_expire_are_always_combined() -> None:
    assert list(prepared(asking(trigger=LATE, lateness=None), 10**15).frames) == ["parts"]


@pytest.mark.parametrize("trigger", [sl.after_count(2), sl.after_processing_time(seconds=1)])
def test_under_a_trigger_that_may_close_a_window_at_any_time_nothing_is_combined(trigger: Trigger) -> None:
    assert list(prepared(asking(trigger=trigger), -1).frames) == ["rows"]


def test_under_a_trigger_that_closes_at_the_end_windows_that_have_not_ended_are_combined() -> None:
    """A bare after_watermark closes a window with its on-time pane, though lateness would keep it."""
    ask = asking(trigger=sl.after_watermark(), lateness=60_000)
    assert list(prepared(ask, 9_998, [("red", 1, 0)]).frames) == ["parts"]
    assert list(prepared(ask, 9_999, [("red", 1, 0)]).frames) == ["rows"]


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


def test_nothing_in_gives_no_blocks() -> None:
    assert prepare(elements([]), ["team"], asking(), 16, 0).blocks == {}


def test_a_task_that_runs_again_gives_the_same_bytes() -> None:
    """A batch that is played again must write the same, and sums of fractions mind their order."""
    count = 2_000
    frame = pl.DataFrame(
        {
            "team": [f"team {number % 97}" for number in range(count)],
            "score": [number * 0.1 for number in range(count)],
            AT: [number * 13 % 50_000 for number in range(count)],
            PARTITION: ["0"] * count,
            OFFSET: list(range(count)),
        }
    )
    ask = asking(trigger=LATE, aggregates=(("total", sl.sum("score")), ("average", sl.mean("score"))))
    runs = [prepare(frame, ["team"], ask, 4, 20_000).blocks for _ in range(5)]
    packed = [{group: pack(block) for group, block in run.items()} for run in runs]
    assert all(each == packed[0] for each in packed)


def test_keys_may_be_several_columns() -> None:
    frame = elements(SCORES).with_columns(pl.Series("level", [1, 1, 2, 1]))
    (block,) = prepare(frame, ["team", "level"], asking(trigger=LATE), 1, -1).blocks.values()
    assert sorted(block.frames["parts"].select("team", "level", "@total").rows()) == [
        ("blue", 1, 3),
        ("red", 1, 2),
        ("red", 1, 5),
        ("red", 2, 7),
    ]
