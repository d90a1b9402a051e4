"""A bounded sample of files: the newest rows of a folder, or the last of one file, read without Spark."""

import json
from collections import deque
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import polars as pl

from strandline.advise.sample import Columns, Origin, Sample, sample_of
from strandline.connectors.files.source import Files
from strandline.errors import InvalidStep
from strandline.model.ddl import parse
from strandline.ports.raw_records import RECORD
from strandline.spark.tasks.row_decoding import Arrived, of_columns, of_records

_KINDS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
}  # fmt: skip
_OPEN: Final[dict[str, Callable[[Path], pl.LazyFrame]]] = {
    "parquet": pl.scan_parquet,
    "json": lambda path: pl.scan_ndjson(path, infer_schema_length=1_000, ignore_errors=True),
    "csv": lambda path: pl.scan_csv(path, try_parse_dates=True, ignore_errors=True, infer_schema_length=1_000),
}


def sample_of_files(path: Path, columns: Columns, most: int) -> Sample:
    """The last rows of what lies there; files are taken in the order of their names, the last of them first."""
    found = _files(path)
    kind = _KINDS[found[0].suffix.lower()]
    frames: list[pl.DataFrame] = []
    left, read = most, 0
    for file in reversed([each for each in found if _KINDS[each.suffix.lower()] == kind]):
        frames.insert(0, _rows(file, kind, left))
        read += 1
        left -= frames[0].height
        if left <= 0:
            break
    frame = pl.concat(frames, how="diagonal_relaxed")
    notes = () if read == len(found) else (f"{read} of {len(found)} files were read, those with the last names",)
    whose = f"the column {columns.arrival!r}" if columns.arrival is not None else ""
    return sample_of(frame, columns, Origin(str(path), _source(path, kind, frame, columns), whose, notes, kind))


def _files(path: Path) -> list[Path]:
    known = [each for each in _all(path) if each.suffix.lower() in _KINDS]
    if not known:
        raise InvalidStep(
            f"no file at {path} can be read",
            detail=f"looked for {', '.join(sorted(_KINDS))}",
            hint="name a folder of Parquet, JSON lines or CSV",
        )
    return known


def _all(path: Path) -> list[Path]:
    if not path.exists():
        raise InvalidStep(
            f"there is nothing at {path}",
            hint="name a file, a folder, a topic as kafka:TOPIC, a pipeline as job.py:NAME",
        )
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_data(each, path))


def _is_data(path: Path, root: Path) -> bool:
    """What writers leave beside the data begins with a dot or an underscore."""
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def _rows(file: Path, kind: str, most: int) -> pl.DataFrame:
    try:
        return _OPEN[kind](file).tail(most).collect()
    except (pl.exceptions.PolarsError, OSError) as problem:
        reason = str(problem).partition("\n")[0]
        raise InvalidStep(f"{file} cannot be read as {kind}", detail=reason) from None


def _source(path: Path, kind: str, frame: pl.DataFrame, columns: Columns) -> str:
    """How a pipeline reads the same files."""
    said = json.dumps(ddl_of(frame, columns, as_they_are=kind == "parquet"))
    folder = json.dumps(str(path if path.is_dir() else path.parent))
    only = "" if path.is_dir() else f", pattern={json.dumps(path.name)}"
    match kind:
        case "parquet":
            return f"sl.files({folder}, {said}{only})"
        case "json":
            return f"sl.files({folder}, sl.json({said}){only})"
        case _:
            return f"sl.files({folder}, sl.csv({said}), header=True{only})"


def ddl_of(frame: pl.DataFrame, columns: Columns, *, as_they_are: bool = False) -> str:
    """The columns that matter here as DDL; texts that are times as times, unless columns are read as they are."""
    wanted = [name for name in dict.fromkeys([*columns.keys, columns.time]) if name in frame.columns]
    return ", ".join(
        f"{name if name.isidentifier() else f'`{name}`'} "
        f"{_type(frame.schema[name], told=name == columns.time and not as_they_are)}"
        for name in wanted
    )


def _type(kind: pl.DataType, *, told: bool) -> str:
    if isinstance(kind, pl.Datetime) or (told and kind == pl.String):
        return "timestamp"
    if kind.is_integer():
        return "long"
    if kind.is_float():
        return "double"
    return "boolean" if kind == pl.Boolean else "date" if kind == pl.Date else "string"


def tail_of_files(source: Files, most: int) -> tuple[Arrived, tuple[str, ...]]:
    """The last rows of the files that a pipeline reads, as it reads them; and what is to be said of them."""
    if "://" in source.path.removeprefix("file://") or source.format != "parquet" or source.metadata:
        raise InvalidStep(
            f"{source.name} cannot be sampled",
            detail="only Parquet and lines in folders of this machine are read here, without columns about the files",
            hint="give advise a folder with some of it",
        )
    path = Path(source.path.removeprefix("file://"))
    found = [each for each in _all(path) if source.pattern is None or fnmatch(each.name, source.pattern)]
    if not found:
        raise InvalidStep(f"there is not a file in {source.name}", hint="sample it once something has come")
    frames: list[pl.DataFrame] = []
    left = most
    for file in reversed(found):
        frames.insert(0, _as_read(file, source, left))
        left -= frames[0].height
        if left <= 0:
            break
    read = len(frames)
    notes = () if read == len(found) else (f"{read} of {len(found)} files were read, those with the last names",)
    whole = pl.concat(frames, how="vertical_relaxed")
    if source.decoder is None:
        return of_columns(whole, 0, 0), notes
    return of_records(whole, source.decoder), notes


def _as_read(file: Path, source: Files, most: int) -> pl.DataFrame:
    """The last rows of a file, or its last lines with their numbers; the first line too if it is a header."""
    if isinstance(source.columns, str):
        return _rows(file, "parquet", most).select(*parse(source.columns))
    with file.open("rb") as lines:
        numbered = enumerate(line.rstrip(b"\r\n") for line in lines)
        head = [next(numbered)] if source.header and file.stat().st_size else []
        taken = [*head, *deque(numbered, maxlen=most)]
    return pl.DataFrame(
        [(str(file), number, RECORD, line) for number, line in taken],
        schema={"partition": pl.String, "offset": pl.Int64, "mark": pl.Int32, "value": pl.Binary},
        orient="row",
    )
