"""`strandline dlq`: the dead letters of a pipeline, looked at, counted, sent back, dropped."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strandline.cli.actions.run import find
from strandline.connectors.files import Files
from strandline.errors import SetupError
from strandline.formats.csv import Csv
from strandline.letters.envelope_json import time_text, to_json
from strandline.letters.folder_redrive import Folder
from strandline.letters.redrive import predict, redrive
from strandline.letters.store import REDRIVEN, HasDeadLetters, LetterStore
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root, outputs_of

DONE, LEFT = 0, 1
_SHORT: Final = 12
_LONGEST: Final = 60
_TIMES: Final = ("first_seen", "event_time")
BY: Final = ("reason", "step", "source", "source_partition", "exception", "schema_id", "state")


@dataclass(frozen=True, slots=True)
class Which:
    """The letters that are meant: by id or the beginning of one, or by what is written on them."""

    ids: tuple[str, ...] = ()
    reason: str | None = None
    step: str | None = None
    source: str | None = None
    state: str | None = None
    every: bool = False

    @property
    def names_any(self) -> bool:
        return bool(self.ids) or self.every or any((self.reason, self.step, self.source, self.state == REDRIVEN))

    def of(self, letters: pl.DataFrame) -> pl.DataFrame:
        for name in ("reason", "step", "source", "state"):
            asked = getattr(self, name)
            letters = letters if asked is None else letters.filter(pl.col(name) == asked)
        if not self.ids:
            return letters
        meant = [_one(letters["id"].to_list(), start) for start in self.ids]
        return letters.filter(pl.col("id").is_in([each for each in meant if each is not None]))


def run_list(where: str, which: Which, *, limit: int, as_json: bool) -> int:
    """The letters, newest first."""
    letters = _read(stores_of(find(where).root), which).reverse()
    shown = letters.head(limit)
    if as_json:
        _print_json([_plain(each) for each in shown.drop("raw").iter_rows(named=True)])
        return DONE
    if letters.is_empty():
        print("no dead letters")
        return DONE
    columns = ("id", "first_seen", "reason", "step", "place", "state", "detail")
    _print_table(columns, [_line(each) for each in shown.iter_rows(named=True)])
    if letters.height > limit:
        print(f"{letters.height - limit} more; --limit shows them")
    return DONE


def run_show(where: str, start: str, *, raw: bool, as_json: bool) -> int:
    """One letter, whole; or its bytes as they came."""
    letters = _read(stores_of(find(where).root), Which((start,)))
    if letters.is_empty():
        raise SetupError(f"there is no letter {start}", hint="strandline dlq list shows those there are")
    letter = letters.row(0, named=True)
    if raw:
        sys.stdout.buffer.write(letter["raw"] or b"")
        return DONE
    if as_json:
        _print_json(_plain(letter))
        return DONE
    console = Console(highlight=False, soft_wrap=True)
    for name, value in letter.items():
        told = "" if value is None else _told(name, value, None)
        console.print(Text.assemble((f"{name:<17}", "dim"), told))
    return DONE


def run_count(where: str, which: Which, *, by: str, as_json: bool) -> int:
    """How many there are, by one of their fields."""
    if by not in BY:
        raise SetupError(f"letters are not counted by {by!r}", hint=f"choose one of {', '.join(BY)}")
    letters = _read(stores_of(find(where).root), which)
    counted = letters.group_by(by).agg(pl.len().alias("letters")).sort("letters", by, descending=[True, False])
    if as_json:
        _print_json({"letters": letters.height, "by": by, "counts": dict(counted.iter_rows())})
        return DONE
    _print_table((by, "letters"), [(_told(by, "" if name is None else name), str(n)) for name, n in counted.rows()])
    print(f"{letters.height} in all")
    return DONE


def run_redrive(where: str, which: Which, *, dry: bool, as_json: bool) -> int:
    """Records back to where they came from; the exit code is 1 if one that was asked for could not go."""
    _require(which, "send back")
    root = find(where).root
    sources, stores = sources_of(root), stores_of(root)
    reports = []
    for store, chosen in zip(stores, _chosen(stores, which), strict=True):
        reports.append((predict if dry else redrive)(store, sources, chosen["id"]))
    sent = [each for report in reports for each in report.sent]
    completed = [each for report in reports for each in report.completed]
    left = {id_: why for report in reports for id_, why in report.left.items()}
    went = "would go" if dry else "went"
    if as_json:
        _print_json({"dry_run": dry, "sent": sent, "completed": completed, "left": left})
    else:
        if completed:
            print(f"{_many(len(completed))} of a redrive that was cut off before {went} back now")
        print(f"{_many(len(sent))} {went} back to where they came from")
        for why in sorted(set(left.values())):
            many = [each for each, told in left.items() if told == why]
            print(f"{len(many)} stayed: {why} ({', '.join(each[:_SHORT] for each in many[:3])})")
    return LEFT if left else DONE


def run_drop(where: str, which: Which, *, yes: bool, as_json: bool) -> int:
    """Letters deleted for good, once it is sure that it is meant."""
    _require(which, "drop")
    stores = stores_of(find(where).root)
    chosen = [each["id"].to_list() for each in _chosen(stores, which)]
    many = sum(map(len, chosen))
    if many and not yes:
        if not sys.stdin.isatty():
            raise SetupError(f"{_many(many)} would be gone for good", hint="say --yes if that is meant")
        if input(f"Drop {_many(many)} for good? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was dropped")
            return LEFT
    dropped = sum(store.drop(ids) for store, ids in zip(stores, chosen, strict=True) if ids)
    if as_json:
        _print_json({"dropped": dropped})
    else:
        print(f"{_many(dropped)} dropped")
    return DONE


def sources_of(root: Root) -> dict[str, Any]:
    """The pipeline's sources by name, a folder as what takes records back."""
    return {scan.source.name: _way_back(scan.source) for scan in to_stages(root).scans}


def _way_back(source: Any) -> Any:
    if not isinstance(source, Files):
        return source
    folder: Any = source
    pattern = getattr(folder, "pattern", None)
    if folder.decoder is None:
        beside = {name for name, _ in getattr(folder, "metadata", ())}
        types = {name: kind for name, kind in folder.types.items() if name not in beside}
        return Folder(folder.name, folder.path, folder.format, types, pattern)
    lines = folder.columns
    header = lines.delimiter.join(lines.columns) if folder.header and isinstance(lines, Csv) else None
    return Folder(folder.name, folder.path, "txt", None, pattern, header)


def stores_of(root: Root) -> list[LetterStore]:
    """Where the letters of each output are, each place once."""
    found: dict[str, LetterStore] = {}
    for output in outputs_of(root):
        places: list[object] = [output.dead, output.sink]
        store = next((place.letters() for place in places if isinstance(place, HasDeadLetters)), None)
        if store is not None:
            found.setdefault(store.name, store)
    if not found:
        names = ", ".join(output.sink.name for output in outputs_of(root))
        raise SetupError(
            f"{names} keeps no dead letters that can be asked for",
            hint='write(…, dead=dead_files("dead/")) or dead=dead_topic(…) keeps them elsewhere',
        )
    return [*found.values()]


def _read(stores: Sequence[LetterStore], which: Which) -> pl.DataFrame:
    # Those of one batch stay in the order of their records.
    return which.of(pl.concat([store.read() for store in stores]).sort("first_seen", maintain_order=True))


def _chosen(stores: Sequence[LetterStore], which: Which) -> list[pl.DataFrame]:
    """Of each store the letters that are meant; one that is named must be there."""
    known = [store.read() for store in stores]
    for start in which.ids:
        if _one(pl.concat(known)["id"].to_list(), start) is None:
            raise SetupError(f"there is no letter {start}", hint="strandline dlq list shows those there are")
    return [which.of(each) for each in known]


def _many(letters: int) -> str:
    return "1 letter" if letters == 1 else f"{letters} letters"


def _require(which: Which, verb: str) -> None:
    if not which.names_any:
        raise SetupError(f"no letter to {verb} is named", hint="name ids, or --reason, --step, --source, or say --all")


def _one(ids: Sequence[str | None], start: str) -> str | None:
    found = [each for each in ids if each is not None and each.startswith(start)]
    if len(found) > 1:
        raise SetupError(f"{len(found)} letters begin with {start}", hint="give more of the id")
    return found[0] if found else None


def _line(letter: Mapping[str, Any]) -> list[str]:
    place = "" if letter["source_partition"] is None else f"{letter['source_partition']}:{letter['source_offset']}"
    names = ("first_seen", "reason", "step")
    told = ["" if letter[name] is None else _told(name, letter[name]) for name in names]
    # The end of a path tells more than its beginning, and where in the file it was stands behind it.
    shown = _told("", place, None)
    shown = shown if len(shown) <= _LONGEST else "…" + shown[1 - _LONGEST :]
    return [(letter["id"] or "")[:_SHORT], *told, shown, letter["state"], _told("", letter["detail"] or "")]


def _told(name: str, value: Any, longest: int | None = _LONGEST) -> str:
    """A value for a terminal: no sign in it can move the cursor or change a colour."""
    if name in _TIMES:
        return time_text(value)
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def _plain(letter: Mapping[str, Any]) -> Any:
    return json.loads(to_json(letter))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, aligned lines elsewhere."""
    console = Console()
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
        print("  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip())
