"""What every sink must do: a batch and its ledger entry take effect together, once, and for the newest driver only."""

import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import Fenced, InvalidStep, SinkError, StateError
from strandline.kernel.blocks import AT, END, OFFSET, PARTITION, START
from strandline.kernel.output import Counts, Output
from strandline.kernel.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.step import WATERMARK
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver, Stages
from strandline.spark.deliver import Patience, deliver
from strandline.spark.ports import DETAIL, RAW, REASON, LedgerEntry, OpenSink, Recorded, SparkSink, Written
from tests.contracts.stores import (
    DeltaStore,
    DuckDbStore,
    FolderStore,
    KafkaStore,
    PostgresStore,
    SqliteStore,
    Store,
    ValkeyStore,
)
from tests.plan.endpoints import PaperSource, scores

pytest_plugins = ["strandline.testing.services"]


EMBEDDED = ("sqlite", "duckdb", "parquet", "jsonl", "csv", "delta")
SERVED = ("postgres", "kafka", "valkey")


@pytest.fixture(params=[*EMBEDDED, *(pytest.param(each, marks=pytest.mark.services) for each in SERVED)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each sink, empty."""
    match request.param:
        case "sqlite":
            yield SqliteStore(tmp_path / "some folder" / "scores.db")
        case "duckdb":
            yield DuckDbStore(tmp_path / "some folder" / "scores.duckdb")
        case "parquet" | "jsonl" | "csv":
            yield FolderStore(tmp_path / "some folder", request.param)
        case "delta":
            pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')
            yield DeltaStore(tmp_path / "some folder")
        case "postgres":
            mine = PostgresStore(request.getfixturevalue("postgres").address)
            yield mine
            mine.close()
        case "kafka":
            yield KafkaStore(request.getfixturevalue("kafka").address)
        case "valkey":
            keys = ValkeyStore(request.getfixturevalue("valkey").address)
            yield keys
            keys.close()


@pytest.fixture(autouse=True)
def _only_what_it_can(request: pytest.FixtureRequest) -> None:
    """A test marked `needs(...)` is for the sinks that can do that."""
    for mark in request.node.iter_markers("needs"):
        missing = set(mark.args) - request.getfixturevalue("store").can
        if missing:
            pytest.skip(f"it does not {', '.join(missing)}")


def stages(sink: SparkSink, keys: tuple[str, ...] = ("team",), **names: Any) -> Stages:
    """The stages of a pipeline into this sink."""
    source = PaperSource(columns=", ".join([*(f"`{key}` string" for key in keys), "score long, at timestamp"]))
    panes = scores(source).event_time("at", sl.monotone()).key_by(*keys).window(sl.tumbling(seconds=10))
    return to_stages(panes.aggregate(**(names or {"total": sl.sum("score")})).write(sink).root)


def opened(
    store: Store,
    table: str = "totals",
    keys: tuple[str, ...] = ("team",),
    asked: Mapping[str, Any] | None = None,
    names: Mapping[str, Any] | None = None,
) -> OpenSink:
    """The store's sink at work; `asked` is told to the sink, `names` are the columns of the panes."""
    mine = store.sink(table, **(asked or {}))
    return mine.open(stages(mine, keys, **(names or {})).outputs[0])


@pytest.fixture
def sink(store: Store) -> Iterator[OpenSink]:
    found = opened(store)
    yield found
    found.close()


def pane(team: str | None, total: int | None, index: int = 0, *, start: int = 0, taken_back: bool = False) -> Any:
    return {
        "team": team, START: start, END: start + 10_000, "total": total, TIMING: "early", INDEX: index,
        NONSPECULATIVE: -1, FIRST: index == 0, LAST: False, TIMESTAMP: start + 9_999, RETRACTION: taken_back,
    }  # fmt: skip


def panes(*rows: Any) -> Output:
    return Output(pl.DataFrame(list(rows), infer_schema_length=None), progress=Progress(5_000, 9_000))


def late(team: str, score: int) -> pl.DataFrame:
    at = datetime(1970, 1, 1, 0, 0, 1, 500_900, tzinfo=UTC)
    return pl.DataFrame({
        "team": [team], "score": [score], "at": [at], AT: [1_500], PARTITION: ["3"], OFFSET: [17],
        START: [0], END: [10_000], REASON: ["expired"], WATERMARK: [25_000],
    })  # fmt: skip


DEAD = pl.DataFrame({PARTITION: ["0"], OFFSET: [4], RAW: [b"\x00\xff"], REASON: ["undecodable"], DETAIL: ["not JSON"]})


CREATED = (
    "team varchar(9), window_start timestamp, window_end timestamp, total bigint, timing varchar(9), "
    "pane_index bigint, nonspeculative_index bigint, is_first boolean, is_last boolean, pane_time timestamp, "
    "retraction boolean, batch bigint"
)
"""A table of panes as its owner made it."""


def entry(
    sink: OpenSink, batch: int, *, lineage: str = "mine", digest: str = "d", epoch: int | None = None
) -> LedgerEntry:
    return LedgerEntry(lineage, sink.claim(lineage) if epoch is None else epoch, batch, digest)


@pytest.mark.needs("append")
def test_panes_are_added_batch_by_batch(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    assert sink.commit(panes(pane("red", 5), pane("blue", 3)), entry(sink, 0, epoch=epoch)).fresh
    assert sink.commit(panes(pane("red", 7, 1)), entry(sink, 1, epoch=epoch)).fresh
    assert [(row["team"], row["total"], row["pane_index"], row["batch"]) for row in store.read()] == [
        ("red", 5, 0, 0),
        ("blue", 3, 0, 0),
        ("red", 7, 1, 1),
    ]


def test_a_pane_is_told_with_all_that_belongs_to_it(store: Store, sink: OpenSink) -> None:
    sink.commit(panes(pane("red", 5)), entry(sink, 3))
    assert store.read() == [
        {
            "team": "red",
            "window_start": "1970-01-01 00:00:00.000",
            "window_end": "1970-01-01 00:00:10.000",
            "total": 5,
            "timing": "early",
            "pane_index": 0,
            "nonspeculative_index": -1,
            "is_first": 1,
            "is_last": 0,
            "pane_time": "1970-01-01 00:00:09.999",
            "retraction": 0,
            "batch": 3,
        }
    ]


def test_late_elements_and_dead_letters_have_places_of_their_own(store: Store, sink: OpenSink) -> None:
    sink.commit(Output(late=late("red", 5), dead=DEAD), entry(sink, 0))
    assert store.read() == []
    assert store.read("totals_late") == [
        {
            "team": "red",
            "score": 5,
            "at": "1970-01-01 00:00:01.500",
            "event_time": "1970-01-01 00:00:01.500",
            "source_partition": "3",
            "source_offset": 17,
            "window_start": "1970-01-01 00:00:00.000",
            "window_end": "1970-01-01 00:00:10.000",
            "reason": "expired",
            "watermark": "1970-01-01 00:00:25.000",
            "batch": 0,
        }
    ]
    assert store.read("totals_dead") == [
        {
            "source_partition": "0",
            "source_offset": 4,
            "raw": b"\x00\xff",
            "reason": "undecodable",
            "detail": "not JSON",
            "batch": 0,
        }
    ]


@pytest.mark.needs("views")
def test_the_latest_answer_is_the_newest_pane_that_was_not_taken_back(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("blue", 1), pane("red", 2, start=10_000)), entry(sink, 0, epoch=epoch))
    sink.commit(panes(pane("red", 5, taken_back=True), pane("red", 8, 1)), entry(sink, 1, epoch=epoch))
    answers = [(row["team"], row["window_start"], row["total"]) for row in store.read("totals_now")]
    assert sorted(answers) == [
        ("blue", "1970-01-01 00:00:00.000", 1),
        ("red", "1970-01-01 00:00:00.000", 8),
        ("red", "1970-01-01 00:00:10.000", 2),
    ]
    signed = sum(row["total"] * (-1 if row["retraction"] else 1) for row in store.read())
    assert signed == sum(total for _, _, total in answers)


@pytest.mark.needs("views")
def test_a_null_key_has_a_latest_answer_too(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for index in range(3):
        sink.commit(panes(pane(None, index, index)), entry(sink, index, epoch=epoch))
    assert [(row["team"], row["total"]) for row in store.read("totals_now")] == [(None, 2)]


def test_the_same_entry_twice_takes_effect_once(store: Store, sink: OpenSink) -> None:
    again = entry(sink, 0)
    assert sink.commit(panes(pane("red", 5)), again).fresh
    before = store.read()
    assert not sink.commit(panes(pane("red", 5)), again).fresh
    assert store.read() == before


def test_an_entry_comes_again_from_a_newer_driver_and_takes_effect_once(store: Store, sink: OpenSink) -> None:
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert not sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert len(store.read()) == 1


def test_a_batch_made_from_another_range_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), entry(sink, 0, digest="one", epoch=epoch))
    with pytest.raises(StateError, match="batch 0 is already in .* made from another range") as refused:
        sink.commit(panes(pane("red", 6)), entry(sink, 0, digest="other", epoch=epoch))
    assert "one… against other…" in refused.value.detail
    assert [row["total"] for row in store.read()] == [5]


def test_an_older_driver_is_fenced(store: Store) -> None:
    older, newer = opened(store), opened(store)
    first = older.claim("mine")
    assert newer.claim("mine") > first
    with pytest.raises(StateError, match="another driver has taken over this job"):
        older.commit(panes(pane("red", 5)), entry(older, 0, epoch=first))
    assert store.read() == []
    assert older.latest("mine") is None
    older.close()
    newer.close()


@pytest.mark.needs("append")
def test_jobs_of_other_lineages_do_not_fence_each_other(store: Store, sink: OpenSink) -> None:
    mine = sink.claim("mine")
    sink.claim("theirs")
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=mine)).fresh
    assert sink.commit(panes(pane("red", 7)), entry(sink, 0, lineage="theirs")).fresh
    assert [row["total"] for row in store.read()] == [5, 7]


def test_epochs_rise_also_over_a_restart(store: Store) -> None:
    epochs = []
    for _ in range(3):
        sink = opened(store)
        epochs.append(sink.claim("mine"))
        sink.close()
    assert epochs == sorted(set(epochs))


@pytest.mark.needs("evolve")
def test_a_batch_that_fails_in_the_middle_leaves_nothing(store: Store, sink: OpenSink) -> None:
    """Panes are written before late elements; these cannot be, so the panes must go as well."""
    store.make("totals_late", "team bigint")
    epoch = sink.claim("mine")
    with pytest.raises(SinkError, match="the table 'totals_late' does not fit") as refused:
        sink.commit(Output(panes(pane("red", 5)).panes, late("red", 1), DEAD), entry(sink, 0, epoch=epoch))
    assert "team is " in refused.value.detail
    assert (store.read(), store.read("totals_dead"), store.read("totals_now")) == ([], [], [])
    assert sink.latest("mine") is None
    assert sink.commit(panes(pane("red", 6)), entry(sink, 0, epoch=epoch)).fresh
    assert [row["total"] for row in store.read()] == [6]


def test_a_batch_without_output_is_recorded_all_the_same(store: Store, sink: OpenSink) -> None:
    assert sink.commit(Output(progress=Progress(5_000, 9_000)), entry(sink, 7, digest="quiet")).fresh
    assert sink.latest("mine") == Recorded(7, "quiet", 5_000)
    assert (store.read(), store.read("totals_late"), store.read("totals_dead")) == ([], [], [])


def test_frames_without_rows_are_taken(store: Store, sink: OpenSink) -> None:
    nothing = Output(panes(pane("red", 5)).panes.clear(), late("red", 1).clear(), DEAD.clear())  # type: ignore[union-attr]
    assert sink.commit(nothing, entry(sink, 0)).fresh
    assert (store.read(), store.read("totals_late"), store.read("totals_dead"), store.read("totals_now")) == (
        [],
        [],
        [],
        [],
    )


def test_the_ledger_says_what_was_recorded_and_what_came_last(sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    assert sink.latest("mine") is None
    for batch, watermark in ((0, NEVER), (1, 4_000), (9, FOREVER)):
        output = Output(progress=Progress(watermark, 1), counts=Counts(read=3, contributed=3))
        sink.commit(output, entry(sink, batch, digest=f"digest {batch}", epoch=epoch))
        assert sink.latest("mine") == Recorded(batch, f"digest {batch}", watermark)
    assert sink.latest("theirs") is None


def test_what_was_committed_is_there_for_the_next_driver(store: Store) -> None:
    first = opened(store)
    first.commit(panes(pane("red", 5)), entry(first, 0, digest="kept"))
    first.close()
    second = opened(store)
    assert second.latest("mine") == Recorded(0, "kept", 5_000)
    assert len(store.read()) == 1
    second.close()


def test_two_sinks_in_one_store_keep_their_own_ledgers(store: Store) -> None:
    one, other = opened(store, table="one"), opened(store, table="other")
    first, second = one.claim("mine"), other.claim("mine")
    assert one.commit(panes(pane("red", 1)), entry(one, 0, epoch=first)).fresh
    assert other.latest("mine") is None
    assert other.commit(panes(pane("red", 2)), entry(other, 0, epoch=second)).fresh
    assert [row["total"] for row in store.read("one")] == [1]
    assert [row["total"] for row in store.read("other")] == [2]
    one.close()
    other.close()


@pytest.mark.needs("views")
@pytest.mark.parametrize("name", ['my "own" totals', "größe 日本", "select", "a'b; DROP TABLE x", "Robert); --"])
def test_odd_names_are_names_like_any_other(store: Store, name: str) -> None:
    key, value = f"{name} key", f"{name} value"
    sink = opened(store, keys=(key,), table=name, names={value: sl.sum("score")})
    told = pane(None, 5) | {key: name, value: 5}
    output = panes({column: cell for column, cell in told.items() if column not in ("team", "total")})
    sink.commit(Output(output.panes, late("red", 1).rename({"team": key})), entry(sink, 0))
    assert [(row[key], row[value]) for row in store.read(name)] == [(name, 5)]
    assert [(row[key], row[value]) for row in store.read(f"{name}_now")] == [(name, 5)]
    assert [row[key] for row in store.read(f"{name}_late")] == ["red"]
    sink.close()


@pytest.mark.needs("views")
@pytest.mark.parametrize("name", ["batch", "Batch", "window_start", "pane_index", "is_last", "newest"])
def test_a_users_column_keeps_its_name_and_value_whatever_the_sink_calls_its_own(store: Store, name: str) -> None:
    sink = opened(store, names={name: sl.sum("score")})
    epoch = sink.claim("mine")
    for batch, value in enumerate((41, 1)):
        told = {**pane("red", 0, batch), name: value}
        del told["total"]
        sink.commit(panes(told), entry(sink, batch, epoch=epoch))
    assert [row[name] for row in store.read()] == [41, 1]
    assert [row[name] for row in store.read("totals_now")] == [1]
    sink.close()


@pytest.mark.parametrize("name", ["event_time", "reason", "watermark", "source_offset"])
def test_a_late_element_keeps_its_columns_whatever_the_sink_calls_its_own(
    store: Store, sink: OpenSink, name: str
) -> None:
    sink.commit(Output(late=late("red", 5).rename({"score": name})), entry(sink, 0))
    (row,) = store.read("totals_late")
    assert row[name] == 5
    assert "expired" in row.values()


def test_nulls_and_extremes_come_back_as_they_were(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for batch, total in enumerate((None, 2**63 - 1, -(2**63))):
        told = panes(pane(None, total, start=10_000 * batch)).panes
        assert told is not None
        sink.commit(Output(told.cast({"total": pl.Int64, "team": pl.String})), entry(sink, batch, epoch=epoch))
    assert [row["total"] for row in store.read()] == [None, 2**63 - 1, -(2**63)]


def test_values_of_every_type_are_kept(store: Store) -> None:
    sink = opened(store)
    cells = {"total": 1.5, "won": True, "name": "é", "bytes": b"\x00", "last": datetime(2024, 5, 1, 12, tzinfo=UTC)}
    sink.commit(panes(pane("red", 0) | cells), entry(sink, 0))
    (row,) = store.read()
    assert {name: row[name] for name in cells} == {**cells, "won": 1, "last": "2024-05-01 12:00:00.000"}
    sink.close()


def test_the_ends_of_time_have_names(store: Store, sink: OpenSink) -> None:
    ends = late("red", 5).with_columns(pl.lit(FOREVER).alias(WATERMARK), pl.lit(NEVER).alias(AT))
    sink.commit(Output(late=ends), entry(sink, 0))
    (row,) = store.read("totals_late")
    assert (row["watermark"], row["event_time"]) == ("infinity", "-infinity")


# The three deliveries, as `spark/deliver.py` asks for them.


@pytest.mark.needs("views", Delivery.AT_LEAST_ONCE)
def test_what_is_written_without_a_look_is_written_again(store: Store, sink: OpenSink) -> None:
    again = entry(sink, 3)
    for _ in range(2):
        assert sink.write(panes(pane("red", 5)), again).fresh
    assert [row["total"] for row in store.read()] == [5, 5]
    assert [row["total"] for row in store.read("totals_now")] == [5]
    assert sink.latest("mine") is None


@pytest.mark.needs(Delivery.AT_MOST_ONCE)
def test_a_marked_batch_is_not_written_again(store: Store, sink: OpenSink) -> None:
    marked = entry(sink, 0)
    assert sink.mark(panes(pane("red", 5)), marked).fresh
    assert store.read() == []
    assert not sink.mark(panes(pane("red", 5)), marked).fresh
    assert sink.latest("mine") == Recorded(0, "d", 5_000)
    sink.write(panes(pane("red", 5)), marked)
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.parametrize("act", ["commit", "mark", "write"])
def test_an_older_driver_can_do_nothing(store: Store, act: str) -> None:
    older, newer = opened(store), opened(store)
    first = entry(older, 0)
    newer.claim("mine")
    with pytest.raises(Fenced, match="another driver has taken over this job"):
        getattr(older, act)(panes(pane("red", 5)), first)
    assert store.read() == []
    older.close()
    newer.close()


def test_a_batch_that_does_not_join_the_last_one_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), LedgerEntry("mine", epoch, 0, "one", None, "at 10"))
    assert sink.commit(panes(pane("blue", 6)), LedgerEntry("mine", epoch, 7, "two", "at 10", "at 20")).fresh
    for apart in (
        LedgerEntry("mine", epoch, 8, "x", "at 15", "at 30"),
        LedgerEntry("mine", epoch, 5, "x", "at 20", "z"),
    ):
        with pytest.raises(StateError):
            sink.commit(panes(pane("red", 7, 2)), apart)
    assert [row["total"] for row in store.read()] == [5, 6]


def test_an_entry_that_is_no_longer_kept_is_refused_not_written_again(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for batch in range(0, 2_001, 200):
        sink.mark(Output(), entry(sink, batch, epoch=epoch))
    assert not sink.mark(Output(), entry(sink, 1_800, epoch=epoch)).fresh
    with pytest.raises(StateError, match="batch 0 is new to .*, which is at batch 2000"):
        sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=epoch))
    assert store.read() == []


def test_two_drivers_that_keep_taking_over_from_each_other_write_each_batch_once(store: Store) -> None:
    batches, problems = 15, list[BaseException]()
    patience = Patience(shortest=0.001)

    def drive(sink: OpenSink) -> None:
        epoch: int | None = None
        batch = 0
        try:
            while batch < batches:
                told = panes(pane(f"team {batch}", batch))
                try:
                    # Fenced in the middle of a claim, too: then the other has just claimed.
                    epoch = patience.until_done(lambda: sink.claim("mine")) if epoch is None else epoch
                    due = entry(sink, batch, digest=f"range {batch}", epoch=epoch)
                    deliver(sink, Delivery.EXACTLY_ONCE, told, due, patience)
                    batch += 1
                except Fenced:
                    epoch = None
        except BaseException as problem:  # noqa: BLE001 - told by the thread that waits
            problems.append(problem)

    sinks = [opened(store), opened(store)]
    drivers = [threading.Thread(target=drive, args=[sink]) for sink in sinks]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    for sink in sinks:
        sink.close()
    assert problems == []
    assert [row["total"] for row in store.read()] == list(range(batches))


# By key: the table holds the latest answers themselves.


def answers(store: Store) -> list[tuple[Any, ...]]:
    return sorted(((row["team"], row["window_start"][11:19], row["total"]) for row in store.read()), key=str)


@pytest.mark.needs("upsert")
def test_by_key_a_newer_pane_takes_the_place_of_the_older(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("blue", 1), pane("red", 2, start=10_000)), entry(sink, 0, epoch=epoch))
    # Rows have no order of their own: the later pane counts, and a retraction only if nothing follows it.
    sink.commit(
        panes(
            pane("red", 9, 2), pane("red", 5, taken_back=True), pane("red", 8, 1), pane("red", 8, 1, taken_back=True)
        ),
        entry(sink, 1, epoch=epoch),
    )
    assert answers(store) == [("blue", "00:00:00", 1), ("red", "00:00:00", 9), ("red", "00:00:10", 2)]
    sink.close()


@pytest.mark.needs("upsert")
def test_by_key_what_is_taken_back_without_a_successor_is_gone(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("red", 2, start=10_000), pane(None, 3)), entry(sink, 0, epoch=epoch))
    taken = panes(pane("red", 5, taken_back=True), pane(None, 3, taken_back=True), pane("blue", 1, taken_back=True))
    sink.commit(taken, entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 2, start=10_000, taken_back=True)), entry(sink, 2, epoch=epoch))
    assert answers(store) == []
    sink.close()


@pytest.mark.needs("upsert")
def test_by_key_a_null_is_a_key_like_any_other(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    for batch in range(3):
        both = panes(pane(None, batch, batch), pane("red", batch * 10, batch))
        sink.commit(both, entry(sink, batch, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 20), (None, "00:00:00", 2)]
    sink.close()


@pytest.mark.needs("upsert", Delivery.AT_LEAST_ONCE)
def test_by_key_a_batch_that_comes_again_changes_nothing(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    again = entry(sink, 0)
    for _ in range(2):
        sink.write(panes(pane("red", 5), pane("blue", 1)), again)
    assert answers(store) == [("blue", "00:00:00", 1), ("red", "00:00:00", 5)]
    sink.close()


@pytest.mark.needs("upsert", "compare")
def test_by_a_key_without_a_window_the_latest_window_stays(store: Store) -> None:
    sink = opened(store, asked={"key": ["team"]})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 2, start=10_000), pane("red", 5)), entry(sink, 0, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 5, taken_back=True), pane("red", 6, 1)), entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 5, taken_back=True)), entry(sink, 2, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 7, start=20_000)), entry(sink, 3, epoch=epoch))
    assert answers(store) == [("red", "00:00:20", 7)]
    sink.close()


@pytest.mark.needs("upsert")
def test_elements_are_written_by_the_key_they_are_told(store: Store) -> None:
    mine = store.sink(key=["id"])
    sink = mine.open(Deliver(0, mine, Delivery.EXACTLY_ONCE, None))
    epoch = sink.claim("mine")
    sink.commit(Output(pl.DataFrame({"id": [1, 2, 1], "name": ["a", "b", "c"]})), entry(sink, 0, epoch=epoch))
    sink.commit(Output(pl.DataFrame({"id": [2, 3], "name": ["d", None]})), entry(sink, 1, epoch=epoch))
    assert sorted((row["id"], row["name"]) for row in store.read()) == [(1, "c"), (2, "d"), (3, None)]
    sink.close()


@pytest.mark.needs("upsert")
def test_elements_by_no_key_are_refused(store: Store) -> None:
    mine = store.sink(mode="upsert")
    with pytest.raises(InvalidStep, match="writes elements by key, and is not told by which"):
        mine.open(Deliver(0, mine, Delivery.EXACTLY_ONCE, None))


@pytest.mark.needs("upsert")
def test_a_key_that_rows_do_not_have_is_told(store: Store) -> None:
    sink = opened(store, asked={"key": ["club", "window_start"]})
    with pytest.raises(SinkError, match="is to tell rows apart by club, which they do not have"):
        sink.commit(panes(pane("red", 5)), entry(sink, 0))
    sink.close()


@pytest.mark.parametrize("asked", [{"mode": "replace"}, {"mode": "append", "key": ["team"]}, {"table": ""}])
@pytest.mark.needs("append", "upsert", "compare")
def test_what_a_table_cannot_be_is_refused(store: Store, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidStep):
        store.sink(**asked)


# Tables that were there before, and tables that change.


@pytest.mark.parametrize("rule", ["", ", PRIMARY KEY (window_end, team, window_start)"])
@pytest.mark.needs("evolve")
def test_a_table_that_was_there_is_used_and_keeps_what_is_its_own(store: Store, rule: str) -> None:
    store.make("totals", f"{CREATED}, note varchar(20) DEFAULT 'mine'{rule}")
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    for batch, total in enumerate((5, 6)):
        sink.commit(panes(pane("red", total, batch)), entry(sink, batch, epoch=epoch))
    assert [(row["team"], row["total"], row["note"]) for row in store.read()] == [("red", 6, "mine")]
    sink.close()


@pytest.mark.needs("evolve")
def test_a_table_of_other_types_is_refused_with_the_difference(store: Store, sink: OpenSink) -> None:
    store.make(
        "totals",
        CREATED.replace("total bigint", "total varchar(9)").replace("team varchar(9)", "team double precision"),
    )
    with pytest.raises(SinkError, match="the table 'totals' does not fit what is to be written") as refused:
        sink.commit(panes(pane("red", 5)), entry(sink, 0))
    assert "team is double" in refused.value.detail
    assert "and text is to be written" in refused.value.detail
    assert "integer is to be written" in refused.value.detail
    assert "evolve" not in refused.value.hint
    assert store.read() == []


@pytest.mark.needs("evolve")
def test_a_column_is_added_only_where_it_is_allowed(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=epoch))
    wider = panes(pane("red", 6, 1) | {"plays": 2})
    with pytest.raises(SinkError, match="does not fit") as refused:
        sink.commit(wider, entry(sink, 1, epoch=epoch))
    assert refused.value.detail == "plays is missing, and integer is to be written"
    assert "evolve=True" in refused.value.hint
    allowed = opened(store, asked={"evolve": True})
    assert allowed.commit(wider, entry(allowed, 1)).fresh
    assert [(row["total"], row["plays"]) for row in store.read()] == [(5, None), (6, 2)]
    assert [(row["total"], row["plays"]) for row in store.read("totals_now")] == [(6, 2)]
    allowed.close()


# Rows that a sink will not take.


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.needs("refuse")
def test_a_row_that_is_refused_is_a_dead_letter_and_the_others_are_written_once(store: Store, mode: str) -> None:
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 100)"))
    sink = opened(store, asked={"mode": mode})
    rows = [pane(f"team {number}", 1_000 if number in (3, 40, 41) else number) for number in range(50)]
    once = entry(sink, 0)
    assert sink.commit(panes(*rows), once) == Written(refused=3)
    assert not sink.commit(panes(*rows), once).fresh
    assert sorted(row["total"] for row in store.read()) == [number for number in range(50) if number not in (3, 40, 41)]
    letters = store.read("totals_dead")
    assert [row["reason"] for row in letters] == ["sink_refused"] * 3
    assert [json.loads(bytes(row["raw"]))["team"] for row in letters] == ["team 3", "team 40", "team 41"]
    assert all("check" in row["detail"].lower() for row in letters)
    assert len({row["id"] for row in letters}) == 3
    sink.close()


@pytest.mark.needs("refuse")
def test_a_table_that_takes_nothing_ends_the_job(store: Store) -> None:
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 0)"))
    sink = opened(store)
    with pytest.raises(SinkError, match="the first 100 rows of a batch were refused, every one"):
        sink.commit(panes(*(pane(f"{number}", number) for number in range(120))), entry(sink, 0))
    assert (store.read(), store.read("totals_dead")) == ([], [])
    sink.close()


def test_texts_of_any_kind_are_kept_or_told_as_refused(store: Store, sink: OpenSink) -> None:
    texts = [
        "",
        " ",
        "\\N",
        "\\.",
        "a,b",
        'say "hi"',
        "line\nline\r\n",
        "日本 🌊",
        "null",
        "NULL",
        "\x00",
        "a\x00b",
        "\ufeff",
    ]
    done = sink.commit(panes(*(pane(text, number) for number, text in enumerate(texts))), entry(sink, 0))
    kept = {row["total"]: row["team"] for row in store.read()}
    assert all(kept[number] == texts[number] for number in kept)
    refused = [json.loads(bytes(row["raw"]))["team"] for row in store.read("totals_dead")]
    assert sorted([*kept.values(), *refused]) == sorted(texts)
    assert done.refused == len(refused)
    assert all("\x00" in text for text in refused)


def test_a_batch_of_a_million_rows_is_one_batch(store: Store, sink: OpenSink) -> None:
    rows = pl.DataFrame({"team": pl.int_range(1_000_000, eager=True).cast(pl.String)}).with_columns(
        **{name: pl.lit(cell) for name, cell in pane("", 5).items() if name != "team"}
    )
    assert sink.commit(Output(rows), entry(sink, 0)).fresh
    assert store.count() == 1_000_000


def test_a_place_that_cannot_be_opened_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="cannot open .*scores.db") as refused:
        opened(SqliteStore(tmp_path / "file" / "scores.db"))
    assert refused.value.detail
    assert refused.value.hint == "check the path and its folder"


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and they are longer than a header of SQLite would be\n" * 3)
    before = path.read_bytes()
    with pytest.raises(SinkError, match="cannot open .*notes.txt"):
        opened(SqliteStore(path))
    assert path.read_bytes() == before
