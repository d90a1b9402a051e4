"""Print the lag of a job behind its Kafka topics and folders: `strandline lag`."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.actions.run import find
from strandline.cli.terminal import cell, printable, safe_console, say
from strandline.connectors.files.listing import waiting_here
from strandline.connectors.files.source import Files
from strandline.connectors.kafka.lag import Moment, PartitionLag, Verdict, lag
from strandline.connectors.kafka.source import Kafka
from strandline.errors import SetupError
from strandline.observe.number_format import bytes_of, duration
from strandline.plan.compile import to_stages

_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.STALLED: "red", Verdict.STOPPED: "red"}
_BATCHES = 10


@dataclass(frozen=True, slots=True)
class FolderLag:
    """Files of a folder that no batch has read; `seconds` since the oldest of them was written."""

    source: str
    files: int
    bytes: int
    seconds: float | None


def run(where: str, *, checkpoint: Path, as_json: bool) -> int:
    """Print the lag of every partition and folder; return 1 if a partition is stalled or stopped."""
    home, now = Checkpoint(checkpoint.absolute()), time.time_ns() // 1_000_000
    found: list[PartitionLag] = []
    folders: list[FolderLag] = []
    for place, scan in enumerate(to_stages(find(where).root).scans):
        if isinstance(scan.source, Kafka):
            history = [Moment(clock, offsets) for clock, offsets in home.history(place, _BATCHES)]
            if history:
                found += lag(scan.source.servers, scan.source.security, history, now)
        elif isinstance(scan.source, Files):
            folders += _of_folder(home, place, scan.source, now)
    if not found and not folders:
        raise SetupError(f"the job in {checkpoint} has read nothing from Kafka or a folder", hint="run it first")
    if as_json:
        print(json.dumps([*map(asdict, found), *map(asdict, folders)], indent=2))
    else:
        _show(found)
        for each in folders:
            since = "" if each.seconds is None else f", the oldest written {duration(each.seconds)} ago"
            say(printable(f"{each.source}: {each.files} unread files with {bytes_of(each.bytes)}{since}"))
    return int(any(each.verdict in (Verdict.STALLED, Verdict.STOPPED) for each in found))


def _of_folder(home: Checkpoint, place: int, source: Files, now: int) -> list[FolderLag]:
    newest = home.newest()
    if newest is None:
        return []
    listed = frozenset(file.path for files in home.listed(newest, place).values() for file in files)
    left = waiting_here(source.path, source.pattern, listed)
    if left is None:
        return []
    seconds = None if left.oldest is None else max(now - left.oldest, 0) / 1000
    return [FolderLag(source.name, left.files, left.bytes, seconds)]


def _show(found: list[PartitionLag]) -> None:
    if not found:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("partition", "read up to", "ends at", "records", "seconds", "verdict"):
        table.add_column(name, justify="left" if name in ("partition", "verdict") else "right")
    for each in found:
        seconds = "" if each.seconds is None else f"{each.seconds:.1f}"
        verdict = Text(str(each.verdict), _COLOURS[each.verdict])
        numbers = (str(each.committed), str(each.end), str(each.records), seconds)
        table.add_row(cell(each.partition), *numbers, verdict)
    safe_console().print(table)
