"""Pipelines that name columns which are not there, or of a wrong type."""

from typing import Final

import polars as pl

from tests.errors_zoo.animals import SERVERS, Wrong, counted, keyed, scores, sl, timed, totals
from tests.plan.endpoints import PaperSource

COLUMNS: Final[dict[str, Wrong]] = {
    "a typo in SQL": Wrong(
        lambda: counted(scores().where("scor > 1")),
        "scores has no column 'scor'",
        "«where scor > 1» reads it; there are team, user, score, at",
        "did you mean 'score'?",
    ),
    "a typo in SQL inside a function": Wrong(
        lambda: counted(scores().where("upper(tem) = 'RED'")), "has no column 'tem'", "team, user", "'team'"
    ),
    "a typo in a computed column": Wrong(
        lambda: counted(scores().with_columns(points="scores * 2")), "has no column 'scores'", "scores * 2", "'score'"
    ),
    "a typo in a selection": Wrong(
        lambda: scores().select("teams", "at"), "has no column 'teams'", "«select teams, at» reads it", "'team'"
    ),
    "a column that the selection before has dropped": Wrong(
        lambda: counted(scores().select("team", "at").where("score > 1")),
        "the step before has no column 'score'",
        "there are team, at",
        "check the name",
    ),
    "a column that is computed later": Wrong(
        lambda: counted(scores().with_columns(a="b + 1", b="score")), "has no column 'b'", "a", ""
    ),
    "a typo in Polars": Wrong(
        lambda: counted(scores().where(pl.col("scor") > 1)),
        "scores has no column 'scor'",
        "there are team, user, score, at",
        "did you mean 'score'?",
    ),
    "a typo in Polars after the event time": Wrong(
        lambda: (
            timed().where(pl.col("tem") == "red").key_by("team").window(sl.tumbling(minutes=1)).aggregate(n=sl.count())
        ),
        "has no column 'tem'",
        "team",
        "'team'",
    ),
    "a typo in a computed column in Polars": Wrong(
        lambda: counted(scores().with_columns(points=pl.col("point") * 2)),
        "has no column 'point'",
        "score",
        "check the name",
    ),
    "a typo among several columns in Polars": Wrong(
        lambda: counted(scores().with_columns(most=pl.max_horizontal(pl.col("score", "scor2")))),
        "has no column 'scor2'",
        "score",
        "'score'",
    ),
    "capital letters in Polars": Wrong(
        lambda: counted(scores().where(pl.col("Score") > 1)), "has no column 'Score'", "score", "did you mean 'score'?"
    ),
    "a column after map": Wrong(
        lambda: counted(scores().map(lambda frame: frame, "team string, at timestamp").where(pl.col("score") > 1)),
        "the step before has no column 'score'",
        "team, at",
        "check the name",
    ),
    "an internal column in Polars": Wrong(
        lambda: counted(scores().where(pl.col("@offset") > 1)),
        "has no column '@offset'",
        "there are team, user, score, at",
        "check the name",
    ),
    "a key": Wrong(
        lambda: totals(keyed("tam")),
        "scores has no column 'tam'",
        "it has team, user, score, at",
        "did you mean 'team'?",
    ),
    "a key of a pane": Wrong(
        lambda: totals().key_by("tem").window(sl.tumbling(minutes=5)).aggregate(n=sl.count()),
        "a pane of total by team has no column 'tem'",
        "team, total",
        "'team'",
    ),
    "an event time": Wrong(
        lambda: (
            scores()
            .event_time("att", sl.bounded(seconds=1))
            .key_by("team")
            .window(sl.tumbling(minutes=1))
            .aggregate(n=sl.count())
        ),
        "has no column 'att'",
        "at",
        "did you mean 'at'?",
    ),
    "an event time that is a number": Wrong(
        lambda: (
            scores()
            .event_time("score", sl.bounded(seconds=1))
            .key_by("team")
            .window(sl.tumbling(minutes=1))
            .aggregate(n=sl.count())
        ),
        "the event time 'score' is a long",
        "",
        "timestamp_millis",
    ),
    "an aggregate": Wrong(lambda: totals(total=sl.sum("scores")), "has no column 'scores'", "it has team", "'score'"),
    "the order of an aggregate": Wrong(
        lambda: totals(best=sl.argmax("user", by="points")), "has no column 'points'", "it has team", "check the name"
    ),
    "a sum of texts": Wrong(
        lambda: totals(total=sl.sum("user")), "'total' needs a number, and the column 'user' is a string", "", "cast"
    ),
    "a session gap": Wrong(
        lambda: timed().key_by("team").window(sl.session(column="gap")).aggregate(n=sl.count()),
        "has no column 'gap'",
        "it has",
        "check",
    ),
    "a window's bounds": Wrong(
        lambda: timed().key_by("team").window(sl.custom(start="att", end="at")).aggregate(n=sl.count()),
        "has no column 'att'",
        "",
        "'at'",
    ),
    "an evictor's distance": Wrong(
        lambda: totals(keyed().evict(sl.keep_delta("last.scor - scor", bound=2))),
        "has no column 'scor'",
        "it has",
        "'score'",
    ),
    "a deduplication": Wrong(
        lambda: timed().deduplicate(by="usr", within="5m"), "has no column 'usr'", "it has", "did you mean 'user'?"
    ),
    "a sink's key": Wrong(
        lambda: totals().write(sl.sqlite("a.db", key=["tam"])),
        "needs the column 'tam', which the rows do not have",
        "the rows have team, total",
        "did you mean 'team'?",
    ),
    "a sink's key of elements": Wrong(
        lambda: scores().write(sl.duckdb("a.duckdb", key=["id"])),
        "needs the column 'id'",
        "team, user",
        "name another column",
    ),
    "a key of PostgreSQL": Wrong(
        lambda: totals().write(sl.postgres("t", dsn="postgresql://localhost/a", key="teem")),
        "needs the column 'teem'",
        "team",
        "'team'",
    ),
    "a key of Delta": Wrong(
        lambda: totals().write(sl.delta("lake", key=["user"])), "needs the column 'user'", "team, total", ""
    ),
    "a key of Valkey": Wrong(
        lambda: totals().write(sl.valkey("valkey://localhost", prefix="t", key=["teams"])),
        "needs the column 'teams'",
        "team",
        "'team'",
    ),
    "a key of a topic": Wrong(
        lambda: totals().write(sl.kafka_topic("t", servers=SERVERS, key=["tem"])),
        "needs the column 'tem'",
        "team",
        "'team'",
    ),
    "the value of a topic": Wrong(
        lambda: totals().write(sl.kafka_topic("t", servers=SERVERS, value=sl.json("team string, totl long"))),
        "needs the column 'totl'",
        "team, total",
        "'total'",
    ),
    "a union of other columns": Wrong(
        lambda: counted(sl.union(scores(), scores(PaperSource("other", columns="team string, at timestamp")))),
        "the streams of a union have different columns",
        "only some have score, user",
        "select the same columns",
    ),
    "a union of other types": Wrong(
        lambda: counted(
            sl.union(
                scores(), scores(PaperSource("other", columns="team string, user string, score double, at timestamp"))
            )
        ),
        "the column 'score' has different types in a union",
        "long and double",
        "cast",
    ),
    "a column that starts with @": Wrong(
        lambda: counted(scores().with_columns(**{"@mine": "score"})), "'@mine' starts with @", "", "reserved"
    ),
    "a key that is an array": Wrong(
        lambda: (
            timed(scores(PaperSource(columns="team array<string>, at timestamp")))
            .key_by("team")
            .window(sl.tumbling(minutes=1))
            .aggregate(n=sl.count())
        ),
        "the key 'team' is a array<string>",
        "",
        "key by strings",
    ),
    "a key that is an aggregate too": Wrong(
        lambda: totals(team=sl.count()), "'team' is both a key and an aggregate", "", "another name"
    ),
}
