"""The scores stream: every range can be read again, with disorder, silence, late events and broken records."""

import json
import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors import scores
from strandline.connectors.scores import TEAMS, Range, Scores, ScoresDataSource, ScoresReader, records, schedule
from strandline.errors import InvalidStep
from strandline.ports.codecs import RAW
from strandline.ports.raw_records import ANNOUNCED, ENDED, RECORD

ORIGIN = 1_700_000_000_000
SMALL = Scores(seed=3, events=4_000, rate=1_000)
CLEAN = Scores(seed=3, events=4_000, rate=1_000, tardy=0, stragglers=0, poison=0)


def whole(ask: Scores, partition: int) -> list[bytes]:
    return records(ask, partition, 0, len(schedule(ask, partition)), ORIGIN)


def delays(ask: Scores) -> Any:
    """The delay between each readable record's event and its emission, in milliseconds."""
    found = []
    for partition in range(ask.width):
        for moment, record in zip(schedule(ask, partition), whole(ask, partition), strict=True):
            at = np.datetime64(json.loads(record)["at"].removesuffix("Z"), "ms").astype(np.int64)
            found.append(int(moment) + ORIGIN - int(at))
    return np.array(found)


def is_broken(record: bytes) -> bool:
    try:
        event = json.loads(record)
        np.datetime64(event["at"].removesuffix("Z"), "ms")
        return not isinstance(event["score"], int)
    except (ValueError, KeyError):
        return True


def test_the_same_seed_gives_the_same_bytes() -> None:
    for partition in range(SMALL.width):
        assert whole(SMALL, partition) == whole(Scores(seed=3, events=4_000, rate=1_000), partition)


def test_another_seed_or_partition_gives_other_bytes() -> None:
    assert whole(SMALL, 0) != whole(Scores(seed=4, events=4_000, rate=1_000), 0)
    assert whole(SMALL, 0) != whole(SMALL, 1)


def test_seed_seven_always_gives_the_same_bytes() -> None:
    """A demo that was stopped before an upgrade continues after it."""
    found = records(Scores(seed=7), 0, 0, 1, ORIGIN) + records(Scores(seed=7), 3, 3_000, 3_001, ORIGIN)
    assert found == [
        b'{"team": "red", "user": "u102", "score": 7, "at": "2023-11-14T22:13:19.508Z"}',
        b'{"team": "jade", "user": "u34", "score": 9, "at": "2023-11-14T22:13:45.630Z"}',
    ]


@given(partition=st.integers(0, 3), bounds=st.tuples(st.integers(0, 2_600), st.integers(0, 2_600)))
def test_any_range_equals_the_same_slice_of_the_whole_stream(partition: int, bounds: tuple[int, int]) -> None:
    ask = Scores(seed=5, events=10_000, rate=1_000)
    start, end = sorted(bounds)
    assert records(ask, partition, start, end, ORIGIN) == whole(ask, partition)[start:end]


def test_every_event_is_in_some_partition() -> None:
    for events in (4, 5, 6, 7, 4_001):
        ask = Scores(events=events)
        assert sum(len(schedule(ask, number)) for number in range(ask.width)) == events


def test_events_are_emitted_in_order_at_the_configured_rate() -> None:
    for partition in range(SMALL.width):
        moments = schedule(SMALL, partition)
        assert (np.diff(moments) >= 0).all()
        assert moments[0] == 0
        assert 3_900 < moments[-1] < 4_000


def test_the_last_partition_is_silent_in_the_middle_third_and_no_other_is() -> None:
    for partition in range(SMALL.width):
        moments = schedule(SMALL, partition)
        longest = int(np.diff(moments).max())
        if partition == SMALL.width - 1:
            quiet = (moments > 4_000 / 3) & (moments < 8_000 / 3 - 1)
            assert not quiet.any()
            assert longest >= 1_333
        else:
            assert longest < 20


def test_a_record_is_a_score_of_a_team() -> None:
    for record in whole(CLEAN, 0):
        event = json.loads(record)
        assert sorted(event) == ["at", "score", "team", "user"]
        assert event["team"] in TEAMS
        assert 1 <= event["score"] <= 9


def test_events_are_out_of_order_but_only_a_little() -> None:
    found = delays(CLEAN)
    assert found.min() >= 0
    assert found.max() <= 2_500
    assert 450 < found.mean() < 650


def test_a_share_of_the_events_is_late_and_another_too_late() -> None:
    found = delays(Scores(seed=3, events=20_000, rate=1_000, poison=0))
    tardy = ((found >= 5_000) & (found <= 12_000)).mean()
    hopeless = ((found >= 60_000) & (found <= 120_000)).mean()
    assert 0.016 < tardy < 0.024
    assert 0.007 < hopeless < 0.013
    assert ((found <= 2_500) | (found >= 5_000)).all()


def test_a_share_of_the_records_is_broken_in_several_ways() -> None:
    ask = Scores(seed=3, events=20_000, rate=1_000)
    broken = [record for number in range(ask.width) for record in whole(ask, number) if is_broken(record)]
    assert 60 < len(broken) < 140
    assert any(record.startswith(b"\xff") for record in broken)
    assert any(b"many" in record for record in broken)
    assert any(b"half past nine" in record for record in broken)


def test_exactly_the_records_that_the_generator_broke_fail_to_decode() -> None:
    """No intact record becomes a dead letter, and no broken one becomes an element."""
    found = [record for number in range(SMALL.width) for record in whole(SMALL, number)]
    decoded = SMALL.decoder.decode(pl.DataFrame({RAW: found}))
    readable = decoded.rows.filter(pl.col("at").is_not_null())[RAW].to_list()
    assert readable == [record for record in found if not is_broken(record)]


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = ORIGIN
        monkeypatch.setattr(scores, "_now", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def read(reader: ScoresReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[Any, ...]]:
    """The rows that Spark would read of a range: partition, offset, value, mark."""
    found: list[tuple[Any, ...]] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


def test_the_first_batch_announces_every_partition_and_carries_nothing(clock: Clock) -> None:
    reader = ScoresReader(SMALL)
    start = reader.initialOffset()
    assert start == {"origin": 0, "0": 0, "1": 0, "2": 0, "3": 0}
    end = reader.latestOffset(start, None)
    assert read(reader, start, end) == [(str(number), 0, None, ANNOUNCED) for number in range(4)]


def test_the_stream_starts_with_its_second_batch_and_keeps_its_start_time(clock: Clock) -> None:
    reader = ScoresReader(SMALL)
    announced = reader.latestOffset(reader.initialOffset(), None)
    clock.now = ORIGIN + 50_000
    started = reader.latestOffset(announced, None)
    assert started["origin"] == ORIGIN + 50_000
    clock.now += 1_000
    later = reader.latestOffset(started, None)
    assert later["origin"] == ORIGIN + 50_000
    assert later["0"] == 251
    assert 240 <= len([row for row in read(reader, started, later) if row[0] == "0"]) <= 251


def test_a_range_read_again_gives_the_same_records_also_from_another_reader(clock: Clock) -> None:
    start = {"origin": ORIGIN, "0": 10, "1": 0, "2": 500, "3": 7}
    end = {"origin": ORIGIN, "0": 300, "1": 0, "2": 1_000, "3": 8}
    first = read(ScoresReader(SMALL), start, end)
    clock.now += 99_999
    assert read(ScoresReader(SMALL), start, end) == first
    assert [row[:2] for row in first if row[0] == "3"] == [("3", 7)]
    assert [row[2] for row in first if row[0] == "0"] == records(SMALL, 0, 10, 300, ORIGIN)
    assert not [row for row in first if row[0] == "1"]


def test_offsets_never_go_back_even_if_the_clock_does(clock: Clock) -> None:
    reader = ScoresReader(SMALL)
    start = {"origin": ORIGIN, "0": 900, "1": 5, "2": 5, "3": 5}
    clock.now = ORIGIN + 10
    assert reader.latestOffset(start, None) == {"origin": ORIGIN, "0": 900, "1": 5, "2": 5, "3": 5}


def test_each_partition_reports_its_end_once(clock: Clock) -> None:
    reader = ScoresReader(SMALL)
    start = {"origin": ORIGIN, "0": 990, "1": 1_000, "2": 990, "3": 990}
    clock.now = ORIGIN + 10**6
    end = reader.latestOffset(start, None)
    assert end == {"origin": ORIGIN, "0": 1_000, "1": 1_000, "2": 1_000, "3": 1_000}
    marks = [row for row in read(reader, start, end) if row[3] != RECORD]
    assert marks == [(number, 1_000, None, ENDED) for number in ("0", "2", "3")]
    assert reader.latestOffset(end, None) == end
    assert read(reader, end, end) == []


def test_a_partition_that_continues_reports_no_end() -> None:
    start = {"origin": ORIGIN, "0": 0, "1": 0, "2": 0, "3": 0}
    end = {"origin": ORIGIN, "0": 999, "1": 0, "2": 0, "3": 0}
    assert {row[3] for row in read(ScoresReader(SMALL), start, end)} == {RECORD}


def test_a_range_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Range(1, 2, 3, 4, ENDED))) == Range(1, 2, 3, 4, ENDED)


def test_spark_finds_the_source_by_its_options() -> None:
    source = ScoresDataSource({"scores": json.dumps([3, 4_000, 1_000, 4, 0.02, 0.01, 0.005])})
    start, end = ({"origin": ORIGIN, "1": 0, "2": 0, "3": 0} | {"0": last} for last in (0, 5))
    assert source.name() == "strandline_scores"
    assert source.schema() == "partition string, offset long, value binary, mark int"
    assert read(source.streamReader(None), start, end) == read(ScoresReader(SMALL), start, end)


def test_a_source_reports_what_the_planner_needs() -> None:
    source = sl.scores(seed=3, events=4_000, rate=1_000)
    assert source == SMALL
    assert source.name == "scores(seed=3, events=4000, rate=1000)"
    assert source.partitions == ("0", "1", "2", "3")
    assert [*source.types] == ["team", "user", "score", "at"]


@pytest.mark.parametrize(
    ("asked", "problem"), [({"events": 3}, "3 events do not fill 4 partitions"), ({"rate": 0}, "the rate is 0 events")]
)
def test_invalid_stream_settings_are_refused(asked: dict[str, int], problem: str) -> None:
    with pytest.raises(InvalidStep, match=problem):
        sl.scores(**asked)
