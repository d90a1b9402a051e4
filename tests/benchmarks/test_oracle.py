"""The judge and the kernel agree on a tiny corpus, without Spark; and the judge sees what is wrong."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from benchmarks.corpus import FLUSH_KEY, Batch, Corpus, batches_of, written
from benchmarks.oracle import expect
from benchmarks.ours import kind_of
from benchmarks.workloads import DELAY, Contestant, Panes, Session, Sliding, Tumbling, Workload, from_json, to_json
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import Lateness, Pane
from strandline.model.steps import WindowedStep
from tests.kernel.players import KernelPlayer

TINY = Corpus(keys=7, batches=4, per_batch=400, seed=3)
"""Batches of eight milliseconds: without more between them, all would fall into one window."""

WORKLOADS = [
    Workload(Tumbling()),
    Workload(Tumbling(2)),
    Workload(Tumbling(), Panes.ALL),
    Workload(Sliding(6, 2)),
    Workload(Session()),
]


def step_of(workload: Workload) -> WindowedStep:
    all_panes = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.repeatedly(sl.after_count(1)))
    spoken: dict[str, Any] = {"trigger": all_panes, "accumulation": sl.retracting}
    return WindowedStep(
        window=kind_of(workload.window),
        aggregates=(("total", sl.sum("value")), ("plays", sl.count())),
        lateness=Lateness(Duration(workload.lateness * 1000)),
        **(spoken if workload.panes is Panes.ALL else {}),
    )


def spread_out(corpus: Corpus) -> list[Batch]:
    """The corpus with its batches nine seconds apart, so that a few events fill several windows."""
    return [Batch(each.key, each.value, each.at + number * 9_000) for number, each in enumerate(batches_of(corpus))]


def elements(batch: Batch, first: int) -> list[Element]:
    rows = zip(batch.key.tolist(), batch.value.tolist(), batch.at.tolist(), strict=True)
    return [
        Element(Timestamp(at), key, {"value": value}, "0", first + number)
        for number, (key, value, at) in enumerate(rows)
    ]


def cells(panes: list[Pane]) -> pl.DataFrame:
    rows = [
        (pane.key, pane.window.start.ms, pane.window.end.ms, pane.values["total"], pane.values["plays"],
         -1 if pane.retraction else 1)
        for pane in panes
    ]  # fmt: skip
    return pl.DataFrame(rows, ["key", "start_ms", "end_ms", "total", "plays", "sign"], orient="row")


def keep(batches: list[Batch], folder: Path) -> None:
    folder.mkdir()
    for number, batch in enumerate(batches):
        frame = pl.DataFrame({"key": batch.key, "value": batch.value, "at": batch.at})
        frame.with_columns(pl.col("at").cast(pl.Datetime("ms", "UTC"))).write_parquet(
            folder / f"{number:05d}-0.parquet"
        )


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_kernel_says_what_the_judge_expects(workload: Workload, tmp_path: Path) -> None:
    batches = spread_out(
        Corpus(keys=7, batches=4, per_batch=400, seed=3, late=not isinstance(workload.window, Session))
    )
    keep(batches, tmp_path / "corpus")
    player = KernelPlayer(step_of(workload), sl.bounded(seconds=DELAY), partitions=["0"])
    panes: list[Pane] = []
    late = 0
    for number, batch in enumerate(batches):
        emitted = player.feed(elements(batch, number * 1_000))
        panes += emitted.panes
        late += len(emitted.late)
    cells(panes).write_parquet(tmp_path / "panes.parquet")
    expected = expect(tmp_path / "corpus", workload, Contestant.OURS)
    assert expected.judge(str(tmp_path / "panes.parquet")).agrees
    assert expected.late == late
    if workload == Workload(Tumbling(2)):
        assert late > 0


def test_a_window_that_is_missing_wrong_or_said_twice_is_found(tmp_path: Path) -> None:
    folder, _ = written(TINY, tmp_path)
    expected = expect(folder, Workload(Tumbling()), Contestant.CEILING)
    output = tmp_path / "panes.parquet"
    expected.connection.execute(
        f"COPY (SELECT *, 1 AS sign FROM expected ORDER BY key, start_ms) TO '{output}' (FORMAT parquet)"
    )
    right = pl.read_parquet(output)
    assert expected.judge(str(output)).agrees
    altered = {
        "missing": right[1:],
        "wrong": right.with_columns(total=pl.col("total") + (pl.col("key") == 3)),
        "twice": pl.concat([right, right[:1]]),
    }
    for name, frame in altered.items():
        frame.write_parquet(output)
        verdict = expected.judge(str(output))
        assert not verdict.agrees, name
        assert verdict.example.startswith("key "), name


def test_no_output_at_all_is_not_taken_for_agreement(tmp_path: Path) -> None:
    folder, _ = written(TINY, tmp_path)
    output = tmp_path / "panes.parquet"
    cells([]).cast(pl.Int64).write_parquet(output)
    assert not expect(folder, Workload(Tumbling()), Contestant.CEILING).judge(str(output)).agrees


def test_peers_drop_what_comes_late_by_their_own_rules(tmp_path: Path) -> None:
    batches = spread_out(TINY)
    keep(batches, tmp_path / "corpus")
    taken = {}
    for contestant in (Contestant.OURS, Contestant.NATIVE_ROCKSDB, Contestant.BY_KEY, Contestant.CEILING):
        expected = expect(tmp_path / "corpus", Workload(Tumbling(2)), contestant)
        found = expected.connection.execute("SELECT sum(plays) FROM expected").fetchone()
        taken[contestant] = found[0] if found else 0
    assert taken[Contestant.BY_KEY] <= taken[Contestant.OURS] < taken[Contestant.NATIVE_ROCKSDB]
    assert taken[Contestant.NATIVE_ROCKSDB] < taken[Contestant.CEILING] == TINY.batches * TINY.per_batch


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_arrives_as_it_was_sent(workload: Workload) -> None:
    assert from_json(to_json(workload)) == workload


def test_the_flush_is_nobodys(tmp_path: Path) -> None:
    folder, _ = written(TINY, tmp_path)
    expected = expect(folder, Workload(Tumbling()), Contestant.OURS)
    found = expected.connection.execute(f"SELECT count(*) FROM expected WHERE key = {FLUSH_KEY}").fetchone()
    assert found == (0,)
