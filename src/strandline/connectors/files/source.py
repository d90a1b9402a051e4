"""Read a folder as a source. Spark lists it, keeps the listed files beside its offsets, and reads each file once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from strandline.connectors.files.line_files import can_read_lines, line_pieces, read_line_pieces, read_lines
from strandline.connectors.files.lines import Header, Lines
from strandline.connectors.files.listing import Waiting, is_undecodable, modified, refuse_gone, waiting
from strandline.connectors.files.parquet_splits import Piece, pieces_of, read_files, read_pieces, readable
from strandline.errors import InvalidStep, SetupError
from strandline.formats.csv import Csv
from strandline.formats.debezium import Debezium
from strandline.formats.json.codec import Json
from strandline.formats.text import Raw, Text
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.model.arguments import checked
from strandline.model.ddl import parse, require_spark_types
from strandline.ports.codecs import Decoder
from strandline.ports.raw_records import FILE_NAME, RAW_SCHEMA, RECORD, SPLIT
from strandline.ports.sources import ListedFile

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "orc")
"""Formats with column types: Spark's columns are used as they are, without decoding."""
LINES: Final = (Json, Csv, Text, Raw, Debezium)
"""Formats with one record per line."""
FIELDS: Final = {"path": "string", "modified": "timestamp", "size": "long"}
"""Metadata fields of a record's file."""
_IN_SPARK: Final = {
    "path": "_metadata.file_path",
    "modified": "_metadata.file_modification_time",
    "size": "_metadata.file_size",
}
_OF_ANY_FILE: Final = "path string, modificationTime timestamp, length long, content binary"
_ANY_AGE: Final = "100000d"
"""Without this, Spark silently skips files that are a week older than the newest."""


@dataclass(frozen=True, slots=True)
class Files:
    """Folder source: the decoder or columns of its records, and how many files per batch."""

    path: str
    columns: str | Decoder
    format: str = "parquet"
    files_per_batch: int | None = None
    pattern: str | None = None
    header: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    goes_on_after_loss: bool = False
    ends: bool = False
    """Whether the source is bounded to the files that exist when a job starts."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            require_spark_types(parse(self.columns))
        elif not isinstance(self.columns, LINES) or getattr(self.columns, "registry", None) is not None:
            raise InvalidStep(
                f"{type(self.columns).__name__} cannot decode lines",
                hint="use json, csv, text, raw or debezium, without a registry",
            )
        if self.format not in FORMATS:
            raise InvalidStep(
                f"unknown file format {self.format!r}",
                hint=f'choose one of {", ".join(FORMATS)}, or use a line format: files("in/", json("…"))',
            )
        if self.header and not isinstance(self.columns, Csv):
            raise InvalidStep("only CSV files have a header", hint="leave header out")
        own = parse(self.columns) if isinstance(self.columns, str) else self.columns.types
        for name, field in self.metadata:
            if field not in FIELDS:
                raise InvalidStep(
                    f"unknown metadata field {field!r} for {name!r}", hint=f"choose from {', '.join(FIELDS)}"
                )
            if name in own:
                raise InvalidStep(
                    f"the column {name!r} is already in the records", hint="give the metadata another name"
                )
            if name in RAW_SCHEMA.names and not isinstance(self.columns, str):
                raise InvalidStep(
                    f"the column name {name!r} is reserved for the record's position",
                    hint="give the metadata another name",
                )
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise InvalidStep(f"files_per_batch is {self.files_per_batch}", hint="use 1 or more, or leave it out")

    @property
    def name(self) -> str:
        return f"files({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same source to a checkpoint; the read speed is left out."""
        form = self.format if isinstance(self.columns, str) else ""
        return {
            "path": self.path,
            "columns": self.columns,
            "format": form,
            "pattern": self.pattern,
            "header": self.header,
            "metadata": self.metadata,
            **({"ends": True} if self.ends else {}),
        }

    @property
    def partitions(self) -> tuple[str, ...]:
        """One partition for the whole folder: a file is read at once, so its later silence means nothing."""
        return ("",)

    @property
    def types(self) -> dict[str, str]:
        own = parse(self.columns) if isinstance(self.columns, str) else dict(self.columns.types)
        return {**own, **{name: FIELDS[field] for name, field in self.metadata}}

    @property
    def decoder(self) -> Lines | None:
        if isinstance(self.columns, str):
            return None
        header = None
        if self.header and isinstance(self.columns, Csv):
            header = Header(self.columns.columns, self.columns.delimiter)
        return Lines(self.columns, header, blank=not isinstance(self.columns, Json | Csv))

    def extent(self, spark: "SparkSession") -> list[list[Any]]:
        """List the existing files with their modification times."""
        found = [(uri, modified(uri, spark)) for uri in sorted(self._loaded(spark.read, [self.path]).inputFiles())]
        self.refuse_gone([ListedFile(uri, 0) for uri, _ in found if is_undecodable(uri)], (), spark)
        return [[uri, at] for uri, at in found if at is not None]

    def within(self, extent: Any) -> "Files":  # noqa: ARG002 - a stream lists its folder itself
        return self

    def table(self, extent: list[list[Any]], spark: "SparkSession") -> "DataFrame | None":
        """Read these files as a batch."""
        if not extent:
            return None
        # Names are taken literally, without glob characters.
        reader = spark.read.option("__globPaths__", "false")
        if not any(sign in self.path for sign in "*?[{"):
            # Partition columns are found below this path.
            reader = reader.option("basePath", self.path)
        frame = self._loaded(reader, [unquote(uri) for uri, _ in extent])
        return self._typed(frame) if isinstance(self.columns, str) else self._lines(frame)

    def pieces(self, extent: list[list[Any]]) -> list[list[Piece]] | None:
        """Divide local files among tasks that read them in Python."""
        uris = [uri for uri, _ in extent]
        if self.metadata:
            return None
        if not isinstance(self.columns, str):
            # A header is known only to the task that reads the file's first line.
            return line_pieces(self.path, uris, divisible=not self.header)
        return pieces_of(self.path, self.columns, uris) if self.format == "parquet" else None

    def reader(self, extent: Any) -> Callable[[list[Piece]], "pl.DataFrame"]:  # noqa: ARG002 - pieces contain everything
        return partial(read_pieces, columns=self.columns) if isinstance(self.columns, str) else read_line_pieces

    def refuse_changed(self, extent: list[list[Any]], spark: "SparkSession") -> None:
        """Raise an error if a listed file changed."""
        self.refuse_gone([ListedFile(uri, at) for uri, at in extent], (), spark)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        frame = self._loaded(self._following(spark), self.path)
        return self._typed(frame) if isinstance(self.columns, str) else self._lines(frame)

    @property
    def is_plain(self) -> bool:
        """Whether Python can read the files: plain local Parquet files, or line files."""
        if self.metadata:
            return False
        if not isinstance(self.columns, str):
            return can_read_lines(self.path, self.pattern)
        return self.format == "parquet" and readable(self.path, self.columns) is not None

    def names(self, spark: "SparkSession") -> "DataFrame":
        """Spark's own list of files, which is the same for every format."""
        # None of its columns is selected, so that no file is opened.
        listed = self._loaded(self._following(spark), self.path, "binaryFile", _OF_ANY_FILE)
        return listed.selectExpr(f"_metadata.file_path as `{FILE_NAME}`")

    def by_name(self) -> "Callable[[Sequence[str]], Iterator[pl.DataFrame]]":
        return partial(read_files, columns=self.columns) if isinstance(self.columns, str) else read_lines

    def _following(self, spark: "SparkSession") -> Any:
        reader = spark.readStream.option("maxFileAge", _ANY_AGE)
        return reader if self.files_per_batch is None else reader.option("maxFilesPerTrigger", self.files_per_batch)

    def _loaded(
        self, reader: Any, where: str | list[str], kind: str | None = None, schema: str | None = None
    ) -> "DataFrame":
        from pyspark.errors import AnalysisException

        if self.pattern is not None:
            reader = reader.option("pathGlobFilter", self.pattern)
        typed = isinstance(self.columns, str)
        kind, schema = kind or (self.format if typed else "text"), schema or (str(self.columns) if typed else None)
        try:
            found = reader.format(kind)
            return (found if schema is None else found.schema(schema)).load(where)  # type: ignore[no-any-return]
        except AnalysisException as problem:
            raise SetupError(
                f"cannot read the folder {self.path}",
                detail=str(problem).splitlines()[0],
                hint="create it first; it may be empty",
            ) from None

    def _lines(self, frame: "DataFrame") -> "DataFrame":
        place = ["_metadata.file_path as partition", "_metadata.file_block_start as offset"]
        record = ["cast(value as binary) as value", f"{RECORD} as mark"]
        # The flag also shows that the offset is a block's, from which its lines are counted.
        split = f"_metadata.file_block_length < _metadata.file_size as `{SPLIT}`"
        return frame.selectExpr(*place, *record, *self._extra(), split)

    def _typed(self, frame: "DataFrame") -> "DataFrame":
        place = [f"_metadata.file_path as `{PARTITION}`", f"_metadata.row_index as `{OFFSET}`"]
        return frame.selectExpr("*", *self._extra(), *(place if self.format == "parquet" else []))

    def _extra(self) -> list[str]:
        return [f"{_IN_SPARK[field]} as `{name}`" for name, field in self.metadata]

    def refuse_gone(self, given: Sequence[ListedFile], read: Sequence[ListedFile], spark: "SparkSession") -> None:
        """Before a batch commits, check that its files are unchanged, and that earlier ones got no more lines."""
        refuse_gone(self.name, given, read, spark, goes_on=self.goes_on_after_loss)

    def waiting(self, listed: frozenset[str], spark: "SparkSession") -> Waiting:
        """The backlog: files that exist and are not yet listed."""
        return waiting(self.path, self.pattern, listed, spark)


@checked
def files(  # noqa: PLR0913 - one option each
    path: str | Path,
    columns: str | Decoder,
    *,
    format: str = "parquet",  # noqa: A002 - Spark's term
    files_per_batch: int | None = None,
    pattern: str | None = None,
    header: bool = False,
    metadata: Mapping[str, str] | None = None,
    on_lost: str = "stop",
    ends: bool = False,
) -> Files:
    """Read the files of a folder: `files("orders/", json("id long, at timestamp"))`, `files("plays/", "team string")`.

    Lines are read by a format, `json`, `csv`, `text`, `raw` or `debezium`; with columns alone the files are Parquet, or
    ORC by `format`. New files are read as they arrive, `files_per_batch` at a time, if their name matches a `pattern`;
    names that start with _ or . are skipped. `header` means that each CSV file begins with its column names. `metadata`
    makes columns of a file's metadata: `{"file": "path"}`. A file that vanishes or changes after it was listed stops
    the job, unless `on_lost="continue"`. With `ends` the source is bounded to the files that exist when a job starts:
    the job ends by itself, with every window closed.
    """
    if on_lost not in ("stop", "continue"):
        raise InvalidStep(f"unknown on_lost {on_lost!r}", hint="choose stop or continue")
    extra = tuple((metadata or {}).items())
    return Files(str(path), columns, format, files_per_batch, pattern, header, extra, on_lost == "continue", ends)
