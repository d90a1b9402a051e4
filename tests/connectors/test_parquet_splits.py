"""Parquet files read in Python: the same rows and positions as Spark's, or left to Spark."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from strandline.connectors.files import parquet_splits
from strandline.connectors.files.parquet_splits import pieces_of, read_pieces
from strandline.errors import RunError
from strandline.kernel.blocks.block import OFFSET, PARTITION

COLUMNS = "team string, score long, at timestamp, more double"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def written(folder: Path) -> list[str]:
    """Two files, with zoned and with naive times; both lack a column, and one has another type."""
    rows = pl.DataFrame({"at": [NOON] * 40, "score": range(40), "team": ["red", None] * 20, "extra": [1] * 40})
    rows.write_parquet(folder / "a b.parquet", row_group_size=10)
    naive = rows.with_columns(pl.col("at").dt.replace_time_zone(None), pl.col("score").cast(pl.Int16))
    naive.write_parquet(folder / "c.parquet")
    return [path.as_uri() for path in sorted(folder.iterdir())]


def test_rows_have_the_requested_columns_and_their_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uris = written(tmp_path)
    whole = pieces_of(str(tmp_path), COLUMNS, uris)
    assert whole == [[(uri, 0, 0) for uri in uris]]
    rows = read_pieces(whole[0], COLUMNS)
    assert rows.columns == ["team", "score", "at", "more", PARTITION, OFFSET]
    assert rows["score"].to_list() == [*range(40), *range(40)]
    assert rows["at"].unique().to_list() == [NOON]
    assert rows["more"].null_count() == 80
    assert rows[OFFSET].to_list() == [*range(40), *range(40)]
    assert rows[PARTITION].unique(maintain_order=True).to_list() == [uri.replace("file:///", "file:/") for uri in uris]
    monkeypatch.setattr(parquet_splits, "BYTES_PER_TASK", 100)  # every file is long now, and every row group a task
    apart = pieces_of(str(tmp_path), COLUMNS, uris)
    assert apart is not None
    assert len(apart) == 5
    assert pl.concat(read_pieces(each, COLUMNS) for each in apart).equals(rows)


def test_a_corrupt_or_mistyped_file_is_named(tmp_path: Path) -> None:
    uris = written(tmp_path)
    (tmp_path / "c.parquet").write_bytes(b"PAR1")
    for uri, columns in ((uris[0], "team long"), (uris[1], COLUMNS), ("file:///nowhere.parquet", COLUMNS)):
        with pytest.raises(RunError, match="cannot be read") as refused:
            read_pieces([(uri, 0, 0)], columns)
        assert uri in str(refused.value)


def test_an_empty_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    uri = (tmp_path / "a.parquet").as_uri()
    assert pieces_of(str(tmp_path), COLUMNS, [uri]) == [[(uri, 0, 0)]]
    with pytest.raises(RunError, match="cannot be read") as refused:
        read_pieces([(uri, 0, 0)], COLUMNS)
    assert uri in str(refused.value)


def test_files_that_spark_reads_better_are_left_to_spark(tmp_path: Path) -> None:
    uris = written(tmp_path)
    assert pieces_of(str(tmp_path.parent), COLUMNS, uris) is None  # a folder between may tell a column
    assert pieces_of(str(tmp_path), "team struct<a:long>", uris) is None
    assert pieces_of("s3a://bucket", COLUMNS, ["s3a://bucket/a.parquet"]) is None
    assert pieces_of(str(tmp_path), COLUMNS, ["hdfs://here/a.parquet"]) is None
