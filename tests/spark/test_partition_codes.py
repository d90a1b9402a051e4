"""Names of files as numbers: what Spark makes of them, and what tasks make of those again."""

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.raw_records import PARTITION_CODE
from strandline.spark.tasks.partition_codes import number_of, numbered, with_names

PATHS = ["", "a", "abcd", "abcdefg h", *(f"file:///data/{'x' * length}/größe %20.parquet" for length in range(40))]


@pytest.mark.spark
def test_a_name_has_the_number_that_spark_gives_it(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(path,) for path in PATHS], "path string").select(F.xxhash64("path").alias("n"))
    assert [row.n for row in frame.collect()] == [number_of(path) for path in PATHS]


@pytest.mark.parametrize("name", [PARTITION, "partition"])
def test_rows_get_the_names_of_their_files_again_in_their_order(name: str) -> None:
    place = OFFSET if name == PARTITION else "offset"
    rows = pl.DataFrame({place: [0, 1, 0, 2], PARTITION_CODE: [number_of(path) for path in ("a", "a", "b", "a")]})
    assert with_names(rows, numbered(["a", "b", "c"]))[name].to_list() == ["a", "a", "b", "a"]
    assert with_names(rows.head(2), numbered(["a"])).columns == [place, name]


def test_a_number_of_which_nobody_was_told_stands_for_itself() -> None:
    rows = pl.DataFrame({OFFSET: [0, 0], PARTITION_CODE: [-1, number_of("a")]})
    assert with_names(rows, numbered(["a"]))[PARTITION].to_list() == ["file ffffffffffffffff", "a"]


def test_rows_without_numbers_are_left_alone() -> None:
    rows = pl.DataFrame({PARTITION: ["p"], OFFSET: [7]})
    assert with_names(rows, {}).equals(rows)


@pytest.mark.parametrize("name", [PARTITION, "partition"])
def test_partitions_of_a_topic_have_its_name_before_their_number(name: str) -> None:
    place = OFFSET if name == PARTITION else "offset"
    rows = pl.DataFrame({place: [4, 5, 9], PARTITION_CODE: [0, 11, 0]})
    assert with_names(rows, {}, "plays").select(name, place).rows() == [("plays-0", 4), ("plays-11", 5), ("plays-0", 9)]
