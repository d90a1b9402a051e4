"""Model the throughput of more cores with four parameters, and compare its predictions with measurements.

A batch takes the serial time, part of it per partition, plus its share of the parallel work:

    wall(events, cores, partitions) = alone + each * partitions + (events * cost + partitions * task) / cores

The four parameters are fitted to the cells of `bench scale` that differ in partitions or in events per batch. The other
cells (one core, ten times the events) test the model. The page lists what it leaves out, such as the network, source
and sink.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

CORES: Final = 2
"""Cores of the fitted cells."""
FITTED: Final = {
    "partitions-1": 1, "base": 2, "partitions-4": 4, "partitions-8": 8, "partitions-16": 16, "large": 2
}  # fmt: skip
FORETOLD: Final = {"cores-1": (1, 1), "events-10x": (2, 2), "large-cores-1": (1, 1)}
"""Cores and partitions of cells not used for the fit."""
ASKED: Final = 10_000_000
"""Events a second."""


@dataclass(frozen=True, slots=True)
class Model:
    """Model parameters, in seconds."""

    cost: float
    """Per event, on one core."""
    task: float
    """Per partition and batch, on one core."""
    alone: float
    """Per batch, serial."""
    each: float
    """Serial, per partition."""

    def wall(self, events: float, cores: int, partitions: int) -> float:
        """Return the duration of a batch."""
        work = events * self.cost + partitions * self.task
        return self.alone + self.each * partitions + work / min(cores, partitions)

    def rate(self, cores: int, every: float) -> float:
        """Return the sustained events per second for a number of cores and a batch length."""
        left = every - self.alone - self.each * cores - self.task
        return max(left, 0.0) * cores / (every * self.cost)

    def cores_for(self, rate: float, every: float, most: int = 1_000) -> int | None:
        """Return the cores needed for a rate; None if no number suffices."""
        return next((cores for cores in range(1, most + 1) if self.rate(cores, every) >= rate), None)


@dataclass(frozen=True, slots=True)
class Batch:
    """A measured batch of a cell."""

    partitions: int
    events: int
    cpu: float
    wall: float


def fitted(batches: Sequence[Batch], cores: int = CORES) -> Model:
    """Fit the model by least squares; negative parameters become zero."""
    ones, many = np.ones(len(batches)), np.array([float(each.partitions) for each in batches])
    events = np.array([float(each.events) for each in batches])
    used, took = np.array([each.cpu for each in batches]), np.array([each.wall for each in batches])
    # Separate a batch's fixed use here; its wait is added below.
    (_, cost, task), *_ = np.linalg.lstsq(np.stack([ones, events, many], axis=1), used, rcond=None)
    work = (events * cost + many * task) / np.minimum(cores, many)
    (alone, each), *_ = np.linalg.lstsq(np.stack([ones, many], axis=1), took - work, rcond=None)
    return Model(float(cost), max(float(task), 0.0), max(float(alone), 0.0), max(float(each), 0.0))


def batch_of(cell: Mapping[str, Any], partitions: int) -> Batch:
    """Return the median batch of a cell."""
    counted = len(cell["batch_cpu"][0]) - cell["warm_up"]
    events = cell["events"] // counted
    return Batch(partitions, events, events / cell["per_cpu_second"]["median"], events / cell["per_second"]["median"])


def on_paper(told: Mapping[str, Any]) -> tuple[Model, dict[str, tuple[float, float]]] | None:
    """Return the model of a run, and predicted and measured wall times of the cells it was not fitted to.

    None if the run lacks some of the cells.
    """
    cells = {cell["name"]: cell for cell in told["cells"] if cell.get("batch_cpu")}
    if not {*FITTED, *FORETOLD} <= cells.keys():
        return None
    model = fitted([batch_of(cells[name], partitions) for name, partitions in FITTED.items()])
    found = {}
    for name, (cores, partitions) in FORETOLD.items():
        seen = batch_of(cells[name], partitions)
        found[name] = (model.wall(seen.events, cores, partitions), seen.wall)
    return model, found
