"""List, show, count, redrive and drop the dead letters of a pipeline: `strandline dlq`."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from rich.table import Table
from rich.text import Text

from strandline.cli.actions.run import find
from strandline.cli.terminal import plain_console, printable, safe_console, say, say_lines
from strandline.connectors.files import Files
from strandline.errors import SetupError
from strandline.formats.csv import Csv
from strandline.letters.envelope_json import time_text, to_json
from strandline.letters.folder_redrive import Folder
from strandline.letters.redrive import predict, redrive
from strandline.letters.store import REDRIVEN, HasDeadLetters, LetterStore, pages_of
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root, outputs_of

DONE, INCOMPLETE = 0, 1
_ID_LENGTH: Final = 12
_CELL_LENGTH: Final = 60
_TIMES: Final = ("first_seen", "event_time")
BY: Final = ("reason", "step", "source", "source_partition", "exception", "schema_id", "state")


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Select letters by id prefix or by field values."""

    ids: tuple[str, ...] = ()
    reason: str | None = None
    step: str | None = None
    source: str | None = None
    state: str | None = None
    every: bool = False

    @property
    def names_any(self) -> bool:
        return bool(self.ids) or self.every or any((self.reason, self.step, self.source, self.state == REDRIVEN))

    def of(self, letters: pl.DataFrame, ids: frozenset[str]) -> pl.DataFrame:
        """Return the selected letters; `ids` are those that the prefixes stand for."""
        for name in ("reason", "step", "source", "state"):
            wanted = getattr(self, name)
            letters = letters if wanted is None else letters.filter(pl.col(name) == wanted)
        return letters.filter(pl.col("id").is_in(ids)) if self.ids else letters


def run_list(where: str, letter_filter: LetterFilter, *, limit: int, as_json: bool) -> int:
    """Print the letters, newest first."""
    shown, many = pl.DataFrame(), 0
    for page in _pages(stores_of(find(where).root), letter_filter, raw=False):
        # The letters of one batch stay in the order of their records.
        shown = pl.concat([shown, page] if shown.width else [page]).sort("first_seen", maintain_order=True).tail(limit)
        many += page.height
    shown = shown.reverse()
    if as_json:
        _print_json([_plain(each) for each in shown.drop("raw", strict=False).iter_rows(named=True)])
        return DONE
    if shown.is_empty():
        say("no dead letters")
        return DONE
    columns = ("id", "first_seen", "reason", "step", "place", "state", "detail")
    _print_table(columns, [_line(each) for each in shown.iter_rows(named=True)])
    if many > limit:
        say(f"{many - limit} more; raise --limit to see them")
    return DONE


def run_show(where: str, start: str, *, raw: bool, as_json: bool) -> int:
    """Print all fields of one letter, or its original bytes."""
    stores = stores_of(find(where).root)
    (id_,) = _ids_with_prefixes(stores, (start,)) or (None,)
    pages = (page for store in stores for page in pages_of(store, id_=id_) if id_ is not None and page.height)
    found = next(pages, None)
    if found is None:
        raise SetupError(f"there is no letter {start}", hint="strandline dlq list prints the letters")
    letter = found.row(0, named=True)
    if raw:
        record: bytes = letter["raw"] or b""
        if sys.stdout.isatty():  # a terminal would obey escape sequences; a pipe or a file gets every byte
            say_lines(record.decode(errors="backslashreplace"))
        else:
            sys.stdout.buffer.write(record)
        return DONE
    if as_json:
        _print_json(_plain(letter))
        return DONE
    console = plain_console()
    for name, value in letter.items():
        text = "" if value is None else _display(name, value, None)
        console.print(Text.assemble((f"{name:<17}", "dim"), text))
    return DONE


def run_count(where: str, letter_filter: LetterFilter, *, by: str, as_json: bool) -> int:
    """Print the number of letters by one of their fields."""
    if by not in BY:
        raise SetupError(f"letters cannot be counted by {by!r}", hint=f"choose one of {', '.join(BY)}")
    counts: Counter[Any] = Counter()
    for page in _pages(stores_of(find(where).root), letter_filter, raw=False):
        counts.update(page[by].to_list())
    counted = sorted(counts.items(), key=lambda each: (-each[1], each[0] is None, each[0] or ""))
    if as_json:
        _print_json({"letters": counts.total(), "by": by, "counts": dict(counted)})
        return DONE
    _print_table((by, "letters"), [(_display(by, "" if name is None else name), str(n)) for name, n in counted])
    say(f"{counts.total()} in total")
    return DONE


def run_redrive(where: str, letter_filter: LetterFilter, *, dry: bool, as_json: bool) -> int:
    """Send records back to their sources; return 1 if a selected record could not be sent."""
    _require(letter_filter, "send back")
    root = find(where).root
    sources, stores = sources_of(root), stores_of(root)
    reports = []
    for store, chosen in zip(stores, _chosen(stores, letter_filter), strict=True):
        reports.append((predict if dry else redrive)(store, sources, chosen))
    sent = [each for report in reports for each in report.sent]
    completed = [each for report in reports for each in report.completed]
    left = {id_: why for report in reports for id_, why in report.left.items()}
    verb = "would be sent" if dry else "sent"
    if as_json:
        _print_json({"dry_run": dry, "sent": sent, "completed": completed, "left": left})
    else:
        if completed:
            say(f"{_letters(len(completed))} of an interrupted redrive {verb} back")
        say(f"{_letters(len(sent))} {verb} back to their sources")
        for why in sorted(set(left.values())):
            ids = [each for each, reason in left.items() if reason == why]
            say(f"{len(ids)} not sent: {printable(why)} ({', '.join(each[:_ID_LENGTH] for each in ids[:3])})")
    return INCOMPLETE if left else DONE


def run_drop(where: str, letter_filter: LetterFilter, *, yes: bool, as_json: bool) -> int:
    """Delete letters permanently, after confirmation."""
    _require(letter_filter, "drop")
    stores = stores_of(find(where).root)
    chosen = _chosen(stores, letter_filter)
    total = sum(map(len, chosen))
    if total and not yes:
        if not sys.stdin.isatty():
            raise SetupError(f"{_letters(total)} would be deleted permanently", hint="add --yes to confirm")
        if input(f"Delete {_letters(total)} permanently? [y/N] ").strip().lower() not in ("y", "yes"):
            say("no letter was dropped")
            return INCOMPLETE
    dropped = sum(store.drop(ids) for store, ids in zip(stores, chosen, strict=True) if ids)
    if as_json:
        _print_json({"dropped": dropped})
    else:
        say(f"{_letters(dropped)} dropped")
    return DONE


def sources_of(root: Root) -> dict[str, Any]:
    """Return the pipeline's sources by name; a folder source as the object that accepts redriven records."""
    return {scan.source.name: _redrive_target(scan.source) for scan in to_stages(root).scans}


def _redrive_target(source: Any) -> Any:
    if not isinstance(source, Files):
        return source
    folder: Any = source
    pattern = getattr(folder, "pattern", None)
    if folder.decoder is None:
        metadata = {name for name, _ in getattr(folder, "metadata", ())}
        types = {name: kind for name, kind in folder.types.items() if name not in metadata}
        return Folder(folder.name, folder.path, folder.format, types, pattern)
    lines = folder.columns
    header = lines.delimiter.join(lines.columns) if folder.header and isinstance(lines, Csv) else None
    return Folder(folder.name, folder.path, "txt", None, pattern, header)


def stores_of(root: Root) -> list[LetterStore]:
    """Return the letter stores of all outputs, each store once."""
    found: dict[str, LetterStore] = {}
    for output in outputs_of(root):
        places: list[object] = [output.dead, output.sink]
        store = next((place.letters() for place in places if isinstance(place, HasDeadLetters)), None)
        if store is not None:
            found.setdefault(store.name, store)
    if not found:
        names = ", ".join(output.sink.name for output in outputs_of(root))
        raise SetupError(
            f"{names} keeps no dead letters that can be queried",
            hint='write(…, dead=dead_files("dead/")) or dead=dead_topic(…) stores them elsewhere',
        )
    return [*found.values()]


def _pages(stores: Sequence[LetterStore], letter_filter: LetterFilter, *, raw: bool) -> Iterator[pl.DataFrame]:
    """Read the selected letters of all stores, some at a time."""
    ids = _ids_with_prefixes(stores, letter_filter.ids)
    for store in stores:
        for page in pages_of(store, raw=raw):
            yield letter_filter.of(page, ids)


def _chosen(stores: Sequence[LetterStore], letter_filter: LetterFilter) -> list[list[str]]:
    """Return the ids of the selected letters of each store; refuse an id that no store has."""
    ids = _ids_with_prefixes(stores, letter_filter.ids)
    for start in letter_filter.ids:
        if not any(each.startswith(start) for each in ids):
            raise SetupError(f"there is no letter {start}", hint="strandline dlq list prints the letters")
    pages = ([letter_filter.of(page, ids) for page in pages_of(store, raw=False)] for store in stores)
    return [[id_ for page in each for id_ in page["id"]] for each in pages]


def _ids_with_prefixes(stores: Sequence[LetterStore], starts: Sequence[str]) -> frozenset[str]:
    """Return the id that begins with each prefix, if there is one; refuse a prefix of several."""
    found: dict[str, set[str]] = {start: set() for start in starts}
    pages = (page for store in stores if starts for page in pages_of(store, raw=False))
    for id_ in (each for page in pages for each in page["id"].drop_nulls()):
        for start, known in found.items():
            if id_.startswith(start):
                known.add(id_)
    for start, known in found.items():
        if len(known) > 1:
            raise SetupError(f"{len(known)} letters begin with {start}", hint="give more of the id")
    return frozenset(id_ for known in found.values() for id_ in known)


def _letters(letters: int) -> str:
    return "1 letter" if letters == 1 else f"{letters} letters"


def _require(letter_filter: LetterFilter, verb: str) -> None:
    if not letter_filter.names_any:
        raise SetupError(f"no letters to {verb} were selected", hint="give ids, --reason, --step, --source, or --all")


def _line(letter: Mapping[str, Any]) -> list[str]:
    place = "" if letter["source_partition"] is None else f"{letter['source_partition']}:{letter['source_offset']}"
    names = ("first_seen", "reason", "step")
    texts = ["" if letter[name] is None else _display(name, letter[name]) for name in names]
    # The end of a path says more than its beginning, and the place within the file follows it.
    shown = _display("", place, None)
    shown = shown if len(shown) <= _CELL_LENGTH else "…" + shown[1 - _CELL_LENGTH :]
    detail = _display("", letter["detail"] or "")
    return [(letter["id"] or "")[:_ID_LENGTH], *texts, shown, letter["state"], detail]


def _display(name: str, value: Any, longest: int | None = _CELL_LENGTH) -> str:
    """Format a value for a terminal, without control characters."""
    if name in _TIMES:
        return time_text(value)
    text = printable(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def _plain(letter: Mapping[str, Any]) -> Any:
    return json.loads(to_json(letter))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal, aligned lines elsewhere."""
    console = safe_console()
    if console.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(name, justify="right" if name == "letters" else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(each) for each in row))
        console.print(table)
        return
    widths = [max(len(row[at]) for row in [columns, *rows]) for at in range(len(columns))]
    for row in [columns, *rows]:
        say("  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip())
