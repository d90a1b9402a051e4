"""Folders of files that Spark reads itself: Parquet, JSON lines, CSV, ORC; new files are read as they arrive."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.errors import InvalidStep
from strandline.model.ddl import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "orc")
"""Formats with types of their own: Spark's columns cross as they are, and nothing has to be decoded."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a folder, with the columns they have."""

    path: str
    columns: str
    format: str = "parquet"
    files_per_batch: int | None = None

    def __post_init__(self) -> None:
        parse(self.columns)
        if self.format not in FORMATS:
            raise InvalidStep(f"files of format {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise InvalidStep(
                f"{self.files_per_batch} files a batch are none", hint="take one or more, or leave it out"
            )

    @property
    def name(self) -> str:
        return f"files({self.path!r})"

    @property
    def partitions(self) -> tuple[str, ...]:
        return ("",)

    @property
    def types(self) -> dict[str, str]:
        return parse(self.columns)

    @property
    def decoder(self) -> None:
        return None

    def stream(self, spark: "SparkSession") -> "DataFrame":
        reader = spark.readStream.format(self.format).schema(self.columns)
        if self.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", self.files_per_batch)
        return reader.load(self.path)


def files(path: str | Path, columns: str, *, format: str = "parquet", files_per_batch: int | None = None) -> Files:  # noqa: A002 - Spark's own word
    """The files of a folder: `files("orders/", "id long, amount double, at timestamp")`."""
    return Files(str(path), columns, format, files_per_batch)
