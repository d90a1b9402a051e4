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


def _functions(folder: str) -> dict[str, Call]:
    """Return a right call of each public function. Paths are below a folder that exists and is empty."""
    trigger, column, length = sl.after_count(2), ("score",), {"seconds": 5}
    found: dict[str, Call] = {}

    def add(name: str, /, *args: Any, **named: Any) -> None:
        found[name] = (getattr(sl, name), args, named)

    for name in ("all_true", "any_true", "bit_and", "bit_or", "bit_xor", "collect", "count", "count_distinct", "first",
                 "last", "max", "mean", "min", "sum"):  # fmt: skip
        add(name, *column)
    add("approx_count_distinct", *column, precision=12)
    add("argmax", *column, by="at")
    add("argmin", *column, by="at")
    add("quantile", "score", 0.5)
    add("stddev", *column, population=True)
    add("variance", *column, population=True)
    add("string_agg", "team", separator=";")
    add("top_k", "score", 3, by="at")
    add("after_count", 3)
    add("after_event_time", "5s", offset="1s")
    add("after_processing_time", "5s", aligned="1m", offset="1s")
    add("after_watermark", early=trigger, late=trigger)
    for name in ("all_of", "first_of", "in_sequence"):
        add(name, trigger, sl.never())
    add("every", **length)
    add("never")
    add("or_finally", trigger, trigger)
    add("repeatedly", trigger)
    add("when", "total > 3")
    add("bounded", **length)
    add("by_clock")
    add("from_source")
    add("monotone")
    add("percentile", 0.9, horizon="10m", least="1s", most="1h", first="5s", enough=10)
    add("count_window", 10, every=2)
    add("cumulating", "1h", step="10m", offset="1s")
    add("custom", start="from", end="until")
    add("everything")
    add("session", "5m", touching="merge")
    add("sliding", "10m", every="1m", offset="1s")
    add("tumbling", "10m", offset="1s")
    add("keep_delta", "last.value - value", bound=2, when="after")
    add("keep_last", 3, when="after")
    add("keep_within", "5m", when="after")
    add("read", PaperSource())
    add("union", scores(), scores(PaperSource("other")))
    add("together", totals(), totals(sink=PaperSink("other")))
    add("call", lambda rows, batch: None, name="send")
    add("console", rows=3)
    add("discard")
    add("scores", seed=1, events=100, rate=10)
    add("csv", SCHEMA, delimiter=";", largest=100)
    add("json", SCHEMA, registry=sl.registry("http://localhost:8081"), largest=100)
    add("text", "line", largest=100)
    add("raw", "line", largest=100)
    add("debezium", "id long, name string", times="us", largest=100)
    add("avro", SCHEMA, registry=sl.registry("http://localhost:8081"), subject="scores", largest=100)
    add("protobuf", PROTO, message="Score", registry=sl.registry("http://localhost:8081"), subject="s", largest=100)
    add("registry", "http://localhost:8081", user="env:A", password="env:B", ca="ca.pem")
    add("secret", "env:PASSWORD")
    add("infer_json", b'{"team": "red"}')
    add("dead_files", f"{folder}/dead", format="jsonl", mask=["card"])
    add("dead_table", mask=["card"])
    add("dead_topic", "dead", servers="localhost:9092", mask=["card"], security=sl.tls())
    add("tls", authority="ca.pem", certificate="me.pem")
    add("sasl", "PLAIN", user="me", password="env:B", over_tls=True, authority="ca.pem")
    add("kafka", "scores", servers="localhost:9092", value=sl.json(SCHEMA), starting="latest", until="latest",
        pattern=True, metadata={"sent": "timestamp"}, records_per_batch=10, group="g", on_lost="stop", security=sl.tls())  # fmt: skip
    add("kafka_topic", "totals", servers="localhost:9092", value=sl.json("team string"), key=["team"], mode="upsert",
        late="late", dead="dead", ledger="ledger", security=sl.tls(), options={"linger.ms": "5"})  # fmt: skip
    add("files", folder, sl.json(SCHEMA), format="parquet", files_per_batch=3, pattern="*.json", header=False,
        metadata={"file": "path"}, on_lost="stop", ends=True)  # fmt: skip
    add("folder", f"{folder}/out", format="csv", evolve=True)
    add("delta", f"{folder}/lake", mode="upsert", key=["team"], evolve=True, options={"region": "x"})
    add("delta_table", f"{folder}/lake", SCHEMA, version=3, files_per_batch=2, options={"region": "x"})
    add("sqlite", f"{folder}/a.db", table="totals", mode="upsert", key=["team"], evolve=True)
    add("duckdb", f"{folder}/a.duckdb", table="totals", mode="upsert", key=["team"], evolve=True)
    add("postgres", "totals", dsn="postgresql://me@localhost/scores", password="env:P", schema="s", mode="upsert",
        key=["team"], evolve=True)  # fmt: skip
    add("valkey", "valkey://localhost:6379", prefix="totals", key=["team"], expires="1h", password="env:P", ca="ca.pem",
        over_tls=False)  # fmt: skip
    add("webhook", "http://localhost:1", headers={"a": "b"}, token="env:T", rows=5, timeout="1s", ca="ca.pem")
    add("generator", seed=1, rate=10, events=100, partitions=2, start=datetime(2024, 5, 1, tzinfo=UTC), keys=5,
        skew=0.5, mean=1, spread=1, mean_per_hour=1, disorder=0.1, distance="1s", late=0.1, late_by="1m", future=0.1,
        future_by="1d", duplicates=0.1, poison=0.1, poisons=["cut"], bursts=("10s", "1s", 3), idle={1: ("1s", "2s")},
        clock_drift={1: 0.1}, format="csv", events_per_batch=10)  # fmt: skip
    add("failure_budget", 0.1, over="5m", at_least=10)
    add("compact", folder, target_bytes=10, keep_seconds=10)
    add("manifested_files", folder, "panes")
    add("read_manifested", folder, "panes", now=True)
    add("frame", None)
    return found


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
        (scores(), "write", (PaperSink(),), {"delivery": "at_least_once", "dead": sl.dead_table()}),
        (scores(), "event_time", ("at", sl.bounded(seconds=1)), {}),
        (scores(), "processing_time", (), {}),
        (scores(), "key_by", ("team", "user"), {}),
        (panes, "key_by", ("team",), {"even_repeated": True}),
        (keyed(), "window", (sl.tumbling(minutes=1),), {}),
        (keyed(), "trigger", (sl.after_count(1),), {"may_close": True}),
        (keyed(), "accumulate", ("retracting",), {}),
        (keyed(), "allow_lateness", ("5m",), {"rows": "per_window", "rest": PaperSink()}),
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
FREE: Final = {"call.function", "Elements.map.function", "Elements.flat_map.function"}
"""Arguments that take any function, also one that this test does not know."""
WRONG: Final = (Alien(), None, True, 7, -3, 2.5, float("nan"), "", "nonsense", b"bytes", ["a", 3], {"a": 3}, {3}, (),
                datetime(2024, 5, 1, tzinfo=UTC), timedelta(0), Path("nowhere"), Alien, len, pl.col("score"))  # fmt: skip


def _replaced(call: Call) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield each argument of a call, with the call as a function of it."""
    function, args, named = call
    names = [*inspect.signature(function).parameters.values()]
    for place in range(len(args)):
        of = names[min(place, len(names) - 1)]
        yield of.name, lambda given, place=place: function(*args[:place], given, *args[place + 1 :], **named)
    for name in named:
        yield name, lambda given, name=name: function(*args, **{**named, name: given})


FUNCTIONS: Final = sorted(set(sl.__all__) - NOT_FUNCTIONS)
METHODS: Final = sorted(_methods())


def _refuses(word: str, call: Call) -> None:
    for name, with_argument in _replaced(call):
        for given in WRONG:
            try:
                with_argument(given)
            except StrandlineError as refused:
                assert refused.message, f"{word}({name}={given!r})"
                assert "@" not in refused.message or "@" in str(given)
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
        "column": "score", "create": lambda: 0, "add": lambda so_far, value: so_far + value, "result": lambda total: total,
        "merge": None, "retract": None, "name": "total",
    }  # fmt: skip
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
