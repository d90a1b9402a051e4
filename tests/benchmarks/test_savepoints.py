"""The benchmark of savepoints, without its runs: what a delay is, and what the page tells."""

from benchmarks import render
from benchmarks.savepoints import Asked, Gaps, Moved, table, to_results
from tests.benchmarks.sample import results

GAPS = [Gaps((5.0, 5.2), (5.1, 7.2, 5.0), 14.0), Gaps((5.0, 5.1), (5.0, 11.0), 15.0)]


def test_a_delay_is_the_longest_gap_over_the_longest_of_a_job_that_is_left_alone() -> None:
    assert [round(each.delay, 3) for each in GAPS] == [2.0, 5.9]


def test_the_page_tells_what_a_savepoint_costs_and_what_is_not_reached() -> None:
    moved = [Moved(3.0, seconds, 2.0, 1_000_000, 4_000_000) for seconds in (20.0, 24.0)]
    told = to_results(Asked(), moved, GAPS)
    page = render.page(results(), of_savepoints=told)
    assert "| restore of 1,000,000 keys | 22.0 s | 20.0 s to 24.0 s | ≤ 30 s | goal reached |" in page
    assert "| 2.0 s to 5.9 s | ≤ 5 s | **goal not reached** |" in page
    assert "| 2 | 3.0 s | 24.0 s | 2.0 s | 4 MB | 5.1 s | 11.0 s | 15.0 s |" in page
    assert "delays a batch by at most 5.9 s" in table(told)
