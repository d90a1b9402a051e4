"""The model on paper: what it is fitted to it finds again, and what it was not it foretells."""

from typing import Any

import pytest

from benchmarks.paper import FITTED, FORETOLD, Batch, Model, batch_of, fitted, on_paper
from benchmarks.render_scale import scale

TRUE = Model(cost=1e-6, task=0.02, alone=0.15, each=0.005)


BY_ITSELF = 0.1
"""CPU seconds of a batch, whatever is in it."""


def measured(events: int, cores: int, partitions: int) -> Batch:
    used = BY_ITSELF + events * TRUE.cost + partitions * TRUE.task
    return Batch(partitions, events, used, TRUE.wall(events, cores, partitions))


def of(name: str) -> int:
    """The events in a batch of a cell."""
    return 4_000_000 if name.startswith("large") else 1_000_000


def cell(name: str, batch: Batch) -> dict[str, Any]:
    rates = {"per_cpu_second": batch.events / batch.cpu, "per_second": batch.events / batch.wall}
    medians = {kind: {"median": rate} for kind, rate in rates.items()}
    return {"name": name, "events": 3 * batch.events, "warm_up": 4, "batch_cpu": [[0.0] * 7], **medians}


def run() -> dict[str, Any]:
    found = [cell(name, measured(of(name), 2, partitions)) for name, partitions in FITTED.items()]
    others = [cell(name, measured(of(name), *room)) for name, room in FORETOLD.items()]
    return {"cells": [*found, *others]}


def test_batches_made_by_a_model_give_that_model() -> None:
    found = fitted([measured(of(name), 2, partitions) for name, partitions in FITTED.items()])
    assert found.cost == pytest.approx(TRUE.cost)
    assert (found.task, found.alone, found.each) == pytest.approx((TRUE.task, TRUE.alone, TRUE.each))


def test_a_batch_of_a_cell_is_the_middle_one() -> None:
    batch = measured(1_000_000, 2, 2)
    found = batch_of(cell("base", batch), 2)
    assert (found.events, found.partitions) == (1_000_000, 2)
    assert (found.cpu, found.wall) == pytest.approx((batch.cpu, batch.wall))


def test_what_it_was_not_fitted_to_is_foretold() -> None:
    told = on_paper(run())
    assert told is not None
    assert {*told[1]} == {*FORETOLD}
    for foretold, seen in told[1].values():
        assert foretold == pytest.approx(seen)


def test_a_run_without_all_cells_has_no_model() -> None:
    some = run()
    assert on_paper({"cells": some["cells"][1:]}) is None


def test_more_cores_keep_up_with_more_until_one_core_alone_takes_all_the_time() -> None:
    rates = [TRUE.rate(cores, 1.0) for cores in (1, 10, 50)]
    assert rates == sorted(rates)
    assert TRUE.rate(200, 1.0) == 0
    assert TRUE.cores_for(10_000_000, 20.0) == 11
    assert TRUE.cores_for(10**12, 1.0) is None


def test_the_page_compares_predictions_and_extrapolates_to_a_hundred_cores() -> None:
    told = {"commit": "abc", "command": "strandline bench scale", "rows": [], "reported": [], **run()}
    machine = {"cpu": "a", "cores": 2, "memory_gb": 8, "system": "Linux", "python": "3", "java": "17", "date": "today"}
    for each in told["cells"]:
        each |= {"rounds": 1, "failures": [], "peak_bytes": 1, "load_before": [0.0]}
    page = scale({**told, "machine": {**machine, "packages": {}}})
    assert "### Model: a hundred cores" in page
    assert "| one core | 1.18 s | 1.18 s | +0% |" in page
    assert "| 100 |" in page
