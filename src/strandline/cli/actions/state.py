"""`strandline state`: what a job keeps, as tables."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl
from rich.table import Table
from rich.text import Text

from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.terminal import printable, safe_console, say
from strandline.errors import SetupError, StateError
from strandline.plan.upgrade.definitions import read_definition
from strandline.savepoints.state_reader import JobState
from strandline.savepoints.state_tables import Retention, chosen, key_groups_of, retention_of, tables_of

DONE: Final = 0
_LONGEST: Final = 60
_MOST: Final = 1_000
"""So many rows are shown on a terminal."""


def run_show(
    folder: Path, *, step: int | None, key: str | None, window: str | None, batch: int | None, as_json: bool
) -> int:
    """How much is kept where; or the windows of a key, or over an instant."""
    at = None if window is None else _instant(window)
    state, kept = _read(folder, batch)
    _require_step(state, step)
    steps = state.steps if step is None else (step,)
    if key is None and at is None:
        _show_groups(state, steps, kept, as_json=as_json)
        return DONE
    tables, keys = tables_of(state), _keys(folder)
    found = {f"step_{number}": chosen(tables[f"step_{number}"], key, at, keys.get(number))
             for number in steps if f"step_{number}" in tables}  # fmt: skip
    if as_json:
        print(json.dumps({"batch": state.batch, **{name: _plain(frame) for name, frame in found.items()}}, indent=2))
        return DONE
    for name, frame in found.items():
        say(f"{name}, at the end of batch {state.batch}:")
        print_frame(frame)
    return DONE


def run_sql(folder: Path, query: str, *, batch: int | None, as_json: bool) -> int:
    """Asks DuckDB, with every table of the state at hand."""
    ask = _duckdb()
    found = ask(tables_of(_read(folder, batch)[0]), query)
    if as_json:
        print(json.dumps(_plain(found), indent=2))
    else:
        print_frame(found)
    return DONE


def _keys(folder: Path) -> dict[int, tuple[str, ...]]:
    """Return the key columns of each keyed step."""
    definition = read_definition(Checkpoint(folder.absolute()).identity.definition)
    return {number: tuple(step["keys"]) for number, step in enumerate(definition.steps)}


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise SetupError("DuckDB is not installed", hint="pip install 'strandline[duckdb]'") from None

    def ask(tables: dict[str, pl.DataFrame], query: str) -> pl.DataFrame:
        with duckdb.connect() as connection:
            for name, frame in tables.items():
                connection.register(name, frame.to_arrow())
            try:
                connection.execute("SET TimeZone = 'UTC'")
                return _frame(connection.sql(query))
            except duckdb.Error as problem:
                raise StateError(
                    "DuckDB does not take this query",
                    detail=str(problem).partition("\n")[0],
                    hint=f"tables: {', '.join(tables)}",
                ) from None

    return ask


def _frame(answer: Any) -> pl.DataFrame:
    """What a query found; nothing, of a statement that finds nothing."""
    if answer is None:
        return pl.DataFrame()
    frame = pl.from_arrow(answer.to_arrow_table())
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def _read(folder: Path, batch: int | None) -> tuple[JobState, list[Retention]]:
    from strandline.savepoints.state_reader import read_state

    home = Checkpoint(folder.absolute())
    kept = retention_of(home.identity.stages)
    with _spark() as spark:
        return read_state(spark, home, batch), kept


@contextmanager
def _spark() -> Iterator[Any]:
    """The session that is there, or one for as long as it takes."""
    from pyspark.sql import SparkSession

    from strandline.spark.launch.preflight import require_machine
    from strandline.spark.launch.session import start_session

    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="strandline-state-") as place:
        require_machine(Path(place))
        session = start_session("strandline state", log=Path(place) / "spark.log")
        try:
            yield session
        finally:
            session.stop()


def _require_step(state: JobState, step: int | None) -> None:
    if step is not None and step not in state.steps:
        known = ", ".join(map(str, state.steps)) or "none"
        raise SetupError(f"no keyed step {step} keeps anything", hint=f"the steps that do: {known}")


def _show_groups(state: JobState, steps: tuple[int, ...], kept: list[Retention], *, as_json: bool) -> None:
    groups = key_groups_of(state).filter(pl.col("step").is_in(steps))
    words = {each.step: each.words for each in kept}
    if as_json:
        told = [{"step": number, "keeps": words.get(number, ""), **_sums(groups, number),
                 "key_groups": _plain(groups.filter(pl.col("step") == number).drop("step"))}
                for number in steps]  # fmt: skip
        print(json.dumps({"batch": state.batch, "steps": told}, indent=2))
        return
    say(f"at the end of batch {state.batch}:")
    for number in steps:
        sums = _sums(groups, number)
        say(f"keyed {number}: {sums['rows']} rows, {sums['bytes']} bytes, oldest {sums['oldest'] or 'none'}")
        if number in words:
            say(f"  {words[number]}")
        print_frame(groups.filter(pl.col("step") == number).drop("step"))
    if not steps:
        say("nothing is kept")


def _sums(groups: pl.DataFrame, step: int) -> dict[str, Any]:
    mine = groups.filter(pl.col("step") == step)
    oldest = mine["oldest"].min()
    return {
        "rows": int(mine["rows"].sum()),
        "bytes": int(mine["bytes"].sum()),
        "oldest": None if oldest is None else _cell(oldest),
    }


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SetupError(f"{text!r} is no instant", hint="write it like 2024-05-01T12:00:00Z") from None
    return at.replace(tzinfo=at.tzinfo or UTC)


def print_frame(frame: pl.DataFrame) -> None:
    """Rows as a table on a terminal, as aligned lines elsewhere."""
    if not frame.width:
        return
    rows = [[_cell(value) for value in row] for row in frame.head(_MOST).iter_rows()]
    console = safe_console(soft_wrap=True)
    if console.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in frame:
            table.add_column(Text(_cell(column.name)), justify="right" if column.dtype.is_numeric() else "left")
        for row in rows:
            table.add_row(*(Text(each) for each in row))
        console.print(table)
    else:
        names = [_cell(name) for name in frame.columns]
        widths = [max(len(row[at]) for row in [names, *rows]) for at in range(len(names))]
        for row in [names, *rows]:
            say("  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip())
    if frame.height > _MOST:
        say(f"{frame.height - _MOST} more rows")


def _cell(value: Any) -> str:
    """A value for a terminal: no sign in it can move the cursor or change a colour."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    text = "" if value is None else value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _plain(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [{name: _json(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else _cell(value)
