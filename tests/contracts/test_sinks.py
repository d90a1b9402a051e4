"""What every sink must do: a batch and its ledger entry take effect together, once, and for the newest driver only."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pytest

import strandline as sl
from strandline.errors import SinkError, StateError
from strandline.kernel.blocks import AT, END, OFFSET, PARTITION, START
from strandline.kernel.output import Counts, Output
from strandline.kernel.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.step import WATERMARK
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.spark.ports import DETAIL, RAW, REASON, LedgerEntry, OpenSink, Recorded, SparkSink
from tests.plan.endpoints import PaperSource, scores

Rows = list[dict[str, Any]]


class Store(Protocol):
    """A sink in a place of its own, and what a reader finds there. Names of columns are the sink's."""

    def sink(self, table: str = "totals") -> SparkSink: ...

    def panes(self, table: str = "totals") -> Rows: ...

    def late(self, table: str = "totals") -> Rows: ...

    def dead(self, table: str = "totals") -> Rows: ...

    def now(self, table: str = "totals") -> Rows: ...


@dataclass(frozen=True)
class SqliteStore:
    path: Path

    def sink(self, table: str = "totals") -> SparkSink:
        return sl.sqlite(self.path, table=table)

    def panes(self, table: str = "totals") -> Rows:
        return self._read(table)

    def late(self, table: str = "totals") -> Rows:
        return self._read(table + "_late")

    def dead(self, table: str = "totals") -> Rows:
        return self._read(table + "_dead")

    def now(self, table: str = "totals") -> Rows:
        return self._read(table + "_now")

    def _read(self, table: str) -> Rows:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return []
            quoted = table.replace('"', '""')
            return [dict(row) for row in connection.execute(f'SELECT * FROM "{quoted}"')]


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return {"sqlite": SqliteStore}[request.param](tmp_path / "some folder" / "scores.db")


def stages(store: Store, keys: tuple[str, ...] = ("team",), table: str = "totals", **names: Any) -> Stages:
    """The stages of a pipeline into this store."""
    source = PaperSource(columns=", ".join([*(f"`{key}` string" for key in keys), "score long, at timestamp"]))
    panes = scores(source).event_time("at", sl.monotone()).key_by(*keys).window(sl.tumbling(seconds=10))
    return to_stages(panes.aggregate(**(names or {"total": sl.sum("score")})).write(store.sink(table)).root)


def opened(store: Store, **asked: Any) -> OpenSink:
    found = stages(store, **asked)
    sink: SparkSink = found.outputs[0].sink  # type: ignore[assignment]
    return sink.open(found.outputs[0])


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


def entry(
    sink: OpenSink, batch: int, *, lineage: str = "mine", digest: str = "d", epoch: int | None = None
) -> LedgerEntry:
    return LedgerEntry(lineage, sink.claim(lineage) if epoch is None else epoch, batch, digest)


def test_panes_are_added_batch_by_batch(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    assert sink.commit(panes(pane("red", 5), pane("blue", 3)), entry(sink, 0, epoch=epoch)).fresh
    assert sink.commit(panes(pane("red", 7, 1)), entry(sink, 1, epoch=epoch)).fresh
    assert [(row["team"], row["total"], row["pane_index"], row["batch"]) for row in store.panes()] == [
        ("red", 5, 0, 0),
        ("blue", 3, 0, 0),
        ("red", 7, 1, 1),
    ]


def test_a_pane_is_told_with_all_that_belongs_to_it(store: Store, sink: OpenSink) -> None:
    sink.commit(panes(pane("red", 5)), entry(sink, 3))
    assert store.panes() == [
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
    assert store.panes() == []
    assert store.late() == [
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
    assert store.dead() == [
        {
            "source_partition": "0",
            "source_offset": 4,
            "raw": b"\x00\xff",
            "reason": "undecodable",
            "detail": "not JSON",
            "batch": 0,
        }
    ]


def test_the_latest_answer_is_the_newest_pane_that_was_not_taken_back(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("blue", 1), pane("red", 2, start=10_000)), entry(sink, 0, epoch=epoch))
    sink.commit(panes(pane("red", 5, taken_back=True), pane("red", 8, 1)), entry(sink, 1, epoch=epoch))
    answers = [(row["team"], row["window_start"], row["total"]) for row in store.now()]
    assert sorted(answers) == [
        ("blue", "1970-01-01 00:00:00.000", 1),
        ("red", "1970-01-01 00:00:00.000", 8),
        ("red", "1970-01-01 00:00:10.000", 2),
    ]
    signed = sum(row["total"] * (-1 if row["retraction"] else 1) for row in store.panes())
    assert signed == sum(total for _, _, total in answers)


def test_a_null_key_has_a_latest_answer_too(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for index in range(3):
        sink.commit(panes(pane(None, index, index)), entry(sink, index, epoch=epoch))
    assert [(row["team"], row["total"]) for row in store.now()] == [(None, 2)]


def test_the_same_entry_twice_takes_effect_once(store: Store, sink: OpenSink) -> None:
    again = entry(sink, 0)
    assert sink.commit(panes(pane("red", 5)), again).fresh
    before = store.panes()
    assert not sink.commit(panes(pane("red", 5)), again).fresh
    assert store.panes() == before


def test_an_entry_comes_again_from_a_newer_driver_and_takes_effect_once(store: Store, sink: OpenSink) -> None:
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert not sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert len(store.panes()) == 1


def test_a_batch_made_from_another_range_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), entry(sink, 0, digest="one", epoch=epoch))
    with pytest.raises(StateError, match="batch 0 is already in .* made from another range") as refused:
        sink.commit(panes(pane("red", 6)), entry(sink, 0, digest="other", epoch=epoch))
    assert "one… against other…" in refused.value.detail
    assert [row["total"] for row in store.panes()] == [5]


def test_an_older_driver_is_fenced(store: Store) -> None:
    older, newer = opened(store), opened(store)
    first = older.claim("mine")
    assert newer.claim("mine") > first
    with pytest.raises(StateError, match="another driver has taken over this job"):
        older.commit(panes(pane("red", 5)), entry(older, 0, epoch=first))
    assert store.panes() == []
    assert older.latest("mine") is None
    older.close()
    newer.close()


def test_jobs_of_other_lineages_do_not_fence_each_other(store: Store, sink: OpenSink) -> None:
    mine = sink.claim("mine")
    sink.claim("theirs")
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=mine)).fresh
    assert sink.commit(panes(pane("red", 7)), entry(sink, 0, lineage="theirs")).fresh
    assert [row["total"] for row in store.panes()] == [5, 7]


def test_epochs_rise_also_over_a_restart(store: Store) -> None:
    epochs = []
    for _ in range(3):
        sink = opened(store)
        epochs.append(sink.claim("mine"))
        sink.close()
    assert epochs == sorted(set(epochs))


def test_a_batch_that_fails_in_the_middle_leaves_nothing(store: Store, sink: OpenSink) -> None:
    """Panes are written before late elements; these cannot be, so the panes must go as well."""
    impossible = pl.DataFrame({"team": ["red"], "score": [2**64 - 1]}, schema_overrides={"score": pl.UInt64})
    failing = Output(panes(pane("red", 5)).panes, late=impossible, dead=DEAD)
    epoch = sink.claim("mine")
    with pytest.raises(SinkError, match="refused a batch"):
        sink.commit(failing, entry(sink, 0, epoch=epoch))
    assert (store.panes(), store.late(), store.dead(), store.now()) == ([], [], [], [])
    assert sink.latest("mine") is None
    assert sink.commit(panes(pane("red", 6)), entry(sink, 0, epoch=epoch)).fresh
    assert [row["total"] for row in store.panes()] == [6]


def test_a_batch_without_output_is_recorded_all_the_same(store: Store, sink: OpenSink) -> None:
    assert sink.commit(Output(progress=Progress(5_000, 9_000)), entry(sink, 7, digest="quiet")).fresh
    assert sink.latest("mine") == Recorded(7, "quiet", 5_000)
    assert (store.panes(), store.late(), store.dead()) == ([], [], [])


def test_frames_without_rows_are_taken(store: Store, sink: OpenSink) -> None:
    nothing = Output(panes(pane("red", 5)).panes.clear(), late("red", 1).clear(), DEAD.clear())  # type: ignore[union-attr]
    assert sink.commit(nothing, entry(sink, 0)).fresh
    assert (store.panes(), store.late(), store.dead(), store.now()) == ([], [], [], [])


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
    assert len(store.panes()) == 1
    second.close()


def test_two_sinks_in_one_store_keep_their_own_ledgers(store: Store) -> None:
    one, other = opened(store, table="one"), opened(store, table="other")
    first, second = one.claim("mine"), other.claim("mine")
    assert one.commit(panes(pane("red", 1)), entry(one, 0, epoch=first)).fresh
    assert other.latest("mine") is None
    assert other.commit(panes(pane("red", 2)), entry(other, 0, epoch=second)).fresh
    assert [row["total"] for row in store.panes("one")] == [1]
    assert [row["total"] for row in store.panes("other")] == [2]
    one.close()
    other.close()


@pytest.mark.parametrize("name", ['my "own" totals', "größe 日本", "select", "a'b; DROP TABLE x", "Robert); --"])
def test_odd_names_are_names_like_any_other(store: Store, name: str) -> None:
    key, value = f"{name} key", f"{name} value"
    sink = opened(store, keys=(key,), table=name, **{value: sl.sum("score")})
    told = pane(None, 5) | {key: name, value: 5}
    output = panes({column: cell for column, cell in told.items() if column not in ("team", "total")})
    sink.commit(Output(output.panes, late("red", 1).rename({"team": key})), entry(sink, 0))
    assert [(row[key], row[value]) for row in store.panes(name)] == [(name, 5)]
    assert [(row[key], row[value]) for row in store.now(name)] == [(name, 5)]
    assert [row[key] for row in store.late(name)] == ["red"]
    sink.close()


@pytest.mark.parametrize("name", ["batch", "Batch", "window_start", "pane_index", "is_last", "newest"])
def test_a_users_column_keeps_its_name_and_value_whatever_the_sink_calls_its_own(store: Store, name: str) -> None:
    sink = opened(store, **{name: sl.sum("score")})
    epoch = sink.claim("mine")
    for batch, value in enumerate((41, 1)):
        told = {**pane("red", 0, batch), name: value}
        del told["total"]
        sink.commit(panes(told), entry(sink, batch, epoch=epoch))
    assert [row[name] for row in store.panes()] == [41, 1]
    assert [row[name] for row in store.now()] == [1]
    sink.close()


@pytest.mark.parametrize("name", ["event_time", "reason", "watermark", "source_offset"])
def test_a_late_element_keeps_its_columns_whatever_the_sink_calls_its_own(
    store: Store, sink: OpenSink, name: str
) -> None:
    sink.commit(Output(late=late("red", 5).rename({"score": name})), entry(sink, 0))
    (row,) = store.late()
    assert row[name] == 5
    assert "expired" in row.values()


def test_nulls_and_extremes_come_back_as_they_were(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for batch, total in enumerate((None, 2**63 - 1, -(2**63))):
        told = panes(pane(None, total)).panes
        assert told is not None
        sink.commit(Output(told.cast({"total": pl.Int64, "team": pl.String})), entry(sink, batch, epoch=epoch))
    assert [row["total"] for row in store.panes()] == [None, 2**63 - 1, -(2**63)]


def test_values_of_every_type_are_kept(store: Store) -> None:
    sink = opened(store)
    cells = {"total": 1.5, "won": True, "name": "é", "bytes": b"\x00", "last": datetime(2024, 5, 1, 12, tzinfo=UTC)}
    sink.commit(panes(pane("red", 0) | cells), entry(sink, 0))
    (row,) = store.panes()
    assert {name: row[name] for name in cells} == {**cells, "won": 1, "last": "2024-05-01 12:00:00.000"}
    sink.close()


def test_the_ends_of_time_have_names(store: Store, sink: OpenSink) -> None:
    ends = late("red", 5).with_columns(pl.lit(FOREVER).alias(WATERMARK), pl.lit(NEVER).alias(AT))
    sink.commit(Output(late=ends), entry(sink, 0))
    (row,) = store.late()
    assert (row["watermark"], row["event_time"]) == ("infinity", "-infinity")


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
