"""A job with nothing to read ticks rarely, and as soon as processing time has something to do."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.execution.gather_output import Gathered, StepOutput
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import FOREVER
from strandline.model.watermarks import Watermark
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Panes
from strandline.plan.stages import Stages
from strandline.spark.delivery.next_tick import AT_ONCE, next_due, write_due
from strandline.spark.sources.heartbeat import HeartbeatReader
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Carrier, rows

RED = b'{"team": "red", "user": "u1", "score": 5, "at": "1970-01-01T00:00:10Z"}'
IDLE: Gathered = Gathered({}, {}, {}, 0, drained=False, ended={})


def totals(rule: Watermark, **fields: Any) -> Panes:
    counts = sl.read(sl.scores()).event_time("at", rule).key_by("team").window(sl.tumbling(seconds=10))
    for name, value in fields.items():
        counts = getattr(counts, name)(value)
    return counts.aggregate(plays=sl.count())


def after(stages: Stages, *clocks: int) -> tuple[dict[int, StepOutput], dict[int, StepOutput]]:
    """The steps after a batch with a record of each partition, and after ticks at these clocks; the last two."""
    carrier = Carrier(stages)
    partitions = stages.scans[0].source.partitions
    carrier.carry([rows(RED, partition=each) for each in partitions], clocks[0])
    before = dict(carrier.steps)
    for clock in clocks[1:]:
        before = dict(carrier.steps)
        carrier.carry([], clock)
    return dict(carrier.steps), before


def due(panes: Panes, *clocks: int) -> int:
    stages = to_stages(panes.write(PaperSink()).root)
    return next_due(stages, IDLE, *after(stages, *clocks))


def test_nothing_is_due_while_only_elements_can_change_something() -> None:
    assert due(totals(sl.bounded(seconds=1)), 0, 1_000) == FOREVER


def test_a_partition_that_becomes_idle_is_due_just_after_its_silence() -> None:
    assert due(totals(sl.bounded(seconds=1).idle_after(seconds=60)), 500, 1_000) == 60_501


def test_once_all_partitions_are_idle_nothing_is_due() -> None:
    assert due(totals(sl.bounded(seconds=1).idle_after(seconds=60)), 500, 60_501, 60_502) == FOREVER


def test_a_processing_time_trigger_is_due_when_it_fires() -> None:
    trigger = sl.after_watermark(early=sl.every(seconds=30))
    assert due(totals(sl.bounded(seconds=1), trigger=trigger), 1_000, 2_000) == 31_001


def test_a_watermark_of_the_clock_is_always_due() -> None:
    assert due(totals(sl.by_clock()), 0, 1_000) == AT_ONCE


@pytest.mark.parametrize("of", ["read", "frames", "watermark"])
def test_after_a_batch_that_changed_something_the_next_tick_is_due(of: str) -> None:
    stages = to_stages(totals(sl.bounded(seconds=1)).write(PaperSink()).root)
    steps, before = after(stages, 0, 1_000)
    gathered = IDLE
    if of == "read":
        gathered = replace(IDLE, counts={"step 0": Counts(read=1)})
    elif of == "frames":
        gathered = replace(IDLE, frames={"out:0": rows_frame()})
    else:
        before = {0: replace(before[0], output_watermark=before[0].output_watermark - 1)}
    assert next_due(stages, gathered, steps, before) == AT_ONCE


def rows_frame() -> Any:
    import polars as pl  # noqa: PLC0415 - for one case

    return pl.DataFrame({"team": ["red"]})


def ticks(reader: HeartbeatReader, monkeypatch: pytest.MonkeyPatch, start: int, seconds: range) -> list[int]:
    """The seconds at which a heartbeat of every two seconds ticks."""
    offset, found = {"tick": start // 2, "drain": 0}, []
    for now in seconds:
        monkeypatch.setattr(time, "time", lambda now=now: float(now))
        end = reader.latestOffset(offset, None)
        if end != offset:
            found.append(now)
        offset = end
    return found


def test_the_heartbeat_waits_for_what_is_due_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "due"
    reader = HeartbeatReader(2, tmp_path / "drain", due=file)
    assert ticks(reader, monkeypatch, 100, range(100, 109)) == [102, 104, 106, 108]
    write_due(file, 111_500)
    assert ticks(reader, monkeypatch, 100, range(100, 117)) == [112, 114, 116]
    write_due(file, FOREVER)
    assert ticks(reader, monkeypatch, 100, range(100, 165)) == [130, 160]
    write_due(file, AT_ONCE)
    assert ticks(reader, monkeypatch, 100, range(100, 105)) == [102, 104]
    file.write_text("")
    assert ticks(reader, monkeypatch, 100, range(100, 103)) == [102]


def test_a_drain_does_not_wait_for_the_next_tick(tmp_path: Path) -> None:
    drain, file = tmp_path / "drain", tmp_path / "due"
    write_due(file, FOREVER)
    reader = HeartbeatReader(3_600, drain, due=file)
    start = {"tick": int(time.time() // 3_600) + 1, "drain": 0}
    assert reader.latestOffset(start, None) == start
    drain.touch()
    assert reader.latestOffset(start, None)["drain"] == 1
