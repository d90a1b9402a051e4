"""Every rule refuses a pipeline, and accepts it after a small change."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Sink
from strandline.plan.pipeline import Keyed, Panes, Pipeline
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource, scores

WATERMARK = sl.bounded(seconds=10)
OTHER = PaperSource("other", columns="team string, score double, at timestamp")


@dataclass(frozen=True, slots=True)
class EndedSource(PaperSource):
    ends: bool = True


def keyed() -> Keyed:
    return scores().event_time("at", WATERMARK).key_by("team").window(sl.tumbling(minutes=1))


def counted(step: Keyed) -> Pipeline:
    return step.aggregate(plays=sl.count()).write(PaperSink())


def again(step: Keyed, **options: bool) -> Pipeline:
    panes = step.aggregate(plays=sl.count())
    return counted(panes.key_by("team", **options).window(sl.tumbling(minutes=5)))


def again_by_window(step: Keyed) -> Keyed:
    panes = step.accumulate(sl.retracting).aggregate(score=sl.sum("score"))
    return panes.key_by("window_start").window(sl.tumbling(minutes=1))


def totals_of_teams() -> Panes:
    return keyed().aggregate(total=sl.sum("score"))


REFINED = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
UPSERT = sl.sqlite("scores.db", table="totals", mode="upsert")
DURING = keyed().trigger(REFINED).allow_lateness("1m")
SESSIONS = DURING.window(sl.session(seconds=5))


def total(step: Keyed, sink: Sink = UPSERT) -> Pipeline:
    return step.aggregate(total=sl.sum("score")).write(sink)


CASES: dict[str, tuple[Callable[[], Pipeline], str, Callable[[], Pipeline]]] = {
    "no time": (
        lambda: counted(scores().key_by("team").window(sl.tumbling(minutes=1))),
        "have no time, and plays by team needs one",
        lambda: counted(keyed()),
    ),
    "no such key": (
        lambda: counted(scores().event_time("at", WATERMARK).key_by("club").window(sl.tumbling(minutes=1))),
        "scores has no column 'club'",
        lambda: counted(scores().event_time("at", WATERMARK).key_by("user").window(sl.tumbling(minutes=1))),
    ),
    "no such time": (
        lambda: counted(scores().event_time("when", WATERMARK).key_by("team").window(sl.tumbling(minutes=1))),
        "scores has no column 'when'",
        lambda: counted(keyed()),
    ),
    "an event time that is a number": (
        lambda: counted(scores().event_time("score", WATERMARK).key_by("team").window(sl.tumbling(minutes=1))),
        "the event time 'score' is a long",
        lambda: counted(
            scores()
            .with_columns(then="timestamp_millis(score)")
            .event_time("then", WATERMARK)
            .key_by("team")
            .window(sl.tumbling(minutes=1))
        ),
    ),
    "no such value": (
        lambda: keyed().aggregate(best=sl.argmax("user", by="points")).write(PaperSink()),
        "scores has no column 'points'",
        lambda: keyed().aggregate(best=sl.argmax("user", by="score")).write(PaperSink()),
    ),
    "a sum of texts": (
        lambda: keyed().aggregate(total=sl.sum("user")).write(PaperSink()),
        "'total' needs a number, and the column 'user' is a string",
        lambda: keyed().aggregate(total=sl.sum("score")).write(PaperSink()),
    ),
    "a key and a value of one name": (
        lambda: keyed().aggregate(team=sl.count()).write(PaperSink()),
        "'team' is both a key and an aggregate",
        lambda: keyed().aggregate(teams=sl.count()).write(PaperSink()),
    ),
    "a union of different columns": (
        lambda: sl.union(scores(), scores(OTHER)).write(PaperSink()),
        "the streams of a union have different columns",
        lambda: sl.union(scores().select("team"), scores(OTHER).select("team")).write(PaperSink()),
    ),
    "a union of different types": (
        lambda: sl.union(scores().select("score"), scores(OTHER).select("score")).write(PaperSink()),
        "the column 'score' has different types in a union",
        lambda: sl.union(scores().select("at"), scores(OTHER).select("at")).write(PaperSink()),
    ),
    "a delivery that the sink does not offer": (
        lambda: keyed().aggregate(plays=sl.count()).write(PaperSink(), delivery="at_most_once"),
        "paper cannot deliver at most once",
        lambda: keyed().aggregate(plays=sl.count()).write(PaperSink(), delivery="at_least_once"),
    ),
    "retractions that the sink cannot take": (
        lambda: keyed().accumulate(sl.retracting).aggregate(n=sl.count()).write(PaperSink(takes_retractions=False)),
        "paper cannot take retractions, and n by team sends them",
        lambda: keyed().accumulate(sl.accumulating).aggregate(n=sl.count()).write(PaperSink(takes_retractions=False)),
    ),
    "accumulating panes": (
        lambda: again(keyed().trigger(sl.repeatedly(sl.after_count(1))).accumulate(sl.accumulating)),
        "plays by team would count elements twice",
        lambda: again(keyed().trigger(sl.repeatedly(sl.after_count(1))).accumulate(sl.retracting)),
    ),
    "accumulating panes, accepted": (
        lambda: again(keyed().allow_lateness("1m").accumulate(sl.accumulating)),
        "plays by team would count elements twice",
        lambda: again(keyed().allow_lateness("1m").accumulate(sl.accumulating), even_repeated=True),
    ),
    "parts of results by key": (
        lambda: total(DURING),
        r"sqlite\('totals'\) keeps one row for each key, and panes of total by team would overwrite each other",
        lambda: total(DURING.accumulate(sl.accumulating)),
    ),
    "parts of results by key, retracting": (
        lambda: total(keyed().trigger(sl.after_watermark(early=sl.after_count(1)))),
        "each holds only a part of its window's result",
        lambda: total(keyed().trigger(sl.after_watermark(early=sl.after_count(1))).accumulate(sl.retracting)),
    ),
    "parts of results by key, appended": (
        lambda: total(keyed().allow_lateness("1m")),
        "write to a sink that appends",
        lambda: total(keyed().allow_lateness("1m"), sl.sqlite("scores.db", table="totals")),
    ),
    "parts of results in a Delta table": (
        lambda: total(DURING, sl.delta("lake/totals", key=["team", "window_start"])),
        "would overwrite each other",
        lambda: total(DURING.accumulate(sl.retracting), sl.delta("lake/totals", key=["team", "window_start"])),
    ),
    "parts of results in Valkey": (
        lambda: total(DURING, sl.valkey("valkey://localhost:1", prefix="totals")),
        "would overwrite each other",
        lambda: total(DURING.accumulate(sl.accumulating), sl.valkey("valkey://localhost:1", prefix="totals")),
    ),
    "parts of results in a compacted topic": (
        lambda: total(DURING, sl.kafka_topic("totals", servers="localhost:1", mode="upsert")),
        "would overwrite each other",
        lambda: total(DURING, sl.kafka_topic("totals", servers="localhost:1")),
    ),
    "parts of results of a second step": (
        lambda: total(again_by_window(DURING).accumulate(sl.discarding)),
        "would overwrite each other",
        lambda: total(again_by_window(DURING)),
    ),
    "accumulating sessions by key": (
        lambda: total(SESSIONS.accumulate(sl.accumulating)),
        "would keep stale rows: sessions of total by team grow",
        lambda: total(SESSIONS.accumulate(sl.retracting)),
    ),
    "accumulating sessions by key, the latest": (
        lambda: total(SESSIONS.accumulate(sl.accumulating)),
        "would keep stale rows",
        lambda: total(SESSIONS.accumulate(sl.accumulating), sl.sqlite("scores.db", key=["team"])),
    ),
    "keys that are dropped": (
        lambda: totals_of_teams().select("total").write(UPSERT),
        "its rows no longer have team",
        lambda: totals_of_teams().select("team", "total").write(UPSERT),
    ),
    "keys that are renamed": (
        lambda: totals_of_teams().select("total", club=pl.col("team")).write(UPSERT),
        "its rows no longer have team",
        lambda: (
            totals_of_teams()
            .select("total", club=pl.col("team"))
            .write(sl.sqlite("scores.db", key=["club", "window_start"]))
        ),
    ),
    "keys that are computed": (
        lambda: totals_of_teams().with_columns(team=pl.lit("all")).write(UPSERT),
        "its rows no longer have team",
        lambda: totals_of_teams().with_columns(club=pl.lit("all")).write(UPSERT),
    ),
    "several rows of one pane": (
        lambda: totals_of_teams().flat_map(lambda row: [row, row], "team string, rank long").write(UPSERT),
        "flat_map may make several rows of one",
        lambda: (
            totals_of_teams()
            .flat_map(lambda row: [row, row], "team string, rank long")
            .write(sl.sqlite("scores.db", key=["team", "window_start", "rank"]))
        ),
    ),
    "a compacted topic without the window": (
        lambda: totals_of_teams().write(sl.kafka_topic("totals", servers="localhost:1", mode="upsert", key=["team"])),
        "keys its records by team, without the window",
        lambda: totals_of_teams().write(sl.sqlite("scores.db", key=["team"])),
    ),
    "a trigger that closes": (
        lambda: counted(keyed().trigger(sl.after_count(3))),
        "the trigger of plays by team finishes",
        lambda: counted(keyed().trigger(sl.repeatedly(sl.after_count(3)))),
    ),
    "a trigger that closes while late elements are allowed": (
        lambda: counted(keyed().trigger(sl.after_watermark()).allow_lateness("1m")),
        "the trigger of plays by team finishes",
        lambda: counted(keyed().trigger(sl.after_watermark(), may_close=True).allow_lateness("1m")),
    ),
    "a global window without a time to live": (
        lambda: counted(keyed().window(sl.everything())),
        "keeps a row for every key forever",
        lambda: counted(keyed().window(sl.everything()).time_to_live("1h")),
    ),
    "a global window, accepted": (
        lambda: counted(keyed().window(sl.everything())),
        "keeps a row for every key forever",
        lambda: counted(keyed().window(sl.everything()).keep_for_ever()),
    ),
    "a global window over input that ends": (
        lambda: counted(keyed().window(sl.everything())),
        "keeps a row for every key forever",
        lambda: counted(scores(EndedSource()).event_time("at", WATERMARK).key_by("team").window(sl.everything())),
    ),
    "lateness without end": (
        lambda: counted(keyed().allow_lateness("forever")),
        "keeps every window forever",
        lambda: counted(keyed().allow_lateness("forever").keep_for_ever()),
    ),
    "an evictor over retractions": (
        lambda: counted(
            keyed()
            .accumulate(sl.retracting)
            .aggregate(n=sl.count())
            .key_by("team")
            .window(sl.tumbling("5m"))
            .evict(sl.keep_last(2))
        ),
        "depends on arrival order",
        lambda: counted(
            keyed().aggregate(n=sl.count()).key_by("team").window(sl.tumbling("5m")).evict(sl.keep_last(2))
        ),
    ),
    "an event time of panes": (
        lambda: counted(
            sl.Elements(keyed().aggregate(n=sl.count()).root, NoRunner())
            .event_time("window_end", WATERMARK)
            .key_by("team")
            .window(sl.tumbling("5m"))
        ),
        "panes have a time already",
        lambda: again(keyed()),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_refused_with_a_way_out_and_after_a_small_change_it_runs(
    case: tuple[Callable[[], Pipeline], str, Callable[[], Pipeline]],
) -> None:
    wrong, reason, right = case
    with pytest.raises(InvalidStep, match=reason) as refused:
        to_stages(wrong().root)
    assert refused.value.hint
    assert to_stages(right().root).outputs
