"""Sample files without Spark: the newest rows of a folder, or the last rows of one file."""

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
from strandline.execution.row_decoding import Arrived, of_columns, of_records
from strandline.model.ddl import parse
from strandline.ports.raw_records import RECORD

_KINDS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
}  # fmt: skip
_OPEN: Final[dict[str, Callable[[Path], pl.LazyFrame]]] = {
    "parquet": pl.scan_parquet,
    "json": lambda path: pl.scan_ndjson(path, infer_schema_length=1_000, ignore_errors=True),
    "csv": lambda path: pl.scan_csv(path, try_parse_dates=True, ignore_errors=True, infer_schema_length=1_000),
}


def sample_of_files(path: Path, columns: Columns, most: int) -> Sample:
    """Return the last rows; files are read in reverse order of their names."""
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
    notes = () if read == len(found) else (f"{read} of {len(found)} files were read, the last by name",)
    arrival = f"the column {columns.arrival!r}" if columns.arrival is not None else ""
    return sample_of(frame, columns, Origin(str(path), _source(path, kind, frame, columns), arrival, notes, kind))


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
    """Skip files whose names begin with a dot or an underscore: writers' metadata."""
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def _rows(file: Path, kind: str, most: int) -> pl.DataFrame:
    try:
        return _OPEN[kind](file).tail(most).collect()
    except (pl.exceptions.PolarsError, OSError) as problem:
        reason = str(problem).partition("\n")[0]
        raise InvalidStep(f"{file} cannot be read as {kind}", detail=reason) from None


def _source(path: Path, kind: str, frame: pl.DataFrame, columns: Columns) -> str:
    """Return the code with which a pipeline reads the same files."""
    ddl = json.dumps(ddl_of(frame, columns, keep_types=kind == "parquet"))
    folder = json.dumps(str(path if path.is_dir() else path.parent))
    only = "" if path.is_dir() else f", pattern={json.dumps(path.name)}"
    match kind:
        case "parquet":
            return f"sl.files({folder}, {ddl}{only})"
        case "json":
            return f"sl.files({folder}, sl.json({ddl}){only})"
        case _:
            return f"sl.files({folder}, sl.csv({ddl}), header=True{only})"


def ddl_of(frame: pl.DataFrame, columns: Columns, *, keep_types: bool = False) -> str:
    """Return the key and time columns as DDL; a text time column becomes a timestamp unless types are kept."""
    wanted = [name for name in dict.fromkeys([*columns.keys, columns.time]) if name in frame.columns]
    return ", ".join(
        f"{name if name.isidentifier() else f'`{name}`'} "
        f"{_type(frame.schema[name], is_time=name == columns.time and not keep_types)}"
        for name in wanted
    )


def _type(kind: pl.DataType, *, is_time: bool) -> str:
    if isinstance(kind, pl.Datetime) or (is_time and kind == pl.String):
        return "timestamp"
    if kind.is_integer():
        return "long"
    if kind.is_float():
        return "double"
    return "boolean" if kind == pl.Boolean else "date" if kind == pl.Date else "string"


def tail_of_files(source: Files, most: int) -> tuple[Arrived, tuple[str, ...]]:
    """Return the last rows of a pipeline's files, read with its own format, and notes about them."""
    if "://" in source.path.removeprefix("file://") or source.format != "parquet" or source.metadata:
        raise InvalidStep(
            f"{source.name} cannot be sampled",
            detail="only local folders of Parquet or lines are supported here, without file metadata columns",
            hint="copy some of the data to a folder, and give that to advise",
        )
    path = Path(source.path.removeprefix("file://"))
    found = [each for each in _all(path) if source.pattern is None or fnmatch(each.name, source.pattern)]
    if not found:
        raise InvalidStep(f"there is no file in {source.name}", hint="sample it once there is data")
    frames: list[pl.DataFrame] = []
    left = most
    for file in reversed(found):
        frames.insert(0, _as_read(file, source, left))
        left -= frames[0].height
        if left <= 0:
            break
    read = len(frames)
    notes = () if read == len(found) else (f"{read} of {len(found)} files were read, the last by name",)
    whole = pl.concat(frames, how="vertical_relaxed")
    if source.decoder is None:
        return of_columns(whole, 0, 0), notes
    return of_records(whole, source.decoder), notes


def _as_read(file: Path, source: Files, most: int) -> pl.DataFrame:
    """Read the last rows of a file, or its last lines with their numbers, and its first line if that is a header."""
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
