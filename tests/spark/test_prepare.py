"""The prepare stage: what a task makes of the raw records of a partition."""

import pytest
from polars.testing import assert_frame_equal

import strandline as sl
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import place, to_deliver
from strandline.kernel.blocks.block import AT, Block, unpack
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import Control, Seen, control_from_facts
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.ports.codecs import DETAIL, RAW, REASON
from strandline.ports.raw_records import ANNOUNCED, ENDED
from strandline.spark.batch_properties import current_batch
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Raw, rows, task

RED = b'{"team": "red", "user": "u1", "score": 5, "at": "1970-01-01T00:00:01.0005Z"}'
BLUE = b'{"team": "blue", "user": "u2", "score": 3, "at": "1970-01-01T00:00:02Z"}'
TIMELESS = b'{"team": "blue", "user": "u2", "score": 3}'
BROKEN = b'{"team": '
HOUR = 3_600_000


@pytest.fixture
def stages() -> Stages:
    panes = (
        sl.read(sl.scores())
        .event_time("at", sl.bounded(seconds=1))
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .trigger(sl.after_watermark(late=sl.after_count(1)))
        .aggregate(total=sl.sum("score"))
    )
    return to_stages(panes.write(PaperSink()).root)


def blocks_of(stages: Stages, raw: list[Raw], horizon: int | None = None) -> dict[int, Block]:
    """By address; what goes past the key groups has one below zero."""
    return {to: unpack(data, "input") for to, data in task(stages, raw, HOUR, horizon)}


def groups_of(stages: Stages, raw: list[Raw]) -> list[Block]:
    return [block for to, block in blocks_of(stages, raw).items() if to >= 0]


def test_every_key_group_gets_one_block_whether_it_has_elements_or_not(stages: Stages) -> None:
    carried = task(stages, rows(RED), HOUR)
    assert [place(to) for to, _ in carried] == [(0, group) for group in range(stages.groups)]


def test_every_key_group_hears_the_same_of_the_sources(stages: Stages) -> None:
    raw = [*rows(RED, BROKEN, BLUE), *rows(TIMELESS, partition="1"), ("2", 0, None, ANNOUNCED), ("3", 9, None, ENDED)]
    controls = {control_from_facts(block.facts["control"]) for block in groups_of(stages, raw)}
    assert controls == {
        Control(
            HOUR,
            (Seen("0", 3, 2_000), Seen("1", 1, None), Seen("2", 0, None), Seen("3", 0, None, finished=True, first=9)),
            of="flow 0",
        )
    }


def sent_bytes(stages: Stages, tasks: list[list[Raw]]) -> int:
    """The bytes that these tasks send to key groups."""
    return sum(len(data) for raw in tasks for to, data in task(stages, raw, HOUR) if to >= 0)


def test_control_traffic_grows_with_the_partitions_read_and_not_with_their_square(stages: Stages) -> None:
    """Whether one task reads many partitions or each task reads one."""
    few, many = ([rows(RED, partition=f"topic-{number}") for number in range(each)] for each in (100, 1_000))
    assert sent_bytes(stages, many) < 11 * sent_bytes(stages, few)
    one_task = sent_bytes(stages, [[row for raw in many for row in raw]])
    assert one_task < 250 * 1_000 * stages.groups


def test_everyone_is_counted_once_and_dead_letters_go_past_the_key_groups(stages: Stages) -> None:
    raw = rows(RED, BROKEN, BLUE, TIMELESS, None)
    counts = [Counts(**block.facts["counts"]) for block in groups_of(stages, raw)]
    assert counts[0] == Counts(read=5, dead=3)
    assert set(counts[1:]) == {Counts()}
    assert [to for to, block in blocks_of(stages, raw).items() if "dead:0" in block.frames] == [to_deliver(0)]


def test_a_dead_letter_says_where_it_stood_what_it_was_and_why(stages: Stages) -> None:
    dead = blocks_of(stages, rows(RED, BROKEN, TIMELESS, first=7))[to_deliver(0)].frames["dead:0"]
    assert dead.select("@offset", RAW, REASON).rows() == [(8, BROKEN, "undecodable"), (9, TIMELESS, "no_event_time")]
    assert dead[DETAIL].to_list()[1] == "at is missing or unreadable"


def test_a_mark_is_not_a_record(stages: Stages) -> None:
    blocks = blocks_of(stages, [("0", 0, None, ANNOUNCED), ("1", 0, None, ENDED)])
    assert {Counts(**block.facts["counts"]) for block in blocks.values()} == {Counts()}
    assert all(not block.frames for block in blocks.values())


def test_an_event_time_is_floored_to_the_millisecond_on_both_sides_of_the_epoch(stages: Stages) -> None:
    before = RED.replace(b"1970-01-01T00:00:01.0005Z", b"1969-12-31T23:59:59.9995Z")
    blocks = blocks_of(stages, rows(RED, before))
    (found,) = [block.frames["rows"] for block in blocks.values() if "rows" in block.frames]
    assert found[AT].to_list() == [1_000, -1]
    assert found["at"].dt.timestamp("us").to_list() == [1_000_500, -500]


def test_raw_bytes_stay_behind_for_elements_that_were_read(stages: Stages) -> None:
    blocks = blocks_of(stages, rows(RED, BLUE))
    frames = [block.frames["rows"] for block in blocks.values() if "rows" in block.frames]
    assert sum(frame.height for frame in frames) == 2
    assert all(RAW not in frame.columns for frame in frames)


def test_what_the_driver_says_of_the_watermark_lets_a_task_combine(stages: Stages) -> None:
    blocks = blocks_of(stages, rows(RED, RED), horizon=-1)
    (parts,) = [block.frames["parts"] for block in blocks.values() if "parts" in block.frames]
    assert parts.select("team", "@total").rows() == [("red", 10)]


def test_outside_of_a_task_nothing_was_told() -> None:
    assert current_batch() == Batch()


def test_a_partition_without_rows_sends_nothing(stages: Stages) -> None:
    assert task(stages, [], HOUR) == []


def test_a_task_that_runs_again_sends_the_same_rows(stages: Stages) -> None:
    """In any order: whoever keeps or tells them sorts them first."""
    texts = [RED.replace(b'"red"', b'"team %d"' % (number % 40)) for number in range(400)]
    raw = rows(*texts, BROKEN, BLUE)
    first, again = blocks_of(stages, raw, 1_500), blocks_of(stages, raw, 1_500)
    assert first.keys() == again.keys()
    for to, block in first.items():
        assert block.facts == again[to].facts
        for name, frame in block.frames.items():
            assert_frame_equal(frame, again[to].frames[name], check_row_order=False)
