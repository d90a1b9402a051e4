"""How far a job is behind its topics."""

import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from strandline.cli.run import find
from strandline.connectors.kafka.lag import Moment, PartitionLag, Verdict, lag
from strandline.connectors.kafka.source import Kafka
from strandline.errors import SetupError
from strandline.plan.compile import to_stages
from strandline.spark.checkpoint import Checkpoint

_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.STALLED: "red", Verdict.STOPPED: "red"}
_BATCHES = 10


def run(where: str, *, checkpoint: Path, as_json: bool) -> int:
    """Prints every partition; the exit code is 1 if one of them is stalled or stopped."""
    home = Checkpoint(checkpoint.absolute())
    found: list[PartitionLag] = []
    for place, scan in enumerate(to_stages(find(where).root).scans):
        if isinstance(scan.source, Kafka):
            history = [Moment(clock, offsets) for clock, offsets in home.history(place, _BATCHES)]
            if history:
                found += lag(scan.source.servers, scan.source.security, history, time.time_ns() // 1_000_000)
    if not found:
        raise SetupError(f"nothing was read from Kafka by the job in {checkpoint}", hint="run it first")
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        _show(found)
    return int(any(each.verdict in (Verdict.STALLED, Verdict.STOPPED) for each in found))


def _show(found: list[PartitionLag]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("partition", "read up to", "ends at", "records", "seconds", "verdict"):
        table.add_column(name, justify="left" if name in ("partition", "verdict") else "right")
    for each in found:
        seconds = "" if each.seconds is None else f"{each.seconds:.1f}"
        verdict = f"[{_COLOURS[each.verdict]}]{each.verdict}[/]"
        table.add_row(each.partition, str(each.committed), str(each.end), str(each.records), seconds, verdict)
    Console().print(table)
