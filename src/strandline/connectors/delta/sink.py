"""Tables of Delta Lake as a sink: panes with the ledger in one, late elements and dead letters in two beside it.

A batch's commit names two transaction ids: the lineage with the number of the batch, and the driver with its epoch.
Its metadata holds the digest of the range, which is read and compared before anything counts as known. Delta has no
transaction over several tables: late elements and dead letters are committed first, each once, then the panes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from strandline.connectors.delta.dead_letters import DeltaLetters
from strandline.connectors.delta.table import BATCH, Act, DeltaLog, Overtaken, appended, delta_library, nothing
from strandline.connectors.delta.task_files import DeltaWriter, actions, added, storable
from strandline.connectors.delta.upserts import Merge
from strandline.errors import InvalidSecret, InvalidStep, SinkError, SinkUnavailable, StateError
from strandline.formats.row_files import kinds_of, laid_out
from strandline.formats.secrets import Secret
from strandline.formats.sink_columns import names_beside
from strandline.kernel.blocks.block import END, START
from strandline.kernel.latest_per_key import standing
from strandline.kernel.output import Output
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.file_stamps import label, show
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge
from strandline.ports.sinks import Stamp

Done = TypeVar("Done")

_ATTEMPTS: Final = 50
_TELLING: Final = ("secret", "key", "token", "password", "sas", "credential")


class Mode(StrEnum):
    """What becomes of a pane that corrects another: it is added beside it, or it takes its place."""

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Delta(Ledgered):
    """A table, what is asked of it, and how its store is reached. Secrets are references, looked up late."""

    path: str
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = ()
    evolve: bool = False
    options: tuple[tuple[str, str | Secret], ...] = field(default=())

    def __post_init__(self) -> None:
        for name, value in self.options:
            if isinstance(value, str) and any(word in name.lower() for word in _TELLING):
                raise InvalidSecret(f"the option {name} is given as text", hint='write sl.secret("env:NAME")')

    @property
    def name(self) -> str:
        return f"delta({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """What makes it the same to a checkpoint: not how its store is reached."""
        return {"path": self.path, "mode": self.mode, "key": self.key}

    def open(self, output: Deliver) -> "OpenDelta":
        if self.mode is Mode.UPSERT and not self.key and output.keys is None:
            raise InvalidStep(
                f"{self.name} writes elements by key, and is not told by which", hint='name the columns: key=["id"]'
            )
        return OpenDelta(self, output.keys)

    def letters(self) -> DeltaLetters:
        """The dead letters beside the table."""
        return DeltaLetters(f"{self.path}_dead", self.revealed())

    def revealed(self) -> dict[str, str]:
        """How the store is reached, with its secrets."""
        return {name: each if isinstance(each, str) else each.reveal() for name, each in self.options}


def delta(
    path: str | Path,
    *,
    mode: str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
    options: Mapping[str, str | Secret] | None = None,
) -> Delta:
    """Panes into a table of Delta Lake: `delta("lake/totals")`, `delta("s3://lake/totals", options={…})`.

    Every pane is added; or with `mode="upsert"`, or a `key`, the table holds the latest answers, corrections applied.
    Late elements and dead letters are in `<path>_late` and `<path>_dead`. `evolve` lets columns be added.
    """
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    try:
        chosen = Mode(mode or (Mode.UPSERT if columns else Mode.APPEND))
    except ValueError:
        raise InvalidStep(f"there is no mode {mode!r}", hint=f"choose one of {', '.join(Mode)}") from None
    if not str(path):
        raise InvalidStep("a table without a place", hint="give it one")
    if columns and chosen is Mode.APPEND:
        raise InvalidStep("rows that are added have no key", hint='leave out key, or write mode="upsert"')
    return Delta(str(path).rstrip("/"), chosen, columns, evolve, tuple((options or {}).items()))


class OpenDelta:
    """The tables at work."""

    def __init__(self, ask: Delta, keys: tuple[str, ...] | None) -> None:
        self._ask, self._keys = ask, keys
        self._options = ask.revealed()
        self._panes = DeltaLog(ask.path, self._options)
        self._beside: dict[str, DeltaLog] = {}

    def claim(self, lineage: str) -> int:
        def once() -> int:
            epoch = (self._panes.epoch(lineage) or 0) + 1
            mine = LedgerEntry(lineage, epoch, 0, "")
            self._panes.commit(nothing, mine, watermark=0, recorded=False)
            if self._panes.is_plain:
                with self._panes.explained():
                    show(Path(self._ask.path), lineage, epoch)
            return epoch

        return self._until_alone(self._panes, once)

    def latest(self, lineage: str) -> Recorded | None:
        self._panes.refresh()
        return self._panes.latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        done = self._until_alone(self._panes, lambda: self._judge(entry) or self._send(output, entry, recorded=True))
        crash_point("C10")
        return done

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        def once() -> Written:
            known = self._judge(entry)
            if known is None:
                self._panes.commit(nothing, entry, watermark=output.progress.watermark, recorded=True)
            return known or Written()

        return self._until_alone(self._panes, once)

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        def once() -> Written:
            epoch = self._panes.epoch(entry.lineage)
            judge(replace(entry, starts=None), epoch, None, None, sink=self._ask.name)
            return self._send(output, entry, recorded=False)

        done = self._until_alone(self._panes, once)
        crash_point("C10")
        return done

    def writer(self) -> DeltaWriter | None:
        plain = self._ask.mode is Mode.APPEND and self._panes.is_plain
        return DeltaWriter(str(Path(self._ask.path).absolute())) if plain else None

    def swept(self, stamp: Stamp) -> None:
        if self._panes.is_plain:
            for path in Path(self._ask.path).glob(f"part-{label(stamp)}-*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _judge(self, entry: LedgerEntry) -> Written | None:
        log = self._panes
        known = log.find(entry.lineage, entry.batch)
        return judge(entry, log.epoch(entry.lineage), known, log.latest(entry.lineage), sink=self._ask.name)

    def _send(self, output: Output, entry: LedgerEntry, *, recorded: bool) -> Written:
        for part, frame in (("late", output.late), ("dead", output.dead)):
            if frame is not None and frame.height:
                self._add_beside(part, laid_out(frame, entry.batch), entry, recorded=recorded)
        crash_point("C9")
        act: Act = nothing
        if output.parts:
            act = self._with_parts(output, entry)
        elif output.panes is not None and output.panes.height:
            act = self._act(output.panes, entry.batch)
        elif not recorded:
            return Written()
        self._panes.commit(act, entry, watermark=output.progress.watermark, recorded=recorded)
        return Written()

    def _act(self, panes: pl.DataFrame, batch: int) -> Act:
        rows = storable(laid_out(panes, batch))
        self._refuse_other(rows)
        if self._ask.mode is Mode.APPEND:
            return appended(rows, self._options)
        names = names_beside(panes.columns)
        window = (names[START], names[END]) if START in panes.columns else None
        key = self._ask.key or (*(self._keys or ()), *(window or ()))
        unknown = [name for name in key if name not in rows.columns]
        if unknown:
            raise SinkError(
                f"{self._ask.name} is to tell rows apart by {', '.join(unknown)}, which they do not have",
                detail=f"they have {', '.join(rows.columns)}",
                hint="name other columns",
            )
        own = {public: name for name, public in names.items() if name in panes.columns}
        stands = standing(panes, [own.get(name, name) for name in key])
        self._panes.widen(rows)
        return Merge(key, window).of(storable(laid_out(stands.rows, batch)), storable(laid_out(stands.gone, batch)))

    def _with_parts(self, output: Output, entry: LedgerEntry) -> Act:
        """The files of tasks in one commit, and beside them one with what came to the driver."""
        told = [part.told for part in output.parts]
        for each in told:
            path = Path(self._ask.path) / each["file"]["path"]
            if not path.exists() or path.stat().st_size != each["file"]["size"]:
                raise SinkError(
                    f"a task has written {path}, which is not there or not whole as seen from the driver",
                    hint="write to a folder that all machines of the cluster share",
                )
        if output.panes is not None and output.panes.height:
            name = label(Stamp(entry.lineage, entry.epoch, entry.batch))
            with self._panes.explained():
                told.append(added(Path(self._ask.path), name, storable(laid_out(output.panes, entry.batch))))
        for each in told:
            rows = pl.DataFrame(schema=kinds_of(each["columns"]))
            self._refuse_other(rows)
            self._panes.widen(rows)

        def act(table: Any, properties: Any) -> None:
            files = actions(delta_library(), tuple(told))
            table.create_write_transaction(files, "append", table.schema(), commit_properties=properties)

        return act

    def _refuse_other(self, rows: pl.DataFrame) -> None:
        """Columns keep their types; new ones are added where that is allowed, or the table is as it was made."""
        known = self._panes.columns()
        wrong = [
            f"{name} is {known[name]}, and {kind} is to be written"
            for name, kind in rows.schema.items()
            if name in known and known[name] != kind
        ]
        new = [name for name in rows.columns if name not in known]
        absent = [] if self._ask.evolve or [*known] == [BATCH] else new
        if wrong or absent:
            told = [*wrong, *(f"{name} is missing, and {rows.schema[name]} is to be written" for name in absent)]
            raise SinkError(
                f"the table {self._ask.path} does not fit what is to be written",
                detail="; ".join(told),
                hint="write to another table" + ("" if wrong else "; or let columns be added: evolve=True"),
            )

    def _add_beside(self, part: str, rows: pl.DataFrame, entry: LedgerEntry, *, recorded: bool) -> None:
        """Late elements or dead letters, which have a table of their own, made when there are any."""
        if part not in self._beside:
            self._beside[part] = DeltaLog(f"{self._ask.path}_{part}", self._options)
        log = self._beside[part]

        def once() -> None:
            known = log.find(entry.lineage, entry.batch) if recorded else None
            if known is None:
                act = appended(storable(rows), self._options)
                log.commit(act, entry, watermark=0, recorded=recorded)
            elif known.digest != entry.digest:
                raise StateError(
                    f"batch {entry.batch} is already in {log.uri}, made from another range of the source",
                    hint="restore the checkpoint and the tables from the same moment, or write to a new table",
                )

        self._until_alone(log, once)

    def _until_alone(self, log: DeltaLog, act: Callable[[], Done]) -> Done:
        """Does it on the newest version of the table, again if another commit came in between."""
        said = ""
        for _ in range(_ATTEMPTS):
            log.refresh()
            try:
                return act()
            except Overtaken as problem:
                said = str(problem)
        raise SinkUnavailable(f"{log.uri} is written to by others all the time", detail=said[:200])
