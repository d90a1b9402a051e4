"""Contract of sinks for rows: panes, late elements and dead letters, of every kind and any number."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest

from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.output import Output
from strandline.kernel.step import WATERMARK
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window.panes import INDEX, RETRACTION
from strandline.ports.sinks import OpenSink
from tests.contracts.sinks import DEAD, entry, late, opened, pane, panes, stages
from tests.contracts.stores import Store


@pytest.mark.needs("append")
def test_panes_are_appended_batch_by_batch(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    assert sink.commit(panes(pane("red", 5), pane("blue", 3)), entry(sink, 0, epoch=epoch)).fresh
    assert sink.commit(panes(pane("red", 7, 1)), entry(sink, 1, epoch=epoch)).fresh
    assert [(row["team"], row["total"], row["pane_index"], row["batch"]) for row in store.read()] == [
        ("red", 5, 0, 0),
        ("blue", 3, 0, 0),
        ("red", 7, 1, 1),
    ]


def test_a_pane_is_written_with_its_metadata(store: Store, sink: OpenSink) -> None:
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


def test_late_elements_and_dead_letters_have_outputs_of_their_own(store: Store, sink: OpenSink) -> None:
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
def test_the_latest_answer_is_the_newest_pane_that_was_not_retracted(store: Store, sink: OpenSink) -> None:
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
def test_rows_that_are_parts_of_results_have_no_latest_answer(store: Store) -> None:
    definition = store.sink()
    sink = definition.open(replace(stages(definition).outputs[0], has_latest_view=False))
    sink.commit(panes(pane("red", 5), pane("red", 0, 1)), entry(sink, 0))
    sink.close()
    assert sorted(int(row["total"]) for row in store.read()) == [0, 5]
    if "upsert" in store.can:
        assert store.read("totals_now") == []
    else:
        with pytest.raises(InvalidStep, match="parts of results, and have no latest answers"):
            store.read("totals_now")


@pytest.mark.needs("views")
def test_a_null_key_has_a_latest_answer_too(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for index in range(3):
        sink.commit(panes(pane(None, index, index)), entry(sink, index, epoch=epoch))
    assert [(row["team"], row["total"]) for row in store.read("totals_now")] == [(None, 2)]


def test_frames_without_rows_are_accepted(store: Store, sink: OpenSink) -> None:
    nothing = Output(panes(pane("red", 5)).panes.clear(), late("red", 1).clear(), DEAD.clear())  # type: ignore[union-attr]
    assert sink.commit(nothing, entry(sink, 0)).fresh
    assert (store.read(), store.read("totals_late"), store.read("totals_dead"), store.read("totals_now")) == (
        [],
        [],
        [],
        [],
    )


def test_nulls_and_extremes_survive_a_round_trip(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for batch, total in enumerate((None, 2**63 - 1, -(2**63))):
        output = panes(pane(None, total, start=10_000 * batch)).panes
        assert output is not None
        sink.commit(Output(output.cast({"total": pl.Int64, "team": pl.String})), entry(sink, batch, epoch=epoch))
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


def test_any_text_is_stored_or_reported_as_refused(store: Store, sink: OpenSink) -> None:
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


@pytest.mark.slow
def test_a_batch_of_a_million_rows_is_one_batch(store: Store, sink: OpenSink) -> None:
    known = pane("", 5)
    rows = pl.DataFrame({"team": pl.int_range(1_000_000, eager=True).cast(pl.String)}).with_columns(
        **{name: pl.lit(known[name]) for name in (START, END, "total", INDEX, RETRACTION)}
    )
    assert sink.commit(Output(rows), entry(sink, 0)).fresh
    assert store.count() == 1_000_000
