"""The demo: a stream of scores, out of order and partly broken, becomes early, on-time and late totals as you watch."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import strandline as sl
from strandline.cli.live import LiveView, PlainView, View
from strandline.cli.recount import Recount, recount
from strandline.connectors.generator import TEAMS, Scores
from strandline.errors import StateError
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.job import Job

WINDOW_SECONDS: Final = 5
_RUNS: Final = Path("strandline-demo")
_ADVICE: Final = """Everything is in {database}: every pane in `totals`, the latest ones in `totals_now`,
and who was refused, and why, in `totals_late` and `totals_dead`. Try next:
  sqlite3 {database} "SELECT * FROM totals WHERE team = 'red' ORDER BY window_start, pane_index"
  sqlite3 {database} "SELECT reason, count(*) FROM totals_dead GROUP BY 1"
  ./demo --seed 8        another stream; kill it in the middle, start it again, and it goes on"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the stream is made of."""

    seed: int
    events: int
    rate: int


def pipeline(source: Scores, database: Path) -> sl.Pipeline:
    """The demo's pipeline: the four questions, one line each."""
    totals = (
        sl.read(source)
        .event_time("at", sl.bounded(seconds=3).idle_after(seconds=4))
        .key_by("team")
        .window(sl.tumbling(seconds=WINDOW_SECONDS))
        .trigger(sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(seconds=10)
        .aggregate(total=sl.sum("score"), plays=sl.count())
    )
    return totals.write(sl.sqlite(database, table="totals"))


def run(*, seed: int, events: int, rate: int, folder: Path | None, plain: bool) -> None:
    """Runs the demo to its end, or until Ctrl-C; the next start goes on from there."""
    console = Console()
    asked = Asked(seed, events, rate)
    source = Scores(seed, events, rate)
    home = folder if folder is not None else _next_run(asked)
    database = home / "scores.db"
    view: View = (PlainView if plain or not console.is_terminal else LiveView)(console, "strandline demo")
    view.say(f"Starting Spark; the run is kept in {home}")
    try:
        job = _play(source, home, database, view)
    finally:
        view.close()
    if job is None:
        console.print(f"Stopped. Run the same command again: it goes on from its checkpoint in {home}.", soft_wrap=True)
        return
    origin = _origin(job, home)
    _note(home, asked, complete=True)
    result = recount(source, origin, database, WINDOW_SECONDS)
    _conclude(console, result, database)


def _play(source: Scores, home: Path, database: Path, view: View) -> Job | None:
    """The job at its end, or None if it was stopped before."""
    started = time.monotonic()
    job: Job = pipeline(source, database).run(checkpoint=home / "checkpoint", listener=view.delivered)
    _note(home, Asked(source.seed, source.events, source.rate), complete=False)
    view.say(f"Spark is up after {time.monotonic() - started:.0f} s; its workers warm up, then the stream starts")
    try:
        job.await_end()
    except KeyboardInterrupt:
        job.stop()
        return None
    return job


def _origin(job: Job, home: Path) -> int:
    """When the stream started, as its offset log tells."""
    last = job.last
    offsets = last.offsets if last is not None else Checkpoint(home / "checkpoint").latest_offsets()
    return int(offsets["origin"])


def _conclude(console: Console, result: Recount, database: Path) -> None:
    table = Table(title="Final totals: the stream against a batch job over the whole log")
    for name in ("team", "stream", "set aside as late", "together", "batch job", ""):
        table.add_column(name, justify="left" if name in ("team", "") else "right")
    for team in TEAMS:
        stream, late, batch = (result.of_team(each, team) for each in (result.stream, result.late, result.batch))
        table.add_row(
            team, str(stream), str(late), str(stream + late), str(batch), "=" if stream + late == batch else "≠"
        )
    console.print(table)
    if not result.agrees:
        where = ", ".join(f"{team} {start}" for team, start in result.disagreements[:3]) or "dead letters"
        raise StateError("stream and batch job disagree", detail=f"first at {where}", hint="please report the seed")
    windows = f"All {len(result.batch)} cells of team and window agree"
    letters = f"{result.dead} records are dead letters, and {result.unreadable} are broken in the log"
    console.print(f"{windows}; {letters}.\n\n{_ADVICE.format(database=database)}", soft_wrap=True, highlight=False)


def _next_run(asked: Asked) -> Path:
    """The latest run, if it was stopped before its end and is the one asked for; else a new one."""
    runs = sorted(_RUNS.glob("run-*"), key=lambda path: int(path.name[4:]))
    if runs and _is_unfinished(runs[-1], asked):
        return runs[-1]
    return _RUNS / f"run-{int(runs[-1].name[4:]) + 1 if runs else 1}"


def _is_unfinished(home: Path, asked: Asked) -> bool:
    try:
        noted = json.loads((home / "run.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(noted == {**asdict(asked), "complete": False})


def _note(home: Path, asked: Asked, *, complete: bool) -> None:
    (home / "run.json").write_text(json.dumps({**asdict(asked), "complete": complete}) + "\n")
