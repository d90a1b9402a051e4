"""Every public word checks the types of its arguments at once: nonsense is refused in the user's words.

A call with one argument replaced by a value of another type either gives an error of the package's tree, or is
accepted because the value is right. It never ends in a TypeError or an AttributeError from inside.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidArgument, StrandlineError
from strandline.plan.pipeline import Keyed
from tests.plan.endpoints import PaperSink, PaperSource, scores, totals

SCHEMA: Final = "team string, score long, at timestamp"
PROTO: Final = 'syntax = "proto3"; message Score { string team = 1; }'


class Alien:
    """A value that no argument takes, except where any value or any object goes."""

    def __repr__(self) -> str:
        return "Alien()"


Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def keyed() -> Keyed:
    return scores().event_time("at", sl.bounded(seconds=1)).key_by("team")


def _call(name: str, /, *args: Any, **named: Any) -> tuple[str, Call]:
    return name, (getattr(sl, name), args, named)


def _functions(folder: str) -> dict[str, Call]:
    """Return a right call of each public function. Paths are below a folder that exists and is empty."""
    return {**_of_one_column(), **_of_the_model(), **_of_formats(folder), **_of_systems(folder)}


def _of_one_column() -> dict[str, Call]:
    names = ("all_true", "any_true", "bit_and", "bit_or", "bit_xor", "collect", "count", "count_distinct", "first",
             "last", "max", "mean", "min", "sum")  # fmt: skip
    return dict(_call(name, "score") for name in names)


def _of_the_model() -> dict[str, Call]:
    trigger, column, length = sl.after_count(2), ("score",), {"seconds": 5}
    calls = [
        _call("approx_count_distinct", *column, precision=12),
        _call("argmax", *column, by="at"),
        _call("argmin", *column, by="at"),
        _call("quantile", "score", 0.5),
        _call("stddev", *column, population=True),
        _call("variance", *column, population=True),
        _call("string_agg", "team", separator=";"),
        _call("top_k", "score", 3, by="at"),
        _call("after_count", 3),
        _call("after_event_time", "5s", offset="1s"),
        _call("after_processing_time", "5s", aligned="1m", offset="1s"),
        _call("after_watermark", early=trigger, late=trigger),
        _call("every", **length),
        _call("never"),
        _call("or_finally", trigger, trigger),
        _call("repeatedly", trigger),
        _call("when", "total > 3"),
        _call("bounded", **length),
        _call("by_clock"),
        _call("from_source"),
        _call("monotone"),
        _call("percentile", 0.9, horizon="10m", least="1s", most="1h", first="5s", enough=10),
        _call("count_window", 10, every=2),
        _call("cumulating", "1h", step="10m", offset="1s"),
        _call("custom", start="from", end="until"),
        _call("everything"),
        _call("session", "5m", touching="merge"),
        _call("sliding", "10m", every="1m", offset="1s"),
        _call("tumbling", "10m", offset="1s"),
        _call("keep_delta", "last.value - value", bound=2, when="after"),
        _call("keep_last", 3, when="after"),
        _call("keep_within", "5m", when="after"),
        _call("read", PaperSource()),
        _call("union", scores(), scores(PaperSource("other"))),
        _call(
            "join_tables",
            scores(),
            scores(PaperSource("other")),
            how=["left"],
            expire_after="5m",
            time_to_live=None,
            forever=False,
            suffixes=["_other"],
            late=PaperSink(),
        ),
        _call("together", totals(), totals(sink=PaperSink("other"))),
        _call("call", lambda rows, batch: None, name="send"),
        _call("console", rows=3),
        _call("discard"),
        _call("scores", seed=1, events=100, rate=10),
    ]
    return dict([*calls, *(_call(name, trigger, sl.never()) for name in ("all_of", "first_of", "in_sequence"))])


def _of_formats(folder: str) -> dict[str, Call]:
    calls = [
        _call("csv", SCHEMA, delimiter=";", largest=100),
        _call("json", SCHEMA, registry=sl.registry("http://localhost:8081"), largest=100),
        _call("text", "line", largest=100),
        _call("raw", "line", largest=100),
        _call("debezium", "id long, name string", times="us", largest=100),
        _call("avro", SCHEMA, registry=sl.registry("http://localhost:8081"), subject="scores", largest=100),
        _call(
            "protobuf", PROTO, message="Score", registry=sl.registry("http://localhost:8081"), subject="s", largest=100
        ),
        _call("registry", "http://localhost:8081", user="env:A", password="env:B", ca="ca.pem"),
        _call("secret", "env:PASSWORD"),
        _call("infer_json", b'{"team": "red"}'),
        _call("dead_files", f"{folder}/dead", format="jsonl", mask=["card"]),
        _call("dead_table", mask=["card"]),
        _call("dead_topic", "dead", servers="localhost:9092", mask=["card"], security=sl.tls()),
        _call("tls", authority="ca.pem", certificate="me.pem"),
        _call("sasl", "PLAIN", user="me", password="env:B", over_tls=True, authority="ca.pem"),
    ]
    return dict(calls)


def _of_systems(folder: str) -> dict[str, Call]:
    calls = [
        _call(
            "kafka",
            "scores",
            servers="localhost:9092",
            value=sl.json(SCHEMA),
            starting="latest",
            until="latest",
            pattern=True,
            metadata={"sent": "timestamp"},
            records_per_batch=10,
            group="g",
            on_lost="stop",
            security=sl.tls(),
        ),
        _call(
            "kafka_topic",
            "totals",
            servers="localhost:9092",
            value=sl.json("team string"),
            key=["team"],
            mode="upsert",
            late="late",
            dead="dead",
            ledger="ledger",
            security=sl.tls(),
            options={"linger.ms": "5"},
        ),
        _call(
            "files",
            folder,
            sl.json(SCHEMA),
            format="parquet",
            files_per_batch=3,
            pattern="*.json",
            header=False,
            metadata={"file": "path"},
            on_lost="stop",
            ends=True,
        ),
        _call("folder", f"{folder}/out", format="csv", evolve=True),
        _call("delta", f"{folder}/lake", mode="upsert", key=["team"], evolve=True, options={"region": "x"}),
        _call("delta_table", f"{folder}/lake", SCHEMA, version=3, files_per_batch=2, options={"region": "x"}),
        _call("sqlite", f"{folder}/a.db", table="totals", mode="upsert", key=["team"], evolve=True),
        _call("duckdb", f"{folder}/a.duckdb", table="totals", mode="upsert", key=["team"], evolve=True),
        _call(
            "postgres",
            "totals",
            dsn="postgresql://me@localhost/scores",
            password="env:P",
            schema="s",
            mode="upsert",
            key=["team"],
            evolve=True,
        ),
        _call(
            "valkey",
            "valkey://localhost:6379",
            prefix="totals",
            key=["team"],
            expires="1h",
            password="env:P",
            ca="ca.pem",
            over_tls=False,
        ),
        _call("lookup_delta", "lake/users", SCHEMA, options={"a": "b"}),
        _call("lookup_duckdb", "users.duckdb", SCHEMA, table="users"),
        _call("lookup_function", lambda keys: keys, SCHEMA),
        _call(
            "lookup_http",
            "http://localhost:1/{team}",
            SCHEMA,
            many=True,
            headers={"a": "b"},
            token="env:T",
            ca="ca.pem",
        ),
        _call("lookup_parquet", "users/", SCHEMA),
        _call("lookup_postgres", "users", SCHEMA, dsn="postgresql://me@localhost/a", password="env:P", schema="public"),
        _call("lookup_sqlite", "users.db", SCHEMA, table="users"),
        _call(
            "lookup_valkey", "valkey://localhost", SCHEMA, key="{team}", password="env:P", ca="ca.pem", over_tls=True
        ),
        _call("webhook", "http://localhost:1", headers={"a": "b"}, token="env:T", rows=5, timeout="1s", ca="ca.pem"),
        _call(
            "generator",
            seed=1,
            rate=10,
            events=100,
            partitions=2,
            start=datetime(2024, 5, 1, tzinfo=UTC),
            keys=5,
            skew=0.5,
            mean=1,
            spread=1,
            mean_per_hour=1,
            disorder=0.1,
            distance="1s",
            late=0.1,
            late_by="1m",
            future=0.1,
            future_by="1d",
            duplicates=0.1,
            poison=0.1,
            poisons=["cut"],
            bursts=("10s", "1s", 3),
            idle={1: ("1s", "2s")},
            clock_drift={1: 0.1},
            format="csv",
            events_per_batch=10,
        ),
        _call("failure_budget", 0.1, over="5m", at_least=10),
        _call("compact", folder, target_bytes=10, keep_seconds=10),
        _call("manifested_files", folder, "panes"),
        _call("read_manifested", folder, "panes", now=True),
        _call("frame", None),
    ]
    return dict(calls)


def _methods() -> dict[str, Call]:
    """Return a right call of each method of a pipeline and of a watermark."""
    length, aggregate = {"minutes": 1}, sl.sum("score")
    panes = keyed().window(sl.tumbling(minutes=1)).aggregate(total=aggregate)
    calls: tuple[tuple[Any, str, tuple[Any, ...], dict[str, Any]], ...] = (
        (scores(), "where", ("score > 1",), {}),
        (scores(), "select", ("team",), {"points": "score * 2"}),
        (scores(), "with_columns", (), {"points": "score * 2"}),
        (scores(), "map", (lambda frame: frame, SCHEMA), {}),
        (scores(), "flat_map", (lambda row: [row], SCHEMA), {}),
        (scores(), "branch", ("score > 1", "score > 0"), {}),
        (scores(), "deduplicate", (), {"by": "user", "keep": "last", "within": "5m", "allowed_lateness": "1m",
                                       "late": PaperSink(), "forever": False}),
        (scores(), "join", (scores(),), {}),
        (scores(), "as_of", (scores(),), {
            "how": "left", "direction": "nearest", "tolerance": "5s", "corrections": "1h", "suffix": "_now",
        }),
        (scores().as_of(scores()), "on", ("team",), {"user": "user"}),
        (scores().join(scores()), "on", ("team",), {"user": "user"}),
        (scores().join(scores()).on("team"), "within", (), {
            "before": "5m", "after": "1m", "how": "left", "where": "score > 1", "inclusive": True, "suffix": "_right",
            "allowed_lateness": "1m", "late": PaperSink(),
        }),
        (scores(), "enrich", (sl.lookup_sqlite("users.db", "user string, name string", table="users"),), {
            "missing": "drop", "on_failure": "dead_letter", "pin": True, "cache_for": "5m", "cache_missing_for": "1m",
            "cache_rows": 10, "keys_per_request": 10, "concurrency": 2, "per_second": 5.0, "attempts": 2,
            "suffix": "_right",
        }),
        (scores().enrich(sl.lookup_sqlite("users.db", "user string", table="users")), "on", ("user",), {}),
        (scores().join(scores()).on("team"), "window", (sl.tumbling(minutes=1),), {
            "how": "left", "where": "score > 1", "suffix": "_right", "allowed_lateness": "1m", "late": PaperSink(),
            "trigger": sl.after_watermark(late=sl.after_count(1)), "accumulate": "retracting",
        }),
        (scores().join(scores()).on("team"), "as_tables", (), {
            "how": "left", "expire_after": "5m", "time_to_live": None, "forever": False, "suffix": "_right",
            "late": PaperSink(),
        }),
        (sl.join_tables(scores(), scores(), forever=True), "on", ("team",), {"user": ["user"]}),
        (scores(), "write", (PaperSink(),), {"delivery": "at_least_once", "dead": sl.dead_table()}),
        (scores(), "event_time", ("at", sl.bounded(seconds=1)), {}),
        (scores(), "processing_time", (), {}),
        (scores(), "key_by", ("team", "user"), {}),
        (panes, "key_by", ("team",), {"even_repeated": True}),
        (keyed(), "window", (sl.tumbling(minutes=1),), {}),
        (keyed(), "trigger", (sl.after_count(1),), {"may_close": True}),
        (keyed(), "accumulate", ("retracting",), {}),
        (keyed(), "allow_lateness", ("5m",), {"rows": "per_window", "late": PaperSink(), "rest": PaperSink()}),
        (keyed(), "evict", (sl.keep_last(3),), {}),
        (keyed(), "hot_keys", (), {"salt": 4}),
        (keyed(), "time_to_live", (), length),
        (keyed(), "keep_for_ever", (), {}),
        (keyed(), "stamp_panes", ("earliest",), {}),
        (keyed(), "on_time_pane", ("if_non_empty",), {}),
        (keyed(), "final_pane", ("always",), {}),
        (keyed(), "aggregate", (), {"total": aggregate}),
        (sl.bounded(seconds=1), "idle_after", (), length),
        (sl.bounded(seconds=1), "future_bound", (), {**length, "dead_letter": True}),
        (sl.bounded(seconds=1), "returning", ("wait",), {}),
    )  # fmt: skip
    return {f"{type(of).__name__}.{name}": (getattr(of, name), args, named) for of, name, args, named in calls}


NOT_FUNCTIONS: Final = {
    "Accumulation", "Delivery", "Timing",  # enumerations
    "Elements", "Panes", "Pipeline",  # their methods are called
    "PlanError", "RunError", "StateError", "StrandlineError",
    "accumulating", "discarding", "retracting",
    "Duration", "Timestamp", "UserAggregate",  # see below
}  # fmt: skip
FREE: Final = {"call.function", "lookup_function.function", "Elements.map.function", "Elements.flat_map.function"}
"""Arguments that take any function, also one that this test does not know."""
WRONG: Final[tuple[Any, ...]] = (
    Alien(),
    None,
    True,
    7,
    -3,
    2.5,
    float("nan"),
    "",
    "nonsense",
    b"bytes",
    ["a", 3],
    {"a": 3},
    {3},
    (),
    datetime(2024, 5, 1, tzinfo=UTC),
    timedelta(0),
    Path("nowhere"),
    Alien,
    len,
    pl.col("score"),
)


def _replaced(call: Call) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield each argument of a call, with the call as a function of it."""
    function, args, named = call
    names = [*inspect.signature(function).parameters.values()]
    for place in range(len(args)):
        of = names[min(place, len(names) - 1)]
        yield of.name, _positional(call, place)
    for name in named:
        yield name, _named(call, name)


def _positional(call: Call, place: int) -> Callable[[Any], Any]:
    function, args, named = call
    return lambda given: function(*args[:place], given, *args[place + 1 :], **named)


def _named(call: Call, name: str) -> Callable[[Any], Any]:
    function, args, named = call
    return lambda given: function(*args, **{**named, name: given})


FUNCTIONS: Final = sorted(set(sl.__all__) - NOT_FUNCTIONS)
METHODS: Final = sorted(_methods())


def _refuses(word: str, call: Call) -> None:
    for name, with_argument in _replaced(call):
        for given in WRONG:
            try:
                with_argument(given)
            except StrandlineError:
                pass
            except Exception as problem:  # noqa: BLE001 - this is what the test looks for
                pytest.fail(f"{word}({name}={given!r}) ended in {type(problem).__name__}: {problem}")
            else:
                assert not isinstance(given, Alien) or f"{word}.{name}" in FREE, f"{word}({name}=Alien()) was accepted"
                assert given is not Alien or f"{word}.{name}" in FREE, f"{word}({name}=Alien) was accepted"


def test_the_calls_below_cover_every_public_name(tmp_path: Path) -> None:
    assert set(_functions(str(tmp_path))) == set(FUNCTIONS)


def test_the_calls_below_cover_every_public_method() -> None:
    covered = {name.partition(".")[2] for name in METHODS}
    for owner in (sl.Elements, sl.Panes, Keyed, type(sl.bounded(seconds=1))):
        public = {name for name, each in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}
        assert public <= covered


@pytest.mark.parametrize("name", [each for each in FUNCTIONS if each != "frame"])
def test_a_right_call_is_accepted(name: str, tmp_path: Path) -> None:
    function, args, named = _functions(str(tmp_path))[name]
    if name in ("compact", "manifested_files", "read_manifested"):
        with pytest.raises(StrandlineError, match="has no manifest log"):
            function(*args, **named)
        return
    function(*args, **named)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_values_of_wrong_types(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _refuses(name, _functions(str(tmp_path))[name])


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_values_of_wrong_types(name: str) -> None:
    call = _methods()[name]
    call[0](*call[1], **call[2])
    _refuses(name, call)


@pytest.mark.parametrize("given", [each for each in WRONG if type(each) is not int])
def test_durations_and_timestamps_are_whole_milliseconds(given: Any) -> None:
    for kind in (sl.Duration, sl.Timestamp):
        with pytest.raises(sl.PlanError, match="whole number of milliseconds"):
            kind(given)


def test_a_user_aggregate_checks_its_column_and_functions() -> None:
    right: Mapping[str, Any] = {
        "column": "score",
        "create": lambda: 0,
        "add": lambda total, value: total + value,
        "result": lambda total: total,
        "merge": None,
        "retract": None,
        "name": "total",
    }
    sl.UserAggregate(**right)
    for name in right:
        with pytest.raises(sl.PlanError, match=name):
            sl.UserAggregate(**{**right, name: Alien()})
    with pytest.raises(sl.PlanError, match="called with 2 arguments"):
        sl.UserAggregate(**{**right, "add": lambda value: value})


SAID: Final[dict[str, tuple[Callable[[], Any], str, str, str]]] = {
    "an accumulation that is none": (
        lambda: keyed().accumulate("nonsense"),
        "accumulate(…) cannot take 'nonsense' as how",
        "how is one of discarding, accumulating, retracting",
        "choose one of discarding, accumulating, retracting",
    ),
    "an accumulation with a typo": (
        lambda: keyed().accumulate("retractin"), "'retractin'", "retracting", "did you mean 'retracting'?",
    ),
    "columns as a list": (
        lambda: scores().key_by(["team", "user"]),  # type: ignore[arg-type]
        "key_by(…) cannot take ['team', 'user'] as columns",
        "columns is a text",
        "give them one by one: key_by('team', 'user')",
    ),
    "a window as text": (
        lambda: keyed().window("tumbling 2m"),  # type: ignore[arg-type]
        "window(…) cannot take 'tumbling 2m' as kind", "kind is a window", "sl.tumbling(minutes=2)",
    ),
    "a trigger as text": (
        lambda: keyed().trigger("every 5s"),  # type: ignore[arg-type]
        "cannot take 'every 5s' as trigger", "trigger is a trigger", "sl.every(seconds=30)",
    ),
    "a watermark as text": (
        lambda: scores().event_time("at", "10s"),  # type: ignore[arg-type]
        "cannot take '10s' as watermark", "a watermark", "sl.bounded(seconds=10)",
    ),
    "a function that was not called": (
        lambda: keyed().window(sl.everything), "the function everything", "a window", "call it: everything(…)",  # type: ignore[arg-type]
    ),
    "a name that no argument has": (
        lambda: scores().write(PaperSink(), delivry="at_least_once"),  # type: ignore[call-arg]
        "write(…) has no argument 'delivry'", "it takes sink, delivery, dead", "did you mean 'delivery'?",
    ),
    "an argument that is missing": (
        lambda: sl.sliding(minutes=10),  # type: ignore[call-arg]
        "sliding(…): missing a required argument: 'every'", "it takes size, every", "names.md",
    ),
    "a number of minutes as text": (
        lambda: sl.tumbling(minutes="2"), "cannot take '2' as minutes", "minutes is a number", "give a number",  # type: ignore[arg-type]
    ),
    "a length as a number": (
        lambda: sl.tumbling(120), "cannot take 120 as size", "size is a length of time", 'seconds=10, "10s"',  # type: ignore[arg-type]
    ),
    "a class": (lambda: sl.read(PaperSource), "the class PaperSource", "a source", "sl.kafka"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_a_wrong_argument_is_named_with_what_is_taken_and_the_way_out(name: str) -> None:
    act, what, detail, hint = SAID[name]
    with pytest.raises(InvalidArgument) as refused:
        act()
    assert what in refused.value.message
    assert detail in refused.value.detail
    assert hint in refused.value.hint


def test_texts_are_taken_where_stories_write_texts() -> None:
    assert keyed().accumulate("retracting") == keyed().accumulate(sl.retracting)
    assert keyed().allow_lateness("5m", rows="per_window").asked.lateness.rows == "per_window"


def test_a_value_that_may_be_a_secret_is_not_shown() -> None:
    with pytest.raises(sl.PlanError) as refused:
        sl.postgres("totals", dsn="postgresql://localhost/a", password=b"s3cr3t")  # type: ignore[arg-type]
    assert "s3cr3t" not in str(refused.value)
    assert "this bytes" in refused.value.message


def test_columns_in_a_set_have_one_order() -> None:
    assert sl.dead_table(mask={"b", "a", "c"}).mask == ("a", "b", "c")
