"""Lag verdicts of a partition: by its recent history, not by a threshold."""

import pytest

from strandline.connectors.kafka.lag import Verdict, judge

STEADY = [(1_000, 10), (2_000, 20), (3_000, 30)]


@pytest.mark.parametrize(
    ("positions", "ends", "now", "verdict"),
    [
        (STEADY, (12, 30), 3_500, Verdict.OK),
        (STEADY, (25, 40), 3_500, Verdict.OK),
        (STEADY, (12, 60), 3_500, Verdict.WARNING),
        ([(1_000, 10), (2_000, 10), (3_000, 10)], (12, 60), 3_500, Verdict.STALLED),
        ([(1_000, 10), (2_000, 10), (3_000, 10)], (10, 10), 3_500, Verdict.OK),
        (STEADY, (12, 60), 60_000, Verdict.STOPPED),
        (STEADY, (12, 30), 60_000, Verdict.OK),
        ([(3_000, 0)], (5, 5), 3_500, Verdict.OK),
        ([(3_000, 0)], (5, 5), 60_000, Verdict.STOPPED),
    ],
    ids=[
        "it has read all", "it catches up", "it falls further behind", "it is not read", "there is nothing to read",
        "the job is silent", "a silent job that has read all", "a first batch", "nothing after the first batch",
    ],
)  # fmt: skip
def test_the_verdict_of_a_partition(
    positions: list[tuple[int, int]], ends: tuple[int, int], now: int, verdict: Verdict
) -> None:
    assert judge(positions, ends, now) is verdict
