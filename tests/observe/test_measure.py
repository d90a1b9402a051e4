"""The numbers of a batch from what was delivered: the watermark's holder, latency, hot keys, and lag."""

import json
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.listener import SourceProgress

from strandline.execution.gather_output import StepOutput
from strandline.execution.task_metrics import Measured, buckets, collected, highest, measure, with_metrics
from strandline.kernel.blocks.block import AT, COUNTED, END, START, Block
from strandline.kernel.operator import ROWS
from strandline.kernel.output import Output
from strandline.kernel.watermarks import FOREVER, NEVER, PartitionProgress, Progress
from strandline.kernel.window.panes import INDEX, LAST, RETRACTION, TIMING
from strandline.kernel.window.prepare import PARTS, REPEATS
from strandline.model.counts import Counts
from strandline.model.histograms import bucket_of
from strandline.observe.metrics.lag import EndHistory, positions_in
from strandline.observe.metrics.measure import Meter, by_timing, held_by, latencies, named_partitions, stages_of
from strandline.observe.metrics.pane_recording import PaneSelector
from strandline.observe.metrics.space_saving import HeavyHitters
from strandline.ports.sources import Position
from strandline.spark.delivery.deliver import Delivered

NOW = 1_700_000_000_000


def panes(rows: list[dict[str, Any]]) -> pl.DataFrame:
    usual = {"team": "red", "total": 1, START: NOW - 9_000, END: NOW - 4_000, INDEX: 0, LAST: False, RETRACTION: False}
    return pl.DataFrame([{**usual, TIMING: "on_time", **row} for row in rows])


def delivered(frame: pl.DataFrame | None = None, **fields: Any) -> Delivered:
    parts = {
        "scores-0": PartitionProgress(NOW - 3_000, NOW, highest=NOW - 1_000),
        "scores-1": PartitionProgress(NOW - 5_000, NOW, highest=NOW - 2_000),
        "scores-2": PartitionProgress(NOW - 60_000, NOW - 50_000, idle=True, highest=NOW - 55_000),
    }
    output = Output(frame, progress=Progress(NOW - 5_000, NOW, parts), counts=Counts(10, 9, 1))
    usual: dict[str, Any] = {
        "outputs": (output,),
        "at": NOW + 500,
        "took": {"play": 1.0, "deliver": 0.2},
        "steps": {1: StepOutput(output.progress, NOW - 5_000, 7, 700, (4, 5))},
        "counts": {"step 1": Counts(10, 9, 1)},
    }
    return Delivered(3, output, {}, repeated=False, **{**usual, **fields})


def test_the_numbers_of_a_batch_are_complete() -> None:
    measured = Measured({"prepare": 0.6, "step": 0.4}, {0: 8, 12: 2}, {"step 1": {'{"team":"red"}': 6}})
    spark = {
        "durationMs": {"latestOffset": 5, "queryPlanning": 20, "walCommit": 10, "commitOffsets": 15},
        "sources": [{"latestOffset": {"scores": {"0": 50, "1": 20}}, "endOffset": {"scores": {"0": 40, "1": 20}}}],
    }
    metrics = Meter(cores=2).measure(
        delivered(panes([{}, {TIMING: "early"}]), measured=measured, reasons={"not_json": (2, "…")}), spark, retries=1
    )
    assert (metrics.batch, metrics.at, metrics.clock) == (3, NOW + 500, NOW)
    assert metrics.counts == Counts(10, 9, 1)
    assert metrics.out == {"on_time": 1, "early": 1}
    assert (metrics.watermark, metrics.behind_seconds, metrics.held_by) == (NOW - 5_000, 5.0, "scores-1")
    assert metrics.idle == ("scores-2",)
    assert (metrics.lag_records, metrics.partitions[0].lag_records) == (10, 10)
    assert metrics.steps[0].groups == (4, 5)
    assert (metrics.state_rows, metrics.state_bytes) == (7, 700)
    assert [(key.key, key.count, key.share) for key in metrics.hot] == [('{"team":"red"}', 6, 0.6)]
    assert metrics.lateness.total == 10
    assert metrics.reasons == {"not_json": 2}
    assert metrics.retries == 1
    assert metrics.stages["prepare"] == pytest.approx(0.3)
    assert metrics.stages["shuffle"] == pytest.approx(0.5)
    assert metrics.stages["commit"] == pytest.approx(0.025)


def test_the_watermark_is_held_by_the_slowest_partition_that_counts() -> None:
    early, late = PartitionProgress(10), PartitionProgress(5)
    assert held_by({"a": early, "b": late}) == "b"
    assert held_by({"a": early, "b": PartitionProgress(5, idle=True), "c": PartitionProgress(1, finished=True)}) == "a"
    assert held_by({"a": early, "new": PartitionProgress(NEVER)}) == "new"
    assert held_by({}) is None


def test_partitions_of_several_inputs_keep_their_names_apart() -> None:
    one, other = (
        Progress(partitions={"": PartitionProgress(), "a-0": PartitionProgress()}),
        Progress(partitions={"a-0": PartitionProgress()}),
    )
    assert [*named_partitions(Progress(inputs={"left": one, "right": other}))] == ["left", "a-0", "right a-0"]
    assert [*named_partitions(Progress(partitions={"": PartitionProgress()}))] == ["input"]


def test_latency_is_from_the_windows_end_or_if_that_is_in_the_future_from_the_newest_event() -> None:
    frame = panes([{}, {TIMING: "early", END: NOW + 60_000}, {TIMING: "late", END: FOREVER}])
    latency = latencies(by_timing([Output(frame)]), at=NOW + 1_000, front=NOW)
    ages = {timing: each.counts[0][0] for timing, each in latency.items()}
    assert ages == {"on_time": bucket_of(5_001), "early": bucket_of(1_000), "late": bucket_of(1_000)}


def test_latency_of_elements_is_from_their_own_time() -> None:
    latency = latencies(by_timing([Output(pl.DataFrame({"team": ["red"], AT: [NOW - 250]}))]), NOW, NOW)
    assert latency["element"].counts == ((bucket_of(250), 1),)
    assert latencies(by_timing([Output(pl.DataFrame({"team": ["red"]})), Output()]), NOW, NOW) == {}


def test_very_many_rows_are_sampled_for_latency_and_all_are_counted() -> None:
    latency = latencies(by_timing([Output(panes([{}]).select(pl.all().repeat_by(120_000).explode()))]), NOW, NOW)
    assert abs(latency["on_time"].total - 120_000) < 3


def test_a_few_late_panes_among_very_many_are_all_measured() -> None:
    many = panes([{}]).select(pl.all().repeat_by(120_000).explode())
    latency = latencies(by_timing([Output(pl.concat([many, panes([{TIMING: "late"}] * 3)]))]), NOW, NOW)
    assert latency["late"].total == 3


@given(st.integers(1, 2_000), st.integers(1, 50), st.integers(0, 10**6))
def test_the_highest_counts_are_found_among_many_equal_ones(size: int, kinds: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, kinds, size)
    places = highest(counts, 8)
    assert len({*places.tolist()}) == min(8, size)
    assert counts[places].tolist() == sorted(counts.tolist(), reverse=True)[:8]


def test_the_hot_key_of_very_many_unaggregated_rows_is_found_in_any_frame() -> None:
    frames = [pl.DataFrame({"team": [f"{name} {each}" for each in range(9_001)]}) for name in ("red", "blue")]
    hot = pl.DataFrame({"team": ["hot"] * 6_000})
    blocks = {number: Block({ROWS: frame}) for number, frame in enumerate([frames[0], hot, frames[1]])}
    seen = measure(frames[0].with_columns(pl.lit(NOW).alias(AT)), blocks, "step 1", ["team"], None).hot["step 1"]
    assert max(seen, key=seen.__getitem__) == '{"team":"hot"}'
    assert abs(seen['{"team":"hot"}'] - 6_000) <= 6


def test_a_key_seen_once_in_a_sample_is_not_hot() -> None:
    """Elements that hardly share a window are sent one by one; no such row makes a key hot."""
    teams = ["hot"] * 900 + [f"team {each}" for each in range(30_000)]
    parts = pl.DataFrame({"team": teams, COUNTED: [1] * len(teams)})
    twice = pl.concat([parts, parts.with_columns(pl.lit(0, pl.Int64).alias(COUNTED))])  # in two windows, counted in one
    seen = measure(
        parts.with_columns(pl.lit(NOW).alias(AT)), {0: Block({PARTS: twice}, {REPEATS: True})}, "s", ["team"], None
    )
    ((key, many),) = seen.hot["s"].items()
    assert key == '{"team":"hot"}'
    assert abs(many - 900) <= 10


@given(st.lists(st.integers(-1_000, 10**12), min_size=1, max_size=30))
def test_frames_and_plain_numbers_use_the_same_buckets(ms: list[int]) -> None:
    found = buckets(np.array(ms, np.int64)).tolist()
    assert all(abs(one - bucket_of(each)) <= (each > 1) for one, each in zip(found, ms, strict=True))


def test_parallel_task_time_never_exceeds_the_batch_time() -> None:
    result = stages_of({"play": 1.0, "deliver": 0.5}, {"prepare": 9.0, "step": 1.0}, {}, cores=2)
    assert result == {"prepare": pytest.approx(0.9), "step": pytest.approx(0.1), "deliver": 0.5}


def test_a_task_reports_lateness_and_hot_keys() -> None:
    rows = pl.DataFrame({"team": ["red"], AT: [1]}).select(pl.all().repeat_by(9).explode())
    taken = pl.DataFrame({AT: [1_000, 900, 0]})
    blocks = {
        0: Block({PARTS: pl.DataFrame({"team": ["blue", "jade"], COUNTED: [50, 2]})}),
        1: Block({ROWS: rows}),
    }
    result = measure(taken, blocks, "step 1", ["team"], head=1_000)
    assert result.behind == {0: 1, bucket_of(100): 1, bucket_of(1_000): 1}
    assert result.hot["step 1"] == {'{"team":"blue"}': 50, '{"team":"red"}': 9, '{"team":"jade"}': 2}
    assert measure(taken, blocks, "step 1", ["team"], None).behind == {}


def test_task_metrics_add_up_over_blocks() -> None:
    one, other = Measured({"step": 1.0}, {3: 1}, {"s": {"k": 1}}), Measured({"step": 0.5}, {3: 2}, {"s": {"k": 4}})
    block = with_metrics(with_metrics(Block(), one), other)
    found = collected([block, Block(), with_metrics(Block(), one)])
    assert found is not None
    assert (found.seconds["step"], found.behind, found.hot) == (2.5, {3: 4}, {"s": {"k": 6}})
    assert collected([Block()]) is None


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=300))
def test_a_key_with_a_large_share_is_always_found(keys: list[str]) -> None:
    sketch = HeavyHitters(room=8)
    stream = keys + ["hot"] * (len(keys) // 6 + 1)
    for key in stream:
        sketch.add({key: 1}, 1)
    result = {key: many for key, many, _ in sketch.top(8)}
    assert result["hot"] >= stream.count("hot")
    exact = Counter(stream)
    assert all(many >= exact[key] for key, many in result.items()), "never less than it was"
    assert all(share <= exact[key] / len(stream) + 1e-9 for key, _, share in sketch.top(8)), "a share is at least that"


def test_keys_that_were_hot_long_ago_are_forgotten() -> None:
    sketch = HeavyHitters(room=4)
    sketch.add({"old": 100}, 100)
    for _ in range(4_000):
        sketch.add({"new": 1}, 1)
    assert sketch.top(1)[0][0] == "new"
    assert "old" not in [key for key, _, _ in sketch.top(4)]


def test_lag_in_seconds_is_the_age_of_the_jobs_position() -> None:
    following, result = EndHistory(), {}
    for second in range(10):
        result = following.lags([Position("scores-0", 0, 100 * second)], NOW + second * 1_000)
    assert result["scores-0"].records == 900
    assert result["scores-0"].seconds == pytest.approx(9.0)
    result = following.lags([Position("scores-0", 650, 1_000)], NOW + 10_000)
    assert result["scores-0"].seconds == pytest.approx(3.5)
    result = following.lags([Position("scores-0", 1_000, 1_000)], NOW + 11_000)
    assert (result["scores-0"].records, result["scores-0"].seconds) == (0, 0.0)


def test_lag_in_seconds_is_known_in_the_first_batch_if_the_broker_told_where_the_partition_ended_before() -> None:
    earlier = ((NOW - 60_000, 0), (NOW - 10_000, 500))
    lags = EndHistory().lags([Position("scores-0", 250, 1_000, earlier)], NOW)
    assert lags["scores-0"].records == 750
    assert lags["scores-0"].seconds == pytest.approx(35.0)


def test_lag_in_seconds_is_unknown_before_the_end_has_moved() -> None:
    assert EndHistory().lags([Position("scores-0", 5, 100)], NOW)["scores-0"].seconds is None


def test_positions_are_found_in_sparks_progress_of_topics() -> None:
    kafka = {"latestOffset": {"scores": {"0": 7}}, "endOffset": {"scores": {"0": 5}}}
    files = {"latestOffset": None, "endOffset": {"logOffset": 3}}
    beat = {"latestOffset": {"tick": 5, "drain": 0}, "endOffset": {"tick": 5, "drain": 0}}
    assert positions_in([kafka, files, beat, {}]) == [Position("scores-0", 5, 7)]


def test_positions_are_found_in_the_report_as_pyspark_hands_it_over() -> None:
    report = {
        "description": "KafkaV2[Subscribe[scores]]", "startOffset": None, "endOffset": {"scores": {"0": 5}},
        "latestOffset": {"scores": {"0": 7}}, "numInputRows": 5, "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }  # fmt: skip
    assert positions_in([SourceProgress.fromJson(report)]) == [Position("scores-0", 5, 7)]
    assert positions_in([{"latestOffset": "17", "endOffset": "not json"}]) == []


def test_the_ends_that_the_broker_told_come_before_those_of_sparks_report() -> None:
    report = {"sources": [{"latestOffset": {"scores": {"0": 70}}, "endOffset": {"scores": {"0": 40}}}]}
    metrics = Meter().measure(delivered(panes([{}]), positions=(Position("scores-0", 40, 50),)), report)
    assert metrics.lag_records == 10


def test_the_lag_of_a_batch_is_known_without_a_report_of_spark() -> None:
    metrics = Meter().measure(delivered(panes([{}]), positions=(Position("scores-0", 40, 50),)), None)
    assert (metrics.lag_records, metrics.partitions[0].lag_records) == (10, 10)


def test_panes_are_recorded_with_their_keys_and_values() -> None:
    lines = PaneSelector({0: ("team",)}).lines(delivered(panes([{}, {RETRACTION: True, "total": 2}])))
    assert [(line.key, line.said, line.taken_back) for line in lines] == [
        ('{"team":"red"}', '{"total":1}', False),
        ('{"team":"red"}', '{"total":2}', True),
    ]


def test_of_too_many_panes_some_keys_are_selected_with_all_their_panes() -> None:
    followed = PaneSelector({0: ("team",)}, per_batch=40)
    result: dict[str, list[int]] = {}
    for number in range(6):
        frame = panes([{"team": f"team {each}", INDEX: number} for each in range(500)])
        batch = delivered(frame)
        for line in followed.lines(batch):
            result.setdefault(json.loads(line.key)["team"], []).append(line.pane)
    last = [team for team, indexes in result.items() if indexes[-1] == 5]
    assert 0 < len(last) <= 40
    assert all(result[team] == [0, 1, 2, 3, 4, 5] for team in last)


def test_a_value_that_is_very_long_is_cut_and_still_json() -> None:
    (line,) = PaneSelector({0: ("team",)}).lines(delivered(panes([{"team": "x" * 500, "total": float("nan")}])))
    assert len(json.loads(line.key)["team"]) == 80
    assert json.loads(line.said) == {"total": "nan"}
