"""An element is identified by (input, partition, offset): inputs of a union may share partitions and offsets."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.kernel.dead_letters import SOURCE
from strandline.kernel.output import Output
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Elements, Keyed, Panes
from strandline.spark.job import Job
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Carrier
from tests.spark.test_flows import rows, timed

SLIDING = sl.sliding(seconds=10, every="5s")
EARLY = sl.after_watermark(early=sl.after_count(1))


def counted(keyed: Keyed) -> Panes:
    return keyed.aggregate(n=sl.count(), total=sl.sum("score"))


def outputs(panes: Panes, *batches: dict[int, pl.DataFrame], combines: bool = True) -> list[Output]:
    """Outputs of the batches and of the drain; the carrier asserts that every element is accounted for."""
    carrier = Carrier(to_stages(panes.write(PaperSink()).root), combines=combines)
    found = [carrier.carry_frames({scan: [frame] for scan, frame in batch.items()}, 0)[0] for batch in batches]
    return [*found, carrier.carry_frames({}, 0, drain=True)[0]]


def keyed(stream: Elements, trigger: Any = None) -> Keyed:
    windowed = stream.key_by("team").window(SLIDING).accumulate(sl.accumulating)
    return windowed if trigger is None else windowed.trigger(trigger)


def test_two_sources_with_equal_partitions_and_offsets_are_two_elements_in_sliding_windows() -> None:
    both = sl.union(timed("one"), timed("two"))
    *_, last = outputs(counted(keyed(both, EARLY)), {0: rows(("red", 1, 12)), 1: rows(("red", 10, 12))})
    assert last.panes is not None
    assert set(last.panes["total"]) == {11}
    assert set(last.panes["n"]) == {2}


def test_overlapping_branches_of_one_source_are_different_elements() -> None:
    source = timed("one")
    low, high = source.where(pl.col("score") < 8), source.where(pl.col("score") > 2)
    batch = {0: rows(("red", 1, 12), ("red", 5, 12), ("red", 9, 12))}
    *_, last = outputs(counted(keyed(sl.union(low, high), EARLY)), batch)
    assert last.panes is not None
    assert set(last.panes["n"]) == {4}, "the row with 5 comes by both branches"


@pytest.mark.parametrize("combines", [True, False])
def test_two_late_elements_of_different_inputs_are_two_late_rows(combines: bool) -> None:
    both = sl.union(timed("one"), timed("two"))
    found = outputs(
        counted(keyed(both)),
        {0: rows(("red", 1, 12)), 1: rows(("red", 1, 12))},
        {0: rows(("red", 1, 90)), 1: rows(("red", 1, 90))},
        {0: rows(("red", 1, 13)), 1: rows(("red", 2, 13))},
        combines=combines,
    )
    late = pl.concat([each.late for each in found if each.late is not None], how="diagonal_relaxed")
    assert sorted(zip(late["score"], late[SOURCE], strict=True)) == [(1, "one"), (2, "two")]


@pytest.mark.spark
@pytest.mark.parametrize("trigger", [None, EARLY], ids=["default trigger", "early trigger"])
def test_a_union_of_two_generators_with_sliding_windows_runs_on_spark(
    spark: SparkSession, tmp_path: Path, trigger: Any
) -> None:
    def scores(seed: int) -> Elements:
        source = sl.read(sl.scores(seed=seed, events=300, rate=10_000))
        return source.event_time("at", sl.bounded(seconds=1).idle_after(seconds=2))

    panes = counted(keyed(sl.union(scores(1), scores(2)), trigger))
    job: Job = panes.write(sl.sqlite(tmp_path / "totals.db", table="totals")).run(spark, checkpoint=tmp_path / "job")
    assert job.await_end(120)
    assert job.counts.read > 0
    assert job.counts.missing == 0
