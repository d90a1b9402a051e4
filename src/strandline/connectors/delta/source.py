"""Read one version of a Delta Lake table as a bounded source."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from strandline.connectors.delta.table import delta_library
from strandline.errors import InvalidStep, LostRecords, SetupError
from strandline.formats.secrets import Secret
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.blocks.column_types import to_arrow, to_polars
from strandline.model.arguments import checked
from strandline.model.ddl import parse, require_spark_types
from strandline.ports.register_data_source import registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_TASK: Final = 1_000_000
"""Small files are grouped into tasks of at most this many rows; a task has its rows in memory as a whole."""
FILES_PER_BATCH: Final = 64

_FORMAT: Final = "strandline_delta_table"
_PLACE: Final = ((PARTITION, pa.string()), (OFFSET, pa.int64()))
_TABLE: Final = "secret_table"


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """A Delta table, the columns to read, and the version; the newest one at the job's start if None."""

    path: str
    columns: str
    version: int | None = None
    files_per_batch: int = FILES_PER_BATCH
    options: tuple[tuple[str, str | Secret], ...] = ()

    def __post_init__(self) -> None:
        require_spark_types(parse(self.columns))
        if self.files_per_batch < 1:
            raise InvalidStep(f"files_per_batch is {self.files_per_batch}", hint="use 1 or more, or leave it out")

    @property
    def name(self) -> str:
        return f"delta_table({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same source to a checkpoint; storage options and read speed are left out."""
        return {"path": self.path, "columns": self.columns, "version": self.version}

    @property
    def partitions(self) -> tuple[str, ...]:
        """One partition for the whole table: a file is read at once, so its later silence means nothing."""
        return ("",)

    @property
    def types(self) -> dict[str, str]:
        return parse(self.columns)

    @property
    def decoder(self) -> None:
        return None

    @property
    def ends(self) -> bool:
        return True

    def extent(self, spark: "SparkSession") -> int:  # noqa: ARG002 - asks the table, not Spark
        """The number of the version to read."""
        table = open_table(self.path, self.version, self._options())
        _refuse_missing_columns(table, self)
        return int(table.version())

    def identities(self) -> Mapping[str, str | None]:
        """Return the table's id."""
        return {self.name: str(open_table(self.path, None, self._options()).metadata().id)}

    def within(self, extent: int) -> "DeltaRows":
        return replace(self, version=extent)

    def table(self, extent: int, spark: "SparkSession") -> "DataFrame":
        return self.within(extent)._loaded(spark, spark.read)  # noqa: SLF001 - same class

    def stream(self, spark: "SparkSession") -> "DataFrame":
        return self._loaded(spark, spark.readStream)

    def pieces(self, extent: int) -> "list[tuple[int, ...]]":
        """Group files into tasks, by their positions in the list of all."""
        reading = self._reading(extent)
        return [task.places for task in reading.tasks(0, len(reading.fragments()))]

    def reader(self, extent: int) -> "Callable[[Sequence[int]], pl.DataFrame]":
        return partial(_rows_of, self._reading(extent))

    def _reading(self, extent: int) -> "TableVersion":
        return TableVersion(self.path, extent, self._options(), self.columns)

    def refuse_changed(self, extent: int, spark: "SparkSession") -> None:
        """Do nothing: a version does not change, and reading a vacuumed file raises an error."""

    def _loaded(self, spark: "SparkSession", reader: Any) -> "DataFrame":
        columns = ", ".join(f"`{name}` {kind}" for name, kind in self.types.items())
        settings = {"path": self.path, "version": self.version, "options": self._options(), "columns": self.columns}
        made = reader.format(registered(spark, DeltaRowsSource)).schema(
            f"{columns}, `{PARTITION}` string, `{OFFSET}` long"
        )
        # Spark shows options in query plans, but redacts names like this one.
        return made.option(_TABLE, json.dumps(settings)).option("files", str(self.files_per_batch)).load()  # type: ignore[no-any-return]

    def _options(self) -> dict[str, str]:
        return {name: each if isinstance(each, str) else each.reveal() for name, each in self.options}


@checked
def delta_table(
    path: str | Path,
    columns: str,
    *,
    version: int | None = None,
    files_per_batch: int = FILES_PER_BATCH,
    options: Mapping[str, str | Secret] | None = None,
) -> DeltaRows:
    """Read the rows of a Delta Lake table: `delta_table("lake/orders", "id long, at timestamp")`.

    The job reads one `version`, by default the newest at its start, and then ends. `options` are storage options, as
    those of `delta`.
    """
    return DeltaRows(str(path).rstrip("/"), columns, version, files_per_batch, tuple((options or {}).items()))


def open_table(path: str, version: int | None, options: Mapping[str, str]) -> Any:
    """Open the table at a version."""
    library = delta_library()
    try:
        return library.DeltaTable(path, version=version, storage_options=dict(options) or None)
    except (library.exceptions.DeltaError, OSError, ValueError) as problem:
        detail = str(problem).partition("\n")[0][:300]
        raise SetupError(
            f"there is no Delta Lake table at {path}" + ("" if version is None else f" with version {version}"),
            detail=detail,
            hint="check the path and the version; a version whose log was cleaned up cannot be read",
        ) from None


def _refuse_missing_columns(table: Any, source: DeltaRows) -> None:
    known = [field.name for field in table.schema().fields]
    missing = [name for name in source.types if name not in known]
    if missing:
        raise InvalidStep(
            f"the table {source.path} has no column {missing[0]!r}", detail=f"the table has {', '.join(known)}"
        )


@dataclass(frozen=True, slots=True)
class FileGroup(InputPartition):
    """Some files of a table, by their positions in the list of all."""

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table as a stable list of files."""

    path: str
    version: int
    options: Mapping[str, str]
    columns: str

    def fragments(self) -> list[Any]:
        dataset = open_table(self.path, self.version, self.options).to_pyarrow_dataset()
        return sorted(dataset.get_fragments(), key=lambda each: str(each.path))

    def tasks(self, first: int, last: int) -> list[FileGroup]:
        """Group files into tasks in their order."""
        found: list[list[int]] = []
        rows = ROWS_PER_TASK
        for place, fragment in enumerate(self.fragments()[first:last], first):
            count = fragment.count_rows()
            if rows + count > ROWS_PER_TASK:
                found.append([])
                rows = 0
            found[-1].append(place)
            rows += count
        return [FileGroup(tuple(places)) for places in found]

    def read(self, places: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Read rows of files with these columns, and with their file and row number."""
        schema = open_table(self.path, self.version, self.options).to_pyarrow_dataset().schema
        fragments = self.fragments()
        for place in places:
            fragment, row = fragments[place], 0
            for batch in _batches(fragment, schema, list(parse(self.columns))):
                if batch.num_rows:
                    yield _to_row_batch(batch, self.columns, str(fragment.path), row)
                row += batch.num_rows


def _rows_of(reading: TableVersion, places: Sequence[int]) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(pa.Table.from_batches(reading.read(places))))


def _batches(fragment: Any, schema: pa.Schema, names: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        yield from fragment.to_batches(schema=schema, columns=names)
    except FileNotFoundError as problem:
        raise LostRecords(
            f"the file {fragment.path} of the table was deleted",
            detail=str(problem).partition("\n")[0],
            hint="it was vacuumed: read a newer version, or keep deleted files longer than a read takes",
        ) from None


def _to_row_batch(batch: pa.RecordBatch, columns: str, file: str, first: int) -> pa.RecordBatch:
    frame = cast("pl.DataFrame", pl.from_arrow(batch))
    kinds = {name: to_polars(kind) for name, kind in parse(columns).items()}
    shaped = frame.select(
        *(pl.col(name).cast(kind) for name, kind in kinds.items()),
        pl.lit(file).alias(PARTITION),
        pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(OFFSET),
    )
    arrow = pa.schema([*((name, to_arrow(kind)) for name, kind in parse(columns).items()), *_PLACE])
    return shaped.to_arrow().cast(arrow).combine_chunks().to_batches()[0]


class DeltaBatchReader(DataSourceReader):
    """Reads all files of a version."""

    def __init__(self, reading: TableVersion) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        return self._reading.tasks(0, len(self._reading.fragments()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(cast("FileGroup", partition).places)


class DeltaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the files of a version in their order, some in each batch."""

    def __init__(self, reading: TableVersion, files: int) -> None:
        self._reading, self._files = reading, files

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Do nothing: a version does not grow."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"file": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        return {"file": min(start["file"] + self._files, len(self._reading.fragments()))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._reading.tasks(start["file"], end["file"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(cast("FileGroup", partition).places)


class DeltaRowsSource(DataSource):
    """The Spark data source of a Delta table."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def reader(self, schema: StructType) -> DeltaBatchReader:  # noqa: ARG002
        return DeltaBatchReader(self._reading())

    def streamReader(self, schema: StructType) -> DeltaStreamReader:  # noqa: ARG002, N802 - Spark's name
        return DeltaStreamReader(self._reading(), int(self.options["files"]))

    def _reading(self) -> TableVersion:
        return TableVersion(**json.loads(self.options[_TABLE]))
