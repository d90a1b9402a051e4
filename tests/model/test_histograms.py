"""Histograms: percentiles are off by a tenth at most, and merging loses nothing."""

from hypothesis import given
from hypothesis import strategies as st

from strandline.model.histograms import Histogram, bucket_of, lower, of_times, upper

times = st.lists(st.floats(0, 1e9), min_size=1, max_size=50)


@given(st.floats(0, 1e12))
def test_a_time_lies_within_its_bucket(ms: float) -> None:
    bucket = bucket_of(ms)
    assert lower(bucket) * 0.999999 <= ms <= upper(bucket) * 1.000001


@given(times, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_off_by_a_tenth_at_most(found: list[float], share: float) -> None:
    output = of_times(found).percentile(share)
    ranked = sorted(found)
    exact = ranked[max(-(-int(share * 1000) * len(ranked) // 1000) - 1, 0)]
    assert output is not None
    assert abs(output - exact) <= max(0.1 * exact, 1.0)


@given(times, times)
def test_merged_histograms_equal_the_histogram_of_all(one: list[float], other: list[float]) -> None:
    assert of_times(one) + of_times(other) == of_times([*one, *other])


def test_an_empty_histogram_has_no_percentile_and_is_complete() -> None:
    assert Histogram().percentile(0.5) is None
    assert Histogram().share_within(0) == 1.0


def test_the_share_that_is_complete_grows_with_the_wait() -> None:
    waited = of_times([0.0] * 90 + [1_000.0] * 9 + [60_000.0])
    assert [waited.share_within(ms) for ms in (1, 2_000, 100_000)] == [0.9, 0.99, 1.0]
    assert [many for _, _, many in waited.bars()] == [90, 9, 1]
