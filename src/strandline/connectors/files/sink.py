"""Write batches to files in a folder; a batch's files become live with its log record."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.dead_letters import letters_in
from strandline.connectors.files.manifest_log import BATCH, CLAIM, MARK, ROWS, File, FolderState, Log
from strandline.connectors.files.task_files import PANES, PARTS, FolderWriter, add_file
from strandline.errors import InvalidStep, SinkError, SinkUnavailable
from strandline.formats.row_files import FORMATS, VOID, merge_columns, to_public_columns, types_of
from strandline.formats.sink_columns import BATCH as BATCH_COLUMN
from strandline.formats.sink_columns import names_beside
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Output
from strandline.kernel.window.panes import INDEX, RETRACTION
from strandline.letters.file_notes import NotedLetters
from strandline.model.arguments import checked
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.durable_files import sync_folder
from strandline.ports.file_stamps import label, show
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge
from strandline.ports.local_path import local_path
from strandline.ports.sinks import Stamp

_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class Folder(Ledgered):
    """A folder as a sink, and the format of its files."""

    path: str
    format: str = "parquet"
    evolve: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidStep(f"files of format {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        if "://" in self.path:
            raise InvalidStep(
                f"{self.path} is not a file system folder", hint="object stores have no hard links: write to delta(…)"
            )

    @property
    def name(self) -> str:
        return f"folder({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same sink to a checkpoint; the format may change between runs."""
        return {"path": self.path}

    @property
    def latest_view(self) -> str:
        return "read_manifested(…, now=True)"

    def open(self, output: Deliver) -> "OpenFolder":
        opened = OpenFolder(self, output.keys if output.has_latest_view else None)
        opened.refuse_missing(name for name, _ in output.columns)
        return opened

    def letters(self) -> NotedLetters:
        """Open the dead letters among the folder's parts."""
        return letters_in(Path(self.path))


@checked
def folder(path: str | Path, *, format: str = "parquet", evolve: bool = False) -> Folder:  # noqa: A002 - Spark's term
    """Write files to a folder, whole batches only: `write(folder("totals/", format="parquet"))`, or "jsonl", or "csv".

    The folder's log says which files are live: `read_manifested` reads them, `manifested_files` lists them, and
    `compact` merges small ones. `evolve` allows adding columns.
    """
    return Folder(local_path(path, "folder"), format, evolve)


@dataclass(frozen=True, slots=True)
class Staged:
    """Durable files of a batch that are not live yet."""

    files: tuple[File, ...] = ()
    """Files that the driver wrote for this attempt."""
    parts: tuple[File, ...] = ()
    """Files that tasks wrote for the batch."""
    columns: Mapping[str, Mapping[str, str]] | None = None
    now: Mapping[str, Any] | None = None


class OpenFolder:
    """An open sink folder."""

    def __init__(self, sink: Folder, keys: tuple[str, ...] | None) -> None:
        self._sink, self._keys = sink, keys
        self._root = Path(sink.path)
        self._log = Log(self._root)
        with self._log.sink_errors():
            for each in (*PARTS, "_log"):
                (self._root / each).mkdir(parents=True, exist_ok=True)
            # Entries that a driver saw before a machine failure may not have been durable.
            for place in (self._log.folder, self._root, self._root.absolute().parent):
                sync_folder(place)
        self._state = self._log.state()

    def refuse_missing(self, names: Iterable[str]) -> None:
        """Raise if earlier files lack columns that the plan knows. Called before Spark starts."""
        known = self._state.columns.get(PANES)
        absent = [] if not known else [name for name in names if name not in known]
        if absent and not self._sink.evolve:
            raise SinkError(
                f"the {PANES} in {self._root} do not fit the rows to write",
                detail="; ".join(f"{name} is missing" for name in absent),
                hint="write to another folder; or allow adding columns: evolve=True",
            )

    def claim(self, lineage: str) -> int:
        for _ in range(_ATTEMPTS):
            state = self._refresh()
            epoch = state.epochs.get(lineage, 0) + 1
            if self._log.publish(state.number + 1, {"kind": CLAIM, "lineage": lineage, "epoch": epoch}):
                with self._log.sink_errors():
                    show(self._log.folder, lineage, epoch)
                return epoch
        raise self._contended()

    def latest(self, lineage: str) -> Recorded | None:
        return self._refresh().latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        known = self._judge(entry)
        if known is not None:
            # An earlier attempt may have linked the record without making it durable.
            with self._log.sink_errors():
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
        return FolderWriter(str(self._root.absolute()), self._sink.format)

    def swept(self, stamp: Stamp) -> None:
        with self._log.sink_errors():
            for path in (self._root / PANES).glob(f"{label(stamp)}-*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _refresh(self) -> FolderState:
        self._state = self._log.refresh(self._state)
        return self._state

    def _judge(self, entry: LedgerEntry) -> Written | None:
        state = self._refresh()
        known = state.ledger.get(entry.lineage, {}).get(entry.batch)
        return judge(entry, state.epochs.get(entry.lineage), known, state.latest(entry.lineage), sink=self._sink.name)

    def _fence(self, entry: LedgerEntry) -> None:
        epoch = self._refresh().epochs.get(entry.lineage)
        judge(replace(entry, starts=None), epoch, None, None, sink=self._sink.name)

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
        """Publish a record under the next number, judged against all before it; remove files that do not become live.

        Task files are removed only if they can never become live: a record that cannot be written now may be written
        later.
        """
        watermark = output.progress.watermark
        record = {
            "kind": kind, "lineage": entry.lineage, "epoch": entry.epoch,
            "entry": [entry.batch, entry.digest, watermark, entry.ends, entry.output], "starts": entry.starts,
            "files": [asdict(file) for file in (*staged.files, *staged.parts)],
            "columns": staged.columns or {}, "now": staged.now,
        }  # fmt: skip
        try:
            for _ in range(_ATTEMPTS):
                known = decide(entry)
                if known is not None:
                    self._remove_parts(staged.parts)
                    return known
                self._refuse_changed_columns(staged)
                if self._log.publish(self._state.number + 1, record):
                    return Written()
            raise self._contended()
        finally:
            self._remove_uncommitted(staged)

    def _stage(self, output: Output, entry: LedgerEntry) -> Staged:
        """Write a batch's rows to files under unique names."""
        files, columns = [], self._columns_of(output)
        name = label(Stamp(entry.lineage, entry.epoch, entry.batch))
        frames = {"panes": output.panes, "late": output.late, "dead": output.dead}
        full = {part: frame for part, frame in frames.items() if frame is not None and frame.height}
        with self._log.sink_errors():
            for part, frame in full.items():
                rows = to_public_columns(frame, entry.batch)
                self._refuse_mismatch(part, columns.get(part, {}), types_of(rows), added=True)
                columns[part] = merge_columns(columns.get(part, {}), types_of(rows))
                files.append(add_file(self._root, part, name, rows, self._sink.format))
        now = _latest_by(full["panes"], self._keys) if "panes" in full and self._keys is not None else None
        return Staged(tuple(files), self._task_files(output), columns, now)

    def _task_files(self, output: Output) -> tuple[File, ...]:
        """The files that tasks wrote; the driver must see all of them."""
        found = _files_of(output)
        for file in found:
            path = self._root / file.path
            if not path.exists() or path.stat().st_size != file.bytes:
                raise SinkError(
                    f"a task has written {path}, which is missing or incomplete on the driver",
                    hint="write to a folder that all machines of the cluster share",
                )
        return found

    def _columns_of(self, output: Output) -> dict[str, dict[str, str]]:
        """Merge the columns of the task files, which must match each other."""
        known: dict[str, str] = {}
        for each in output.parts:
            self._refuse_mismatch(PANES, known, each.told["columns"], added=True)
            known = merge_columns(known, each.told["columns"])
        return {PANES: known} if known else {}

    def _refuse_changed_columns(self, staged: Staged) -> None:
        """Refuse changed column types; new columns are allowed with `evolve`, or outside the panes."""
        for part, columns in (staged.columns or {}).items():
            known = self._state.columns.get(part)
            if known is not None:
                self._refuse_mismatch(part, known, columns, added=part != PANES or self._sink.evolve)

    def _refuse_mismatch(self, part: str, known: Mapping[str, str], columns: Mapping[str, str], *, added: bool) -> None:
        wrong = [
            f"{name} is {known[name]}, expected {kind}"
            for name, kind in columns.items()
            if VOID != known.get(name, VOID) != kind != VOID
        ]
        absent = [f"{name} ({kind}) is missing" for name, kind in columns.items() if name not in known and not added]
        if wrong or absent:
            raise SinkError(
                f"the {part} in {self._root} do not fit the rows to write",
                detail="; ".join([*wrong, *absent]),
                hint="write to another folder" + ("" if wrong else "; or allow adding columns: evolve=True"),
            )

    def _remove_uncommitted(self, staged: Staged) -> None:
        if staged.files and staged.files[0].path not in self._refresh().files:
            self._remove(staged.files)

    def _remove_parts(self, files: Iterable[File]) -> None:
        """Remove task files of a batch that is known already, unless an attempt in doubt has published these files."""
        state = self._refresh()
        self._remove(file for file in files if file.path not in state.files and file.path not in state.gone)

    def _remove(self, files: Iterable[File]) -> None:
        for file in files:
            (self._root / file.path).unlink(missing_ok=True)

    def _contended(self) -> SinkUnavailable:
        return SinkUnavailable(
            f"{self._root} was written to by other processes at every attempt", detail=f"{_ATTEMPTS} attempts"
        )


def _files_of(output: Output) -> tuple[File, ...]:
    """The files that tasks wrote."""
    return tuple(File(**part.told["file"]) for part in output.parts)


def _latest_by(panes: pl.DataFrame, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Public names of the columns that identify a pane, and of those that order its versions."""
    if START not in panes.columns:
        return None
    names = names_beside(panes.columns)
    order = [names[each] for each in (BATCH_COLUMN, INDEX, RETRACTION)]
    return {"of": [*keys, names[START], names[END]], "order": order, "retraction": names[RETRACTION]}
