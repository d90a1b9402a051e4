"""Files that tasks add to a Delta table: they are in it with the commit of their batch, once, or not at all."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle

import strandline as sl
from strandline.connectors.delta import task_files as in_tasks
from strandline.connectors.delta.sink import OpenDelta
from strandline.connectors.delta.task_files import DeltaWriter
from strandline.errors import Fenced, SinkError
from strandline.kernel.output import Output, Part
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.sinks import Stamp
from tests.connectors.test_delta import entry, ids, opened, rows, table

deltalake = pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks write a file for any number of rows."""
    monkeypatch.setattr(in_tasks, "WORTH_A_FILE", 0)


def put(sink: OpenDelta, epoch: int, batch: int, *numbers: int) -> Part:
    """Run a task with a pickled writer, as Spark does."""
    sent = cloudpickle.dumps(sink.writer())  # type: ignore[no-untyped-call]
    writer: DeltaWriter = cloudpickle.loads(sent)
    part = writer.put(pl.DataFrame({"id": list(numbers)}), Stamp("mine", epoch, batch))
    assert part is not None
    return part


def of(*parts: Part) -> Output:
    return Output(parts=parts)


def files(path: Path) -> list[Path]:
    return sorted((path / "totals").glob("*.parquet"))


def test_the_files_of_tasks_and_that_of_the_driver_are_one_commit(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    two = put(sink, epoch, 0, 1, 2), put(sink, epoch, 0, 3)
    assert table(tmp_path).file_uris() == []
    assert sink.commit(Output(pl.DataFrame({"id": [4]}), parts=two), entry(epoch, 0)).fresh
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert table(tmp_path).transaction_version("mine") == 0
    assert len(table(tmp_path).file_uris()) == 3


def test_files_carry_statistics_for_data_skipping(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    part = put(sink, epoch, 0, 7, 3)
    stats = json.loads(part.told["file"]["stats"])
    assert (stats["numRecords"], stats["minValues"]["id"], stats["maxValues"]["id"]) == (2, 3, 7)
    sink.commit(of(part), entry(epoch, 0))
    found = pl.DataFrame(table(tmp_path).get_add_actions(flatten=True))
    assert found.select("num_records", "min.id", "max.id").row(0) == (2, 3, 7)


def test_a_replayed_batch_is_in_the_table_once(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 1, 2))
    sink.commit(output, entry(epoch, 0))
    assert not sink.commit(output, entry(epoch, 0)).fresh
    again = opened(tmp_path)
    epoch = again.claim("mine")
    assert not again.commit(of(put(again, epoch, 0, 1, 2)), entry(epoch, 0)).fresh
    assert ids(tmp_path) == [1, 2]


def test_a_replay_adds_files_at_least_once_and_removes_them_at_most_once(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.write(of(put(sink, epoch, 0, 1)), entry(epoch, 0))
    sink.write(of(put(sink, epoch, 0, 1)), entry(epoch, 0))
    assert ids(tmp_path) == [1, 1]
    assert sink.mark(of(put(sink, epoch, 1, 2)), entry(epoch, 1)).fresh
    assert ids(tmp_path) == [1, 1]


def test_a_fenced_driver_adds_nothing_and_its_tasks_stop_writing(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 7))
    newer = opened(tmp_path)
    newest = newer.claim("mine")
    with pytest.raises(Fenced):
        sink.commit(output, entry(epoch, 0))
    writer = sink.writer()
    assert writer is not None
    assert writer.put(pl.DataFrame({"id": [1]}), Stamp("mine", epoch, 0)) is None
    newer.commit(of(put(newer, newest, 0, 8)), entry(newest, 0))
    assert ids(tmp_path) == [8]


def test_columns_are_added_where_that_is_allowed_and_keep_their_types(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.commit(of(put(sink, epoch, 0, 1)), entry(epoch, 0))
    wide = sink.writer().put(pl.DataFrame({"id": [2], "more": ["x"]}), Stamp("mine", epoch, 1))  # type: ignore[union-attr]
    text = sink.writer().put(pl.DataFrame({"id": ["two"]}), Stamp("mine", epoch, 1))  # type: ignore[union-attr]
    assert wide is not None
    assert text is not None
    with pytest.raises(SinkError, match="more .* is missing"):
        sink.commit(of(wide), entry(epoch, 1))
    with pytest.raises(SinkError, match="id is Int64, expected String"):
        sink.commit(of(text), entry(epoch, 1))
    after = opened(tmp_path, evolve=True)
    epoch = after.claim("mine")
    after.commit(of(wide), entry(epoch, 1))
    assert pl.read_delta(str(tmp_path / "totals")).sort("id").select("id", "more").rows() == [(1, None), (2, "x")]


@pytest.mark.parametrize("value", [Decimal("1.5"), [1, 2], {"a": 1}], ids=["decimal", "list", "structure"])
def test_types_without_a_unique_parquet_form_are_written_by_the_driver(tmp_path: Path, value: Any) -> None:
    sink = opened(tmp_path)
    stamp = Stamp("mine", sink.claim("mine"), 0)
    writer = sink.writer()
    assert writer is not None
    assert writer.put(pl.DataFrame({"id": [1], "odd": [value]}), stamp) is None
    assert writer.put(pl.DataFrame({"id": [1], "at": [datetime(2026, 1, 1, tzinfo=UTC)]}), stamp) is not None


def test_a_table_with_rules_or_by_key_is_written_by_the_driver(tmp_path: Path) -> None:
    by_key = sl.delta(tmp_path / "latest", key="id")
    assert by_key.open(Deliver(0, by_key, Delivery.EXACTLY_ONCE, None)).writer() is None
    frame = pl.DataFrame({"id": [1], "batch": [0], "day": ["x"]})
    frame.write_delta(str(tmp_path / "totals"), delta_write_options={"partition_by": "day"})
    assert opened(tmp_path).writer() is None
    assert sl.delta("s3://lake/totals").mode == "append"


def test_tasks_that_do_not_see_the_drivers_table_send_their_rows_to_the_driver(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    stamp = Stamp("mine", sink.claim("mine"), 0)
    writer = sink.writer()
    assert writer is not None
    (tmp_path / "there").mkdir()
    assert replace(writer, path=str(tmp_path / "there")).put(pl.DataFrame({"id": [1]}), stamp) is None


def test_a_file_that_the_driver_does_not_see_is_refused(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 1))
    files(tmp_path)[0].write_bytes(b"cut")
    with pytest.raises(SinkError, match="missing or incomplete"):
        sink.commit(output, entry(epoch, 0))


def test_files_of_a_failed_attempt_are_removed_and_no_others(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.commit(rows(0), entry(epoch, 0))
    kept = files(tmp_path)
    put(sink, epoch, 1, 5)
    sink.swept(Stamp("mine", epoch, 1))
    assert files(tmp_path) == kept
    assert ids(tmp_path) == [0]
