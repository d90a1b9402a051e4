"""The folder source: lines as records with positions, header checks, and detection of changed files."""

import os
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.files import Files, parquet_splits
from strandline.connectors.files.listing import Waiting, refuse_gone, waiting_here
from strandline.errors import InvalidStep, LostRecords, RunError
from strandline.execution.row_decoding import MARK, Arrived, as_one, of_records
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.plan.nodes import to_plain
from strandline.ports.codecs import RAW, REASON
from strandline.ports.raw_records import RECORD, SPLIT
from strandline.ports.sources import ListedFile
from strandline.spark.tasks.decode_task import decode_task

JSON = sl.json("n long")
CSV = sl.csv("team string, n long")


def lines(*arguments: tuple[str, int, bytes], split: bool = False) -> pl.DataFrame:
    """Lines as Spark passes them: the file, the start of its block, the bytes."""
    files, blocks, values = ([each[place] for each in arguments] for place in range(3))
    kinds = {"partition": pl.String, "offset": pl.Int64, "value": pl.Binary, "mark": pl.Int32, SPLIT: pl.Boolean}
    columns = [files, blocks, values, [RECORD] * len(arguments), [split] * len(arguments)]
    return pl.DataFrame(dict(zip(kinds, columns, strict=True)), schema=kinds)


def arrived(source: Files, frame: pl.DataFrame) -> Arrived:
    decoder = source.decoder
    assert decoder is not None
    return of_records(frame, decoder)


def places(frame: pl.DataFrame) -> list[tuple[str, int]]:
    return [*frame.select(PARTITION, OFFSET).iter_rows()]


def test_lines_are_numbered_from_their_blocks_start_and_a_broken_one_is_a_single_dead_letter() -> None:
    records = lines(
        ("a", 0, b'{"n": 1}'), ("a", 0, b"no"), ("a", 0, b""), ("a", 0, b'{"n": 2}\r'),
        ("a", 9_000, b'{"n": 3}'), ("a", 9_000, b'{"n": 4}'),
        ("b", 0, b'\xef\xbb\xbf{"n": 5}'), ("b", 0, b'{"n": "x"}'),
    )  # fmt: skip
    found = arrived(sl.files("in", JSON), records)
    assert found.rows["n"].to_list() == [1, 2, 3, 4, 5]
    assert places(found.rows) == [("a", 0), ("a", 3), ("a", 9_000), ("a", 9_001), ("b", 0)]
    assert places(found.dead) == [("a", 1), ("b", 1)]
    assert found.dead[RAW].to_list() == [b"no", b'{"n": "x"}']
    assert SPLIT not in found.rows.columns


def test_an_empty_line_is_a_record_of_text_formats() -> None:
    records = lines(("a", 0, b"one"), ("a", 0, b""), ("a", 0, b"\xff"))
    assert arrived(sl.files("in", sl.text("line")), records).rows["line"].to_list() == ["one", ""]
    assert arrived(sl.files("in", sl.raw("line")), records).rows["line"].to_list() == [b"one", b"", b"\xff"]


def test_a_folder_is_one_partition_to_the_watermark_though_its_records_name_their_files() -> None:
    found = as_one(arrived(sl.files("in", JSON), lines(("a", 0, b'{"n": 1}'), ("b", 0, b"no"))))
    assert found.marks.rows(named=True) == [{PARTITION: "", OFFSET: 0, MARK: RECORD, "rows": 2}]
    assert sl.files("in", JSON).partitions == ("",)


def test_lines_keep_their_number_when_they_are_decoded_in_a_task_of_their_own() -> None:
    decoder = sl.files("in", CSV, header=True).decoder
    assert decoder is not None
    records = lines(*(("a", 0, line) for line in (b"team,n", b"red,1", b"blue,2", b"jade,x")))
    batches = records.to_arrow().to_batches(max_chunksize=2)
    found = pl.DataFrame(pa.Table.from_batches([*decode_task(decoder)(iter(batches))]))
    assert sorted(found.select(OFFSET, "team").rows(), key=str) == [(1, "red"), (2, "blue"), (3, None)]


@pytest.mark.parametrize("header", [b"team,n", b'"team", n\r', b"\xef\xbb\xbfteam,n"])
def test_a_header_is_not_a_record(header: bytes) -> None:
    found = arrived(sl.files("in", CSV, header=True), lines(("a", 0, header), ("a", 0, b"red,1"), ("a", 70, b"blue,2")))
    assert found.rows["n"].to_list() == [1, 2]
    assert found.dead.is_empty()


@pytest.mark.parametrize("header", [b"n,team", b"red,1", b"", b"team", b"team,n,at"])
def test_a_file_with_another_header_is_dead_lettered_whole_and_alone(header: bytes) -> None:
    records = lines(("a", 0, header), ("a", 0, b"red,1"), ("b", 0, b"team,n"), ("b", 0, b"blue,2"))
    found = arrived(sl.files("in", CSV, header=True), records)
    assert found.rows["n"].to_list() == [2]
    assert places(found.dead) == [("a", 0), ("a", 1)]
    assert found.dead["@detail"].str.contains("the file's header is").all()


def test_a_wrong_header_of_a_file_in_blocks_stops_the_job() -> None:
    with pytest.raises(RunError, match="the file's header is 'n,team', expected team, n: a"):
        arrived(sl.files("in", CSV, header=True), lines(("a", 0, b"n,team"), ("a", 0, b"1,2"), split=True))


def test_without_a_header_the_first_line_is_a_record() -> None:
    assert arrived(sl.files("in", CSV), lines(("a", 0, b"red,1"))).rows["n"].to_list() == [1]


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda: sl.files("in", sl.avro("n long")), "Avro cannot decode lines"),
        (lambda: sl.files("in", sl.json("n long", registry=sl.registry("http://localhost:1"))), "cannot decode lines"),
        (lambda: sl.files("in", "n long", format="xml"), "unknown file format 'xml'"),
        (lambda: sl.files("in", JSON, header=True), "only CSV files have a header"),
        (lambda: sl.files("in", JSON, files_per_batch=0), "files_per_batch is 0"),
        (lambda: sl.files("in", JSON, on_lost="shrug"), "unknown on_lost 'shrug'"),
        (lambda: sl.files("in", JSON, metadata={"f": "owner"}), "unknown metadata field 'owner' for 'f'"),
        (lambda: sl.files("in", JSON, metadata={"n": "path"}), "the column 'n' is already in the records"),
    ],
)
def test_unsupported_files_are_refused(ask: Any, problem: str) -> None:
    with pytest.raises(InvalidStep, match=problem):
        ask()


def test_read_speed_does_not_change_the_source_for_a_checkpoint() -> None:
    assert to_plain(sl.files("in", JSON)) == to_plain(sl.files("in", JSON, files_per_batch=3, on_lost="continue"))
    assert to_plain(sl.files("in", JSON)) != to_plain(sl.files("in", JSON, pattern="*.json"))


def test_file_metadata_can_be_columns() -> None:
    assert sl.files("in", JSON, metadata={"file": "path", "at": "modified"}).types == {
        "n": "long", "file": "string", "at": "timestamp",
    }  # fmt: skip


def listed(path: Path) -> ListedFile:
    return ListedFile(path.as_uri(), path.stat().st_mtime_ns // 1_000_000)


def no_spark() -> Any:
    """A stand-in for Spark, which local files do not need."""
    return None


def test_files_that_vanished_or_changed_since_they_were_listed_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, gone, changed, fine = (tmp_path / f"{name} file" for name in ("old", "gone", "changed", "fine"))
    for path in (old, gone, changed, fine):
        path.write_text("x")
    read, given = [listed(old)], [listed(gone), listed(changed), listed(fine)]
    refuse_gone("files('in')", given, read, no_spark(), goes_on=False)
    old.unlink()  # read long ago: nobody needs it
    refuse_gone("files('in')", given, read, no_spark(), goes_on=False)
    gone.unlink()
    os.utime(changed, ns=(1, 1))
    with pytest.raises(LostRecords, match=r"2 files of files\('in'\) vanished or changed") as refused:
        refuse_gone("files('in')", given, read, no_spark(), goes_on=False)
    assert "gone%20file vanished" in refused.value.detail
    assert "changed%20file changed" in refused.value.detail
    refuse_gone("files('in')", given, read, no_spark(), goes_on=True)
    assert "continues with missing records" in caplog.text


def test_a_file_that_got_more_lines_after_it_was_read_is_reported(tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    for path in (early, late):
        path.write_text("x")
    read, given = [listed(early)], [listed(late)]
    os.utime(early, ns=(1, 1))
    with pytest.raises(LostRecords, match="vanished or changed"):
        refuse_gone("files('in')", given, read, no_spark(), goes_on=False)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_waiting_files_of_a_local_folder_are_listed_without_spark(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "a b#c%20d"
    folder.mkdir()
    for name in ("one.json", "two.json", "_draft.json", "notes.txt"):
        (folder / name).write_text("12345")
    left = waiting_here(f"{scheme}{folder}", "*.json", frozenset([listed(folder / "one.json").path]))
    assert left == Waiting(1, 5, listed(folder / "two.json").modified)


@pytest.mark.parametrize("folder", ["s3a://bucket/in", "hdfs:/in", "/in/*/today"])
def test_waiting_files_of_other_file_systems_need_spark(folder: str) -> None:
    assert waiting_here(folder, None, frozenset()) is None


def test_without_listed_files_nothing_is_lost() -> None:
    refuse_gone("files('in')", (), (), no_spark(), goes_on=False)


def test_dead_letters_of_lines_have_a_reason() -> None:
    found = arrived(sl.files("in", CSV), lines(("a", 0, b'red,"1'), ("a", 0, b"red,many")))
    assert found.dead[REASON].to_list() == ["undecodable", "undecodable"]
    assert found.dead["@detail"][1] == "n: 'many' is no long"


def test_long_files_are_read_by_row_groups_and_rows_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_splits, "BYTES_AT_ONCE", 1_500)
    for name, first in (("a", 0), ("b", 300)):
        pl.DataFrame({"n": range(first, first + 300)}).write_parquet(tmp_path / f"{name}.parquet", row_group_size=100)
    uris = [f"file://{tmp_path}/{name}.parquet" for name in "ab"]
    frames = [*parquet_splits.read_files(uris, "n long")]
    assert len(frames) > 2
    found = pl.concat(frames)
    assert found["n"].to_list() == [*range(600)]
    assert found[OFFSET].to_list() == [*range(300)] * 2
    assert found[PARTITION].unique(maintain_order=True).to_list() == [uri.replace("file:///", "file:/") for uri in uris]


@pytest.mark.parametrize(
    ("folder", "columns"),
    [("in", "n decimal(9, 2)"), ("in", "n array<int>"), ("s3a://in", "n long"), ("in/*", "n long"), ("not", "n long")],
)
def test_files_that_spark_reads_better_are_left_to_spark(
    folder: str, columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    assert parquet_splits.readable("in", "n long") == tmp_path / "in"
    assert parquet_splits.readable(folder, columns) is None


def test_folders_with_partition_columns_are_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "team=red").mkdir()
    assert parquet_splits.readable(str(tmp_path), "n long, team string") is None
