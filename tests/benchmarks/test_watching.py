"""The benchmark of metrics, without its runs: what they cost, and what the page tells."""

from benchmarks import render
from benchmarks.corpus import Corpus
from benchmarks.watching import Pair, to_results
from tests.benchmarks.sample import results


def test_the_cost_is_the_middle_of_all_pairs_and_the_page_tells_it() -> None:
    told = to_results([Pair(10.1, 10.0), Pair(10.3, 10.0), Pair(9.9, 10.0)], Corpus(1_000, 2), "the command")
    assert round(told["cost"]["median"], 6) == 0.01
    assert told["cost"]["reached"]
    page = render.page(results(), of_watching=told)
    assert "| CPU time that metrics add to a job | +1.0% | -1.0% to +3.0% | < 2% | goal reached |" in page


def test_metrics_that_cost_too_much_are_told_so() -> None:
    told = to_results([Pair(10.5, 10.0)], Corpus(1_000, 2), "the command")
    assert "**goal not reached**" in render.page(results(), of_watching=told)
