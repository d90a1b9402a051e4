"""Steps that do not fit together."""

from typing import Final

import polars as pl

from tests.errors_zoo.animals import LOCK, SCHEMA, Wrong, counted, keyed, scores, sl, timed, totals, waits_for_lock
from tests.plan.endpoints import PaperSink

STEPS: Final[dict[str, Wrong]] = {
    "no time": Wrong(
        lambda: scores().key_by("team").window(sl.tumbling(minutes=1)).aggregate(n=sl.count()),
        "the elements of scores have no time",
        "",
        "event_time",
    ),
    "two times": Wrong(lambda: counted(timed()), "event_time(…) is called twice", "", "call it once"),
    "a time of panes": Wrong(
        lambda: totals().key_by("team").window(sl.tumbling(minutes=1)).time_to_live(minutes=1).aggregate(n=sl.count()),
        "only a global window has a time to live",
        "",
        "lateness",
    ),
    "no key": Wrong(lambda: timed().key_by(), "key_by names no column", "", "one column or more"),
    "no aggregate": Wrong(lambda: keyed().aggregate(), "nothing is computed", "", "one aggregate"),
    "a reserved name": Wrong(
        lambda: totals(timing=sl.count()), "'timing' is a field of every pane", "", "another name"
    ),
    "state for ever": Wrong(
        lambda: timed().key_by("team").aggregate(n=sl.count()), "keeps a row for every key forever", "", "keep_for_ever"
    ),
    "lateness for ever": Wrong(
        lambda: totals(keyed().allow_lateness("forever")), "keeps every window forever", "", "keep_for_ever"
    ),
    "duplicates for ever": Wrong(lambda: timed().deduplicate(by="user"), "keeps every key forever", "", "forever=True"),
    "a trigger that ends": Wrong(
        lambda: totals(keyed().trigger(sl.after_count(3))),
        "the trigger of total by team finishes",
        "closed",
        "repeatedly",
    ),
    "a condition over what is not there": Wrong(
        lambda: totals(keyed().trigger(sl.repeatedly(sl.when("totl > 3")))),
        "reads 'totl', which no pane has",
        "",
        "total",
    ),
    "a condition that cannot be read": Wrong(
        lambda: sl.when("total >"), "cannot read the expression 'total >'", "invalid syntax", "total > 100"
    ),
    "a trigger of count windows": Wrong(
        lambda: timed().key_by("team").window(sl.count_window(3)).trigger(sl.every(seconds=1)).aggregate(n=sl.count()),
        "a count window fires when it is full",
        "",
        "global window",
    ),
    "panes that are counted twice": Wrong(
        lambda: (
            totals(keyed().accumulate("accumulating").trigger(sl.after_watermark(early=sl.after_count(1))))
            .key_by("team")
            .window(sl.tumbling(minutes=5))
            .aggregate(n=sl.sum("total"))
        ),
        "repeat",
        "",
        "even_repeated",
    ),
    "retractions to a sink that takes none": Wrong(
        lambda: totals(keyed().accumulate("retracting")).write(PaperSink(takes_retractions=False)),
        "paper cannot take retractions",
        "",
        "accumulating",
    ),
    "a delivery that a sink does not offer": Wrong(
        lambda: totals().write(sl.console()),
        "console() cannot deliver exactly once",
        "at_least_once",
        "another delivery",
    ),
    "SQL after Python": Wrong(
        lambda: counted(scores().where(pl.col("score") > 1).with_columns(b="score * 2")),
        "the SQL of «with score * 2 as b» would run after the rows have crossed to Python",
        "",
        "write SQL before",
    ),
    "SQL and Polars in one call": Wrong(
        lambda: scores().with_columns(a="score * 2", b=pl.col("score")),
        "'a' is computed in SQL, other columns of the same call in Polars",
        "",
        "write all of them in SQL",
    ),
    "an empty condition": Wrong(lambda: scores().where(" "), "an expression is empty", "", "Spark SQL"),
    "a condition that is a function": Wrong(
        lambda: scores().where(lambda row: True), "is not an expression", "", "Spark SQL"
    ),
    "a selection of nothing": Wrong(lambda: scores().select(), "select names no column", "", "name one"),
    "a map without its columns": Wrong(
        lambda: scores().map(lambda frame: frame),
        "missing a required argument: 'columns'",
        "function, columns",
        "names.md",
    ),
    "a map of too many arguments": Wrong(
        lambda: scores().map(lambda frame, other: frame, SCHEMA),
        "cannot take",
        "a function",
        "it is called with one argument",
    ),
    "a type that is none in flat_map": Wrong(
        lambda: scores().flat_map(lambda row: [row], "team strin, at timestamp"),
        "there is no type 'strin'",
        "",
        "did you mean 'string'?",
    ),
    "a nested type that is none in map": Wrong(
        lambda: scores().map(lambda frame: frame, "tags array<strng>"),
        "there is no type 'strng', which the column 'tags' has",
        "",
        "'string'",
    ),
    "two outputs that are the same": Wrong(
        lambda: sl.together(totals().write(PaperSink()), totals().write(PaperSink())),
        "two outputs are the same",
        "",
        "its own sink",
    ),
    "a stream that is not written": Wrong(
        lambda: sl.together(totals()), "as pipelines", "a pipeline", "end a stream with write(sink)"
    ),
    "a salt that is too large": Wrong(
        lambda: keyed().hot_keys(salt=1000), "a salt of 1000 is out of range", "", "from 2 to 256"
    ),
    "a lock in a function": Wrong(
        lambda: counted(scores().map(lambda frame: (LOCK, waits_for_lock(frame))[1], SCHEMA)),
        "uses the variable 'LOCK'",
        "_thread.lock",
        "inside the function",
    ),
}
