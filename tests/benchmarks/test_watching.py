"""The benchmark of metrics, without its runs: what they cost, and what the page tells."""

import time
from pathlib import Path

import pytest

from benchmarks import clocked, render
from benchmarks.corpus import Corpus
from benchmarks.watching import Pair, to_results
from strandline.spark import at_once, keyed_step, prepare
from tests.benchmarks.sample import results


def test_the_cost_is_the_middle_of_all_pairs_and_the_page_tells_it() -> None:
    pairs = [Pair(10.1, 10.0, 0.101), Pair(10.3, 10.0, 0.103), Pair(9.9, 10.0, 0.099)]
    told = to_results(pairs, Corpus(1_000, 2), "the command")
    assert round(told["cost"]["median"], 6) == 0.01
    assert told["own"]["reached"]
    page = render.page(results(), of_watching=told)
    assert "| their own code, of the job's CPU time | 1.00% | 1.00% to 1.00% | < 2% | goal reached |" in page
    assert "| CPU time of a job with them against one without | +1.0% | -1.0% to +3.0% | | |" in page


def test_metrics_that_cost_too_much_in_any_run_are_told_so() -> None:
    pairs = [Pair(10.0, 10.0, 0.1), Pair(10.0, 10.0, 0.21)]
    told = to_results(pairs, Corpus(1_000, 2), "the command")
    assert "**goal not reached**" in render.page(results(), of_watching=told)


def test_a_clocked_function_does_the_same_and_leaves_word_of_its_time(tmp_path: Path) -> None:
    file = tmp_path / "clocked"

    def wait(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    clocked_wait = clocked.clocked(wait, file, time.monotonic)
    assert (clocked.seconds(file), clocked_wait(0.02), clocked_wait(seconds=0.01)) == (0, "done", "done")
    assert 0.03 <= clocked.seconds(file) < 1


def test_a_clocked_function_that_fails_is_clocked_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "clocked"
    with pytest.raises(ZeroDivisionError):
        clocked.clocked(lambda: 1 / 0, file)()
    assert file.read_text().count("\n") == 1


def test_clocks_are_put_on_all_that_tasks_do_for_metrics() -> None:
    there = {
        name for module in (prepare, keyed_step, at_once) for name in clocked.DONE_FOR_METRICS if hasattr(module, name)
    }
    assert there == set(clocked.DONE_FOR_METRICS)


def test_a_worker_that_is_used_again_has_no_second_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (prepare, keyed_step, at_once):
        for name in clocked.DONE_FOR_METRICS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    for _ in range(3):
        clocked.put_clocks(tmp_path / "clocked")
    getattr(keyed_step, "asked_for")([])  # noqa: B009 - it is there by import, and not for others
    assert (tmp_path / "clocked").read_text().count("\n") == 1
