"""The generator: ranges are slices of one stream, each setting has its effect, and no other's events change."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.generated import Generated, source
from strandline.connectors.generated.draw_events import EMITTED, POISON, due, events, moments, records
from strandline.connectors.generated.settings import POISONS, Knobs, from_option, to_option
from strandline.connectors.generated.source import GeneratedDataSource, GeneratedReader
from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.plan.nodes import to_plain
from strandline.ports.codecs import RAW
from strandline.ports.raw_records import ENDED, RECORD

ORIGIN = 1_700_000_000_000
MANY = 20_000
PLAIN = sl.generator(seed=3, rate=1_000)
ROUGH = sl.generator(
    seed=3, rate=1_000, events=9_000, skew=1.2, disorder=0.3, late=0.02, future=0.01, duplicates=0.05, poison=0.1,
    bursts=("10s", "2s", 4), idle={2: ("1s", "3s")}, clock_drift={1: 0.05}, mean_per_hour=100,
)  # fmt: skip


def drawn(ask: Knobs, partition: int = 0, many: int = MANY) -> pl.DataFrame:
    return events(ask, partition, 0, many, ORIGIN)


def behind(frame: pl.DataFrame) -> Any:
    """How much earlier than scheduled an event happened, in milliseconds."""
    return (frame[EMITTED] - frame["at"].dt.epoch("ms")).to_numpy()


@given(partition=st.integers(0, 3), bounds=st.tuples(st.integers(0, 2_600), st.integers(0, 2_600)))
def test_any_range_equals_the_same_slice_of_the_whole_stream(partition: int, bounds: tuple[int, int]) -> None:
    start, end = sorted(bounds)
    whole = records(ROUGH, partition, 0, 2_600, ORIGIN)
    assert records(ROUGH, partition, start, end, ORIGIN) == whole[start:end]


def test_seed_three_always_gives_the_same_bytes() -> None:
    """A checkpoint holds positions only; an upgrade must give the same records for them."""
    assert records(ROUGH, 1, 2_000, 2_002, ORIGIN) == [
        b'{"id":"1-2000","key":"k4","value":6.026,"at":"2023-11-14T22:13:22.100000Z"}',
        b'{"id":"1-2001","key":"k0","value":6.009,"at":"2023-11-14T22:13:20.687000Z"}',
    ]


def test_another_seed_or_partition_gives_other_events() -> None:
    other = dataclasses.replace(PLAIN, seed=4)
    assert not drawn(PLAIN, 0, 50)["value"].equals(drawn(other, 0, 50)["value"])
    assert not drawn(PLAIN, 0, 50)["value"].equals(drawn(PLAIN, 1, 50)["value"])


def test_changing_one_setting_leaves_other_effects_unchanged() -> None:
    plain, rough = drawn(PLAIN), drawn(dataclasses.replace(PLAIN, late=0.1, poison=0.2, disorder=0.3))
    assert plain.select("id", "key", "value", EMITTED).equals(rough.select("id", "key", "value", EMITTED))


def test_events_are_due_at_the_configured_rate_over_all_partitions() -> None:
    assert sum(due(PLAIN, number, 10_000) for number in range(4)) == pytest.approx(10_000, abs=8)
    assert (np.diff(drawn(PLAIN)[EMITTED].to_numpy()) >= 0).all()


def test_bursts_have_the_configured_period_and_speed() -> None:
    ask = sl.generator(rate=400, bursts=("10s", "1s", 5))
    each = [due(ask, 0, at + 1_000) - due(ask, 0, at) for at in range(0, 20_000, 1_000)]
    assert each[0] == pytest.approx(500, abs=2)
    assert each[10] == pytest.approx(500, abs=2)
    assert each[1:10] + each[11:] == pytest.approx([100] * 18, abs=2)


def test_an_idle_partition_is_silent_for_its_period_and_no_other_is() -> None:
    ask = sl.generator(rate=400, idle={2: ("3s", "8s")})
    assert due(ask, 2, 2_999) == due(ask, 2, 7_999)
    assert due(ask, 2, 8_000) == due(ask, 2, 7_999) + 1
    assert due(ask, 2, 9_000) - due(ask, 2, 8_000) == pytest.approx(100, abs=1)
    assert due(ask, 1, 7_999) - due(ask, 1, 2_999) == pytest.approx(500, abs=1)


@given(elapsed=st.integers(-5, 40_000), partition=st.integers(0, 3))
def test_the_count_of_due_events_agrees_with_their_times(elapsed: int, partition: int) -> None:
    reached = due(dataclasses.replace(ROUGH, events=None), partition, elapsed)
    near = moments(ROUGH, partition, np.arange(max(reached - 1, 0), reached + 1))
    assert near[-1] > elapsed
    assert reached == 0 or near[0] <= elapsed


def test_a_bounded_stream_has_the_configured_number_of_events() -> None:
    for many in (4, 5, 7, 4_001):
        ask = sl.generator(events=many)
        assert sum(due(ask, number, 10**9) for number in range(4)) == many


def test_keys_are_drawn_uniformly_or_by_zipfs_law() -> None:
    alike = drawn(sl.generator(keys=10))["key"].value_counts()["count"]
    assert alike.len() == 10
    assert alike.min() > 0.08 * MANY  # type: ignore[operator]
    skewed = dict(drawn(sl.generator(keys=10, skew=1))["key"].value_counts().iter_rows())
    for number in (1, 4):
        assert skewed["k0"] / skewed[f"k{number}"] == pytest.approx(number + 1, rel=0.15)


def test_a_share_of_events_is_out_of_order_within_a_distance_and_another_is_late() -> None:
    found = behind(drawn(sl.generator(disorder=0.2, distance="2s", late=0.05, late_by="1m")))
    assert ((found > 0) & (found <= 2_000)).mean() == pytest.approx(0.19, abs=0.02)
    assert ((found > 60_000) & (found <= 120_000)).mean() == pytest.approx(0.05, abs=0.01)
    assert (found == 0).mean() == pytest.approx(0.76, abs=0.02)


def test_a_share_of_events_has_times_in_the_future() -> None:
    found = behind(drawn(sl.generator(future=0.05, future_by="1h")))
    assert (found < -3_600_000).mean() == pytest.approx(0.05, abs=0.01)


def test_a_drifting_clock_runs_ahead_of_the_others() -> None:
    ask = sl.generator(rate=400, clock_drift={1: 0.01})
    assert behind(drawn(ask, 1))[10_000] == pytest.approx(-0.01 * 100_000, abs=2)
    assert not behind(drawn(ask, 0)).any()


def test_values_are_distributed_around_a_mean_that_may_move() -> None:
    values = drawn(sl.generator(mean=50, spread=4))["value"]
    assert values.mean() == pytest.approx(50, abs=0.2)
    assert values.std() == pytest.approx(4, abs=0.2)
    moving = drawn(sl.generator(rate=400, mean=0, spread=1, mean_per_hour=3_600))["value"]
    assert moving[19_000:].mean() - moving[:1_000].mean() == pytest.approx(190, abs=1)  # type: ignore[operator]


def test_a_share_of_the_records_duplicates_a_recent_one() -> None:
    found = drawn(sl.generator(duplicates=0.1)).drop(EMITTED)
    assert 1 - found["id"].n_unique() / MANY == pytest.approx(0.1, abs=0.01)
    assert found.unique().height == found["id"].n_unique()
    place = found["id"].str.strip_prefix("0-").cast(pl.Int64)
    assert ((pl.Series(range(MANY)) - place).is_between(0, 1024)).all()


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_exactly_the_broken_records_fail_to_decode(format_: str) -> None:
    ask = sl.generator(poison=0.2, format=format_)
    found = records(ask, 0, 0, 5_000, ORIGIN)
    raw = pl.DataFrame({PARTITION: ["0"] * 5_000, OFFSET: range(5_000), RAW: found})
    decoded = ask.decoder.decode(raw)
    untimed = decoded.rows.filter(pl.col("at").is_null())[OFFSET].to_list()
    meant = events(ask, 0, 0, 5_000, ORIGIN)
    broken = meant[POISON].is_not_null().arg_true().to_list()
    assert sorted(decoded.dead[OFFSET].to_list() + untimed) == broken
    assert {*meant[POISON].drop_nulls()} == {*POISONS}
    assert len(broken) / 5_000 == pytest.approx(0.2, abs=0.02)
    timed = decoded.rows.filter(pl.col("at").is_not_null())
    assert timed.select("id", "key", "value", "at").equals(
        meant.filter(pl.col(POISON).is_null()).select("id", "key", "value", "at")
    )


def test_broken_records_can_be_of_one_kind() -> None:
    found = records(sl.generator(poison=0.1, poisons=["utf8"]), 0, 0, 1_000, ORIGIN)
    assert 60 < sum(record.startswith(b"\xff") for record in found) < 140


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which is the first field."""
    now = [ORIGIN]
    monkeypatch.setattr(source, "_now", lambda: now[0])
    return now


def read(reader: GeneratedReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[Any, ...]]:
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def test_a_stream_starts_at_its_first_read_and_keeps_its_start_time(clock: list[int]) -> None:
    reader = GeneratedReader(PLAIN)
    first = reader.latestOffset(reader.initialOffset(), None)
    assert first == {"origin": ORIGIN, "0": 1, "1": 1, "2": 1, "3": 1}
    clock[0] += 1_000
    assert GeneratedReader(PLAIN).latestOffset(first, None) == {
        "origin": ORIGIN,
        "0": 251,
        "1": 251,
        "2": 251,
        "3": 251,
    }
    clock[0] -= 5_000
    assert reader.latestOffset(first, None) == first


def test_a_stream_that_started_in_the_past_delivers_its_backlog_in_batches(clock: list[int]) -> None:
    began = datetime.fromtimestamp(ORIGIN / 1000 - 10, UTC)
    ask = sl.generator(start=began, events=2_000, events_per_batch=600)
    reader = GeneratedReader(ask)
    reader.prepareForTriggerAvailableNow()
    clock[0] += 60_000
    at, seen = reader.initialOffset(), list[tuple[Any, ...]]()
    while (then := reader.latestOffset(at, None)) != at:
        seen += read(reader, at, then)
        at = then
    assert sum(row[3] == RECORD for row in seen) == 2_000
    assert [row[:2] for row in seen if row[3] == ENDED] == [(str(number), 500) for number in range(4)]
    assert [row[2] for row in seen if row[:1] == ("2",) and row[3] == RECORD] == records(
        ask, 2, 0, 500, ORIGIN - 10_000
    )


def test_settings_are_passed_to_readers_as_text() -> None:
    made = GeneratedDataSource({"knobs": to_option(ROUGH)}).streamReader(None)
    assert dataclasses.asdict(from_option(to_option(ROUGH))) == dataclasses.asdict(ROUGH)
    start = {"origin": ORIGIN} | dict.fromkeys("0123", 0)
    assert [row[2] for row in read(made, start, start | {"1": 5})] == records(ROUGH, 1, 0, 5, ORIGIN)


def test_a_source_reports_what_the_planner_needs() -> None:
    assert PLAIN.name == "generator(seed=3)"
    assert PLAIN.partitions == ("0", "1", "2", "3")
    assert PLAIN.types == {"id": "string", "key": "string", "value": "double", "at": "timestamp"}
    assert isinstance(PLAIN, Generated)
    assert to_plain(PLAIN) == to_plain(dataclasses.replace(PLAIN, events_per_batch=100))
    assert to_plain(PLAIN) != to_plain(ROUGH)


@pytest.mark.parametrize(
    ("knobs", "problem"),
    [
        ({"rate": 0}, "the rate must be above 0, not 0.0"),
        ({"partitions": 0}, "the number of partitions must be 1 or more, not 0"),
        ({"events": 3}, "3 events do not fill 4 partitions"),
        ({"keys": 0}, "the number of keys must be 1 to 10000000, not 0"),
        ({"skew": -1}, "skew and spread must not be negative"),
        ({"late": 1.5}, "late=1.5 is not a share"),
        ({"distance": "0s"}, "distance, late_by and future_by must be above 0"),
        ({"poisons": ["arsenic"]}, "choose from cut, type"),
        ({"bursts": ("1s", "2s", 3)}, "bursts are"),
        ({"idle": {4: ("1s", "2s")}}, "an unknown partition"),
        ({"idle": {1: ("2s", "1s")}}, "a silence that ends before it begins"),
        ({"clock_drift": {1: -1}}, "clock_drift must be above -1"),
        ({"format": "xml"}, "choose one of json, csv"),
        ({"events_per_batch": 3}, "3 events a batch"),
    ],
)
def test_invalid_stream_settings_are_refused(knobs: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidStep, match=problem):
        sl.generator(**knobs)
