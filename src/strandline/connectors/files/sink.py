"""A folder as a sink: the files of a batch count from one moment on, that of its record in the log."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.dead_letters import letters_in
from strandline.connectors.files.manifest_log import BATCH, CLAIM, MARK, ROWS, File, Held, Log
from strandline.connectors.files.task_files import PANES, PARTS, FolderWriter, add_file
from strandline.errors import InvalidStep, SinkError, SinkUnavailable
from strandline.formats.row_files import FORMATS, VOID, joined, laid_out, types_of
from strandline.formats.sink_columns import BATCH as BATCH_COLUMN
from strandline.formats.sink_columns import names_beside
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Output
from strandline.kernel.window.panes import INDEX, RETRACTION
from strandline.letters.file_notes import NotedLetters
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.durable_files import sync_folder
from strandline.ports.file_stamps import label, show
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge
from strandline.ports.sinks import Stamp

_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class Folder(Ledgered):
    """A folder, and how rows are written in it."""

    path: str
    format: str = "parquet"
    evolve: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidStep(f"files of format {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        if "://" in self.path:
            raise InvalidStep(
                f"{self.path} is no folder of a file system", hint="a store of objects has no links: write to delta(…)"
            )

    @property
    def name(self) -> str:
        return f"folder({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """What makes it the same to a checkpoint: files of several formats may stand side by side."""
        return {"path": self.path}

    def open(self, output: Deliver) -> "OpenFolder":
        return OpenFolder(self, output.keys)

    def letters(self) -> NotedLetters:
        """The dead letters among the folder's parts."""
        return letters_in(Path(self.path))


def folder(path: str | Path, *, format: str = "parquet", evolve: bool = False) -> Folder:  # noqa: A002 - Spark's own word
    """Files in a folder, whole batches only: `write(folder("totals/", format="parquet"))`, or "jsonl", or "csv".

    The log in it says which files count: `read_manifested` reads them, `manifested_files` names them, and `compact`
    makes few of many. `evolve` lets columns be added to what is there.
    """
    return Folder(str(path), format, evolve)


@dataclass(frozen=True, slots=True)
class Staged:
    """Files of a batch that are durable and do not count yet."""

    files: tuple[File, ...] = ()
    """Made here, for this attempt."""
    parts: tuple[File, ...] = ()
    """Made by tasks, for the batch."""
    columns: Mapping[str, Mapping[str, str]] | None = None
    now: Mapping[str, Any] | None = None


class OpenFolder:
    """A folder at work."""

    def __init__(self, ask: Folder, keys: tuple[str, ...] | None) -> None:
        self._ask, self._keys = ask, keys
        self._root = Path(ask.path)
        self._log = Log(self._root)
        with self._log.explained():
            for each in (*PARTS, "_log"):
                (self._root / each).mkdir(parents=True, exist_ok=True)
            # What a driver saw before a kill of the machine may not have been durable.
            for place in (self._log.folder, self._root, self._root.absolute().parent):
                sync_folder(place)
        self._held = self._log.held()

    def claim(self, lineage: str) -> int:
        for _ in range(_ATTEMPTS):
            held = self._refreshed()
            epoch = held.epochs.get(lineage, 0) + 1
            if self._log.publish(held.number + 1, {"kind": CLAIM, "lineage": lineage, "epoch": epoch}):
                with self._log.explained():
                    show(self._log.folder, lineage, epoch)
                return epoch
        raise self._crowded()

    def latest(self, lineage: str) -> Recorded | None:
        return self._refreshed().latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        known = self._judge(entry)
        if known is not None:
            # It may have been linked by an attempt that could not make it durable.
            with self._log.explained():
                sync_folder(self._log.folder)
            self._remove_parts(_files_of(output))
            return known
        done = self._send(BATCH, output, entry, self._judge)
        crash_point("C10")
        return done

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        marked = self._publish(MARK, output, entry, Staged(), self._judge)
        if not marked.fresh:
            self._remove_parts(_files_of(output))
        return marked

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        self._fence(entry)
        done = self._send(ROWS, output, entry, self._fence)
        crash_point("C10")
        return done

    def writer(self) -> FolderWriter:
        return FolderWriter(str(self._root.absolute()), self._ask.format)

    def swept(self, stamp: Stamp) -> None:
        with self._log.explained():
            for path in (self._root / PANES).glob(f"{label(stamp)}-*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _refreshed(self) -> Held:
        self._held = self._log.refreshed(self._held)
        return self._held

    def _judge(self, entry: LedgerEntry) -> Written | None:
        held = self._refreshed()
        known = held.ledger.get(entry.lineage, {}).get(entry.batch)
        return judge(entry, held.epochs.get(entry.lineage), known, held.latest(entry.lineage), sink=self._ask.name)

    def _fence(self, entry: LedgerEntry) -> None:
        epoch = self._refreshed().epochs.get(entry.lineage)
        judge(replace(entry, starts=None), epoch, None, None, sink=self._ask.name)

    def _send(
        self, kind: str, output: Output, entry: LedgerEntry, decide: Callable[[LedgerEntry], Written | None]
    ) -> Written:
        staged = self._stage(output, entry)
        crash_point("C9")
        return self._publish(kind, output, entry, staged, decide)

    def _publish(
        self,
        kind: str,
        output: Output,
        entry: LedgerEntry,
        staged: Staged,
        decide: Callable[[LedgerEntry], Written | None],
    ) -> Written:
        """The record under the next number, decided on all before it; files that do not come to count are removed.

        Those of tasks only where they will never count: a record that cannot be written now may be written later.
        """
        mark = output.progress.watermark
        record = {
            "kind": kind, "lineage": entry.lineage, "epoch": entry.epoch,
            "entry": [entry.batch, entry.digest, mark, entry.ends, entry.output], "starts": entry.starts,
            "files": [asdict(file) for file in (*staged.files, *staged.parts)],
            "columns": staged.columns or {}, "now": staged.now,
        }  # fmt: skip
        try:
            for _ in range(_ATTEMPTS):
                known = decide(entry)
                if known is not None:
                    self._remove_parts(staged.parts)
                    return known
                self._refuse_other(staged)
                if self._log.publish(self._held.number + 1, record):
                    return Written()
            raise self._crowded()
        finally:
            self._remove_unless_held(staged)

    def _stage(self, output: Output, entry: LedgerEntry) -> Staged:
        """Writes what a batch says into files under names that nobody has had."""
        files, columns = [], self._columns_of(output)
        name = label(Stamp(entry.lineage, entry.epoch, entry.batch))
        frames = {"panes": output.panes, "late": output.late, "dead": output.dead}
        full = {part: frame for part, frame in frames.items() if frame is not None and frame.height}
        with self._log.explained():
            for part, frame in full.items():
                rows = laid_out(frame, entry.batch)
                self._refuse_unlike(part, columns.get(part, {}), types_of(rows), added=True)
                columns[part] = joined(columns.get(part, {}), types_of(rows))
                files.append(add_file(self._root, part, name, rows, self._ask.format))
        now = _now(full["panes"], self._keys) if "panes" in full and self._keys is not None else None
        return Staged(tuple(files), self._there(output), columns, now)

    def _there(self, output: Output) -> tuple[File, ...]:
        """The files of tasks, all of which must be seen from here."""
        found = _files_of(output)
        for file in found:
            path = self._root / file.path
            if not path.exists() or path.stat().st_size != file.bytes:
                raise SinkError(
                    f"a task has written {path}, which is not there or not whole as seen from the driver",
                    hint="write to a folder that all machines of the cluster share",
                )
        return found

    def _columns_of(self, output: Output) -> dict[str, dict[str, str]]:
        """Those of the files of tasks, which must fit each other."""
        known: dict[str, str] = {}
        for each in output.parts:
            self._refuse_unlike(PANES, known, each.told["columns"], added=True)
            known = joined(known, each.told["columns"])
        return {PANES: known} if known else {}

    def _refuse_other(self, staged: Staged) -> None:
        """Columns keep their types; new ones are added where that is allowed, or nobody chose them."""
        for part, columns in (staged.columns or {}).items():
            known = self._held.columns.get(part)
            if known is not None:
                self._refuse_unlike(part, known, columns, added=part != PANES or self._ask.evolve)

    def _refuse_unlike(self, part: str, known: Mapping[str, str], columns: Mapping[str, str], *, added: bool) -> None:
        wrong = [
            f"{name} is {known[name]}, and {kind} is to be written"
            for name, kind in columns.items()
            if VOID != known.get(name, VOID) != kind != VOID
        ]
        absent = [
            f"{name} is missing, and {kind} is to be written"
            for name, kind in columns.items()
            if name not in known and not added
        ]
        if wrong or absent:
            raise SinkError(
                f"the {part} in {self._root} do not fit what is to be written",
                detail="; ".join([*wrong, *absent]),
                hint="write to another folder" + ("" if wrong else "; or let columns be added: evolve=True"),
            )

    def _remove_unless_held(self, staged: Staged) -> None:
        if staged.files and staged.files[0].path not in self._refreshed().files:
            self._remove(staged.files)

    def _remove_parts(self, files: Iterable[File]) -> None:
        """The batch is known: by these files, if an attempt before this one has ended in doubt, or by others."""
        held = self._refreshed()
        self._remove(file for file in files if file.path not in held.files and file.path not in held.gone)

    def _remove(self, files: Iterable[File]) -> None:
        for file in files:
            (self._root / file.path).unlink(missing_ok=True)

    def _crowded(self) -> SinkUnavailable:
        return SinkUnavailable(f"{self._root} is written to by others all the time", detail=f"{_ATTEMPTS} attempts")


def _files_of(output: Output) -> tuple[File, ...]:
    """What tasks have written."""
    return tuple(File(**part.told["file"]) for part in output.parts)


def _now(panes: pl.DataFrame, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Public names of what tells panes apart, and of what tells which is the newest."""
    if START not in panes.columns:
        return None
    names = names_beside(panes.columns)
    order = [names[each] for each in (BATCH_COLUMN, INDEX, RETRACTION)]
    return {"of": [*keys, names[START], names[END]], "order": order, "retraction": names[RETRACTION]}
