"""Build numbers of batches by hand."""

from typing import Any

from strandline.model.counts import Counts
from strandline.model.histograms import Histogram, of_times
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics

START = 1_700_000_000_000


def batch(number: int = 0, at: int = START, **fields: Any) -> BatchMetrics:
    """A healthy batch, with the given fields."""
    usual: dict[str, Any] = {
        "clock": at - 400,
        "seconds": 1.0,
        "counts": Counts(read=1_000, contributed=990, late=5, dead=3, filtered=2),
        "out": {"early": 20, "on_time": 10},
        "watermark": at - 5_000,
        "held_by": "scores-1",
        "partitions": tuple(partition(f"scores-{each}", at) for each in range(4)),
        "partition_count": 4,
        "lag_records": 120,
        "lag_seconds": 0.6,
        "latency": {"early": of_times([700.0] * 20), "on_time": of_times([5_600.0] * 9 + [8_000.0])},
        "stages": {"source": 0.02, "read": 0.1, "prepare": 0.3, "shuffle": 0.2, "step": 0.2, "deliver": 0.05},
        "busy": {"read": 0.2, "prepare": 0.6, "step": 0.4, "state": 0.1},
        "steps": (
            StepMetrics(
                "step 1", at - 5_000, at - 5_000, 40, 20_000, Counts(1_000, 990, 5, 3, 2), (250, 245, 255, 240)
            ),
        ),
        "hot": (HotKey("step 1", '{"team":"red"}', 300, 0.3), HotKey("step 1", '{"team":"blue"}', 100, 0.1)),
        "lateness": Histogram(((0, 900), (30, 80), (41, 20))),
        "reasons": {"not_json": 3},
    }
    return BatchMetrics(number, at, **{**usual, **fields})


def partition(name: str, at: int, **fields: Any) -> PartitionMetrics:
    usual = {"event_time": at - 1_000, "watermark": at - 5_000, "heard": at - 400, "lag_records": 30}
    return PartitionMetrics(name, **{**usual, **fields})
