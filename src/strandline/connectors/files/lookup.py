"""Look rows up in a folder of Parquet files, such as a DataFrame that Spark has written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from strandline.errors import LookupFailed, LookupUnavailable
from strandline.formats.lookup_files import found_rows, refuse_other_schema
from strandline.formats.lookup_rows import columns_of
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.local_path import local_path


@dataclass(frozen=True, slots=True)
class ParquetLookup:
    """A folder and the columns that are read."""

    path: str
    columns: str

    @property
    def name(self) -> str:
        return f"lookup_parquet({self.path!r})"

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - all columns are checked
        refuse_other_schema(f"the folder {self.path}", self.dataset().schema, self.table_columns)

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenParquetLookup":
        return OpenParquetLookup(self, (*keys, *columns))

    def dataset(self) -> Any:
        """List the files of the folder as they are now. Names that begin with a dot or underscore are no data."""
        import pyarrow.dataset as ds  # noqa: PLC0415

        if not any(Path(self.path).rglob("*.parquet")):
            raise LookupFailed(f"the folder {self.path} has no Parquet file", hint="check the path")
        try:
            return ds.dataset(self.path, format="parquet", partitioning="hive")
        except (OSError, ValueError) as problem:
            raise unavailable(self.path, problem) from None


def unavailable(path: str, problem: Exception) -> LookupUnavailable:
    return LookupUnavailable(f"{path} cannot be read now", detail=str(problem).partition("\n")[0][:200])


@checked
def lookup_parquet(path: str | Path, columns: str) -> ParquetLookup:
    """Look rows up in a folder of Parquet files: `lookup_parquet("users/", "user_id long, name string")`.

    The folder may be what `dataframe.write.parquet("users/")` has made. Every request reads the files that are there.
    """
    columns_of(columns, "lookup_parquet")
    return ParquetLookup(local_path(path, "parquet"), columns)


@dataclass(frozen=True, slots=True)
class OpenParquetLookup:
    """The folder in a worker process."""

    lookup: ParquetLookup
    names: tuple[str, ...]

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        dataset = self.lookup.dataset()
        try:
            return found_rows(dataset, keys, self.names, self.lookup.table_columns)
        except (OSError, ValueError) as problem:
            raise unavailable(self.lookup.path, problem) from None

    def close(self) -> None:
        """Do nothing: every request lists the files."""
