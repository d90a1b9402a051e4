"""Definitions that earlier releases wrote keep their fingerprints, so that their job folders go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import CheckpointMismatch
from strandline.plan.compile import to_stages
from strandline.plan.explain import explain
from strandline.plan.nodes import fingerprint, to_plain
from strandline.plan.pipeline import Keyed, Pipeline
from strandline.plan.refinement.inherited import as_stored, without_inheritance
from strandline.plan.upgrade.compare import changes

RELEASED: Final = {
    "chain": "979bc774488acca88e7ffd9ab380567c47b6eaedc084bf1bf4d9e15b1a3b6cb6",
    "files": "c3360921818c14e29b2c227915090090f8afb37eb892b1ef21407c9edfda7306",
    "kafka": "ca757b9f45eca50bed48e2563e892182b2d579082f5fa279c784d3fc467a96bf",
    "plain": "17f5f0b33a96003882d1723ca50dac4673ccdce70a9d62c80705aaeb1bc24536",
    "salted": "10aada31db564e919e2f7a00c678f64fde382dbe4b469c5a952dc539be9a7c50",
    "session": "a50c620c034a82df1c8f325cb700beea3fdeee12510925c7133850c48ccdfefc",
    "sliding": "92eafad8c096dc683d432ba362b5db23b184e71f36ecd0889b6e4143e890bf4b",
    "together": "8e37089b6abe1c96082e245cde666c31032689387d06c583b56f37a8ab018281",
    "tumbling": "0d4da94a333c39697d411394e039ab04232d01b7cd628ce2dc2868b5dcfbf1f7",
    "union": "f072f25b98547c286e320f80dd5823247e43b46e1ec6984585766f3b0b2abc63",
}
"""As release 0.1 computed them."""


def elements() -> sl.Elements:
    scores = sl.read(sl.scores(seed=1, events=10, rate=10))
    return scores.event_time("at", sl.bounded(seconds=3).idle_after(seconds=5))


def first_step() -> sl.Panes:
    early = sl.after_watermark(early=sl.after_count(1))
    step = elements().key_by("team").window(sl.tumbling(minutes=1))
    return step.accumulate(sl.retracting).trigger(early).aggregate(n=sl.count())


def chain(settings: Callable[[Keyed], Keyed] = lambda step: step, delivery: str = "exactly_once") -> Pipeline:
    again = settings(first_step().key_by("window_start").window(sl.tumbling(minutes=1)))
    return again.aggregate(t=sl.sum("n"), top=sl.top_k("n", 3)).write(sl.console(), delivery=delivery)


def pipelines() -> dict[str, Pipeline]:
    scores = sl.read(sl.scores(seed=1, events=10, rate=10))
    timed = elements()
    other = sl.read(sl.scores(seed=2, events=5, rate=5)).event_time("at", sl.monotone())
    base, minute = timed.key_by("team"), sl.tumbling(minutes=1)
    early = sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(1))
    both = sl.union(timed, other).where(pl.col("score") > 1).key_by("team")
    topic = sl.read(sl.kafka("t", servers="localhost:9092", value=sl.json("id long, at timestamp, k string")))
    files = sl.read(sl.files("in/", "k string, v long, at timestamp")).with_columns(w="v*2")
    hourly = base.window(sl.tumbling(hours=1)).allow_lateness("1h", rest=sl.sqlite("a.db", table="late"))
    sliding = base.window(sl.sliding(minutes=10, every="1m")).trigger(early).accumulate(sl.retracting)
    sessions = base.window(sl.session(seconds=5))
    counted = topic.event_time("at", sl.percentile(0.99)).key_by("k").window(sl.count_window(5))
    growing = files.event_time("at", sl.bounded(seconds=1)).key_by("k").window(sl.cumulating("1h", step="10m"))
    database: Any = {"dsn": "postgresql://localhost/x", "mode": "upsert"}
    return {
        "tumbling": base.window(minute).aggregate(n=sl.count(), s=sl.sum("score")).write(sl.sqlite("a.db", table="x")),
        "sliding": sliding.allow_lateness(minutes=1).aggregate(n=sl.count()).write(sl.postgres("x", **database)),
        "session": sessions.aggregate(f=sl.first("score"), l=sl.last("score"), d=sl.count_distinct("user")).write(
            sl.folder("out/")
        ),
        "salted": base.window(minute).hot_keys(salt=8).aggregate(all=sl.collect("score")).write(sl.discard()),
        "chain": chain(),
        "union": both.trigger(sl.repeatedly(sl.after_count(3)))
        .keep_for_ever()
        .aggregate(m=sl.mean("score"))
        .write(sl.valkey("valkey://localhost:1", prefix="p")),
        "kafka": counted.aggregate(n=sl.count()).write(sl.kafka_topic("o", servers="localhost:9092")),
        "files": growing.evict(sl.keep_last(4))
        .aggregate(s=sl.sum("w"))
        .write(sl.delta("tab"), dead=sl.dead_files("dead/")),
        "plain": scores.where("score > 1").write(sl.duckdb("x.duckdb")),
        "together": sl.together(
            first_step().write(sl.sqlite("a.db", table="c")),
            hourly.aggregate(n=sl.count()).write(sl.sqlite("b.db", table="h")),
        ),
    }


@pytest.mark.parametrize("name", RELEASED)
def test_a_folder_of_release_0_1_goes_on_with_its_definition(name: str) -> None:
    assert fingerprint(as_stored(pipelines()[name].root, RELEASED[name])) == RELEASED[name]


@pytest.mark.parametrize("name", sorted(RELEASED.keys() - {"chain"}))
def test_a_definition_of_release_0_1_keeps_its_fingerprint(name: str) -> None:
    assert fingerprint(pipelines()[name].root) == RELEASED[name]


def test_settings_that_a_step_inherits_today_can_be_written_as_release_0_1_had_them() -> None:
    assert fingerprint(chain(lambda step: step.accumulate(sl.discarding)).root) == RELEASED["chain"]


def test_a_chain_inherits_what_release_0_1_did_not() -> None:
    today, then = pipelines()["chain"].root, as_stored(pipelines()["chain"].root, RELEASED["chain"])
    assert "accumulation was 'discarding' and is 'retracting'" in str(changes(to_plain(then), to_plain(today))[0])
    assert as_stored(today, "another folder") == today


def test_a_job_folder_of_before_is_claimed_and_said_to_go_on_as_before(tmp_path: Path) -> None:
    today = chain(delivery="at_least_once").root
    then = without_inheritance(today)
    folder = Checkpoint(tmp_path / "job")
    made = folder.claim(then, to_stages(then))
    stored = folder.as_stored(today)
    assert folder.claim(stored, to_stages(stored)) == made
    assert "discarding" in explain(stored)
    with pytest.raises(CheckpointMismatch, match="accumulation was"):
        folder.claim(today, to_stages(today))
