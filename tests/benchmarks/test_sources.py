"""The benchmark of sources, without its broker: what a topic is given, who is compared, what the page says."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import feeds, oracle, render, runs, sources
from benchmarks.broker import parts_of
from benchmarks.corpus import FLUSH_KEY, START, Corpus, batch_of
from benchmarks.feeds import Folder, Form, Topic
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.suite import TUMBLING
from benchmarks.workloads import Contestant
from tests.benchmarks.sample import results

CELLS = sources.full().groups[0].cells


def test_every_row_compares_cells_that_are_measured() -> None:
    for suite in (sources.full(), sources.quick()):
        names = {cell.name for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == names


def test_partitions_are_of_the_same_length_so_that_batches_are_those_of_the_corpus() -> None:
    corpus = Corpus(keys=7, batches=2, per_batch=1_000)
    given: dict[int, list[int]] = {0: [], 1: []}
    for part, batch in parts_of(corpus):
        given[part] += batch.key.tolist()
    assert len(given[0]) == len(given[1]) == 1_001
    assert given[0][-1] == given[1][-1] == FLUSH_KEY
    for number in range(2):
        mine = slice(number * 500, (number + 1) * 500)
        assert np.stack([given[0][mine], given[1][mine]], axis=1).reshape(-1).tolist() == (
            batch_of(corpus, number).key.tolist()
        )


@pytest.mark.parametrize("feed", [Folder("/here"), Topic("events", "localhost:9092", Form.AVRO, 10, "http://here")])
def test_a_feed_travels_to_the_process_that_reads_it(feed: feeds.Feed) -> None:
    assert feeds.from_json(feeds.to_json(feed)) == feed


def test_records_of_a_broker_need_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is none"):
        runs.measure(CELLS[0], 0, tmp_path, check=False)


def test_the_judge_goes_by_the_slowest_partition_where_we_do(tmp_path: Path) -> None:
    """One partition is 30 s ahead of the other; then an element comes that only the slower one would still take."""
    for name, seconds in (("00000-0", 40), ("00000-1", 10), ("00001-0", 5)):
        at = pa.array([(START + seconds * 1000) * 1000], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"key": [1], "value": [seconds], "at": at}), tmp_path / f"{name}.parquet")
    late = [
        oracle.expect(tmp_path, TUMBLING, contestant, apart=apart).late
        for contestant, apart in ((Contestant.OURS, True), (Contestant.OURS, False), (Contestant.NATIVE_ROCKSDB, True))
    ]
    assert late == [0, 1, 1]


@pytest.mark.slow
def test_the_page_tells_of_sources_with_what_the_broker_used() -> None:
    mine = [
        Run(cell.name, 0, 2_000_000, cpu_seconds=number, wall_seconds=1, broker_seconds=3.0)
        for number, cell in enumerate(CELLS, 1)
    ]
    told = to_results(Measured(mine), sources.full(), "strandline bench sources", {})
    page = render.page(results(), of_sources=told)
    assert [(row["name"], row["ratio"], row["reached"]) for row in told["rows"]] == [
        ("json", 2.0, "goal"),
        ("avro", 1.333, "floor"),
    ]
    assert "1.33x holds the floor of 0.90x; the goal is 1.50x." in page
    assert "| ours-json | 2,000,000 | 2,000,000 | 0.0 GB | 1.50 s |  |" in page
    failed = to_results(
        Measured([Run("ours-json", 0, failure="3 windows are wrong")]), sources.full(), "strandline bench sources", {}
    )
    assert "| ours-json | failed |" in render.page(results(), of_sources=failed)
