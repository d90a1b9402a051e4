"""Measurements of a sample: clocks, partitions, keys and rates."""

import polars as pl
import pytest

from strandline.advise.capacity import capacity
from strandline.advise.clocks import AHEAD, clocks, with_ahead
from strandline.advise.keys import keys
from strandline.advise.partitions import partitions
from strandline.advise.sample import TIME, Columns, Origin, in_milliseconds, sample_of
from strandline.errors import InvalidStep
from tests.advise.made import NOW, START, sample

ORIGIN = Origin("a sample", "")


def test_one_event_time_in_the_future_does_not_make_the_others_late() -> None:
    times = [float(number) for number in range(200)]
    times[20] = 500_000.0
    for given in (sample(times), sample(times, arrivals=[float(number) for number in range(200)])):
        rows = with_ahead(given, NOW)
        assert rows.filter(AHEAD)[TIME].to_list() == [START + 500_000_000]
        assert clocks(rows, given).future == 1 / 200
        assert clocks(rows, given).farthest_future > 400_000_000


def test_elements_more_than_a_day_behind_are_reported() -> None:
    times = [200_000.0 + number for number in range(99)] + [1.0]
    given = sample(times)
    assert clocks(with_ahead(given, NOW), given).past == 0.01


def test_a_partition_whose_clock_is_ahead_is_named() -> None:
    seconds = [float(number // 2) for number in range(100)]
    ahead = [at + 30 * (number % 2) for number, at in enumerate(seconds)]
    given = sample(ahead, parts=["even", "odd"] * 50, arrivals=seconds)
    assert clocks(with_ahead(given, NOW), given).fast == (("odd", 30_000),)


def test_a_silent_partition_is_idle_and_usual_gaps_are_not() -> None:
    steady = [(float(number), "busy") for number in range(300)]
    silent = [(float(number), "silent") for number in range(300) if not 100 <= number < 250]
    came = sorted(steady + silent)
    given = sample([at for at, _ in came], parts=[name for _, name in came], arrivals=[at for at, _ in came])
    found = partitions(with_ahead(given, NOW), ("busy", "silent", "empty"))
    assert found.idle_after == 5_000
    assert set(found.idle) == {"silent", "empty"}
    assert {each.name: each.longest for each in found.silences} == {"silent": 151_000, "empty": 299_000, "busy": 1_000}


def test_without_arrivals_a_gap_is_measured_in_event_time() -> None:
    times = [(float(number), str(number % 2)) for number in range(200) if number % 2 or not 50 < number < 150]
    given = sample([at for at, _ in times], parts=[name for _, name in times])
    assert partitions(with_ahead(given, NOW)).idle == ("0",)


def test_one_partition_needs_no_idle_after() -> None:
    assert partitions(with_ahead(sample([1.0, 2.0, 90.0]), NOW)).idle_after is None


def test_a_hot_key_is_found_with_the_load_of_its_key_group() -> None:
    names = ["hot" if number % 2 else f"k{number}" for number in range(1_000)]
    found = keys(with_ahead(sample([float(n) for n in range(1_000)], keys=names), NOW), 60_000, 8)
    assert found is not None
    assert found.is_hot
    assert found.top[0] == ("hot", 0.5)
    assert found.many == 501
    assert found.skew > 4


def test_keys_that_arrive_in_bursts_are_recognized() -> None:
    bursts = [3_600.0 * (number // 50) + 2 * (number % 50) for number in range(500)]
    steady = [7.0 * number for number in range(500)]
    found = [keys(with_ahead(sample(times), NOW), 60_000, 8) for times in (bursts, steady)]
    assert [None if each is None else each.bursts for each in found] == [10_000, None]


def test_rates_of_the_sample_and_of_the_kernel_are_measured() -> None:
    times = [number / 10 for number in range(1_000)] + [100.0] * 500
    found = capacity(with_ahead(sample(times), NOW), 10_000, 1_000, 4)
    assert found.rate == pytest.approx(15.0)
    assert found.peak == 500
    assert found.kernel > 1_000  # any machine is faster than this
    assert found.busy == found.rate / found.kernel


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        (pl.Series([1_700_000_000, 1_700_000_001]), "seconds"),
        (pl.Series([1_700_000_000_000, 1_700_000_001_000]), "milliseconds"),
        (pl.Series([1.7e15, 1.700000001e15]), "microseconds"),
        (pl.Series([1_700_000_000_000_000_000, 1_700_000_001_000_000_000]), "nanoseconds"),
        (pl.Series(["2023-11-14T22:13:20Z", "2023-11-14 22:13:21"]), ""),
        (pl.Series([1_700_000_000_000, 1_700_000_001_000]).cast(pl.Datetime("ms")), ""),
    ],
)
def test_times_of_every_type_are_converted(values: pl.Series, unit: str) -> None:
    found = in_milliseconds(values, "at")
    assert found.ms.to_list() == [START, START + 1_000]
    assert found.unit == unit


@pytest.mark.parametrize(
    ("frame", "columns", "message"),
    [
        (pl.DataFrame({"at": [1, 2]}), Columns("when"), "no column 'when'"),
        (pl.DataFrame({"at": [1, 2]}), Columns("at", ("who",)), "no column 'who'"),
        (pl.DataFrame({"at": []}, schema={"at": pl.Int64}), Columns("at"), "no row"),
        (pl.DataFrame({"at": ["soon", "later"]}), Columns("at"), "no value of 'at' is a time"),
        (pl.DataFrame({"at": [None, None]}, schema={"at": pl.Int64}), Columns("at"), "no value of 'at' is a time"),
        (pl.DataFrame({"at": [[1], [2]]}), Columns("at"), "not times"),
        (pl.DataFrame({"at": [7, 7, 7]}), Columns("at"), "all 3 rows have the same event time"),
    ],
)
def test_an_invalid_sample_is_refused_with_its_reason(frame: pl.DataFrame, columns: Columns, message: str) -> None:
    with pytest.raises(InvalidStep, match=message):
        sample_of(frame, columns, ORIGIN)


def test_rows_without_a_valid_time_are_counted() -> None:
    found = sample_of(pl.DataFrame({"at": ["2024-05-01", None, "2024-05-02"]}), Columns("at"), ORIGIN)
    assert found.untimed == 1
    assert "1 of 3 rows have no valid event time" in found.notes[0]


def test_rows_are_sorted_by_arrival_time() -> None:
    found = sample([3.0, 1.0, 2.0], arrivals=[3.0, 1.0, 2.0])
    assert found.rows[TIME].is_sorted()
