"""The demo: a stream of scores, out of order and partly broken, becomes early, on-time and late totals as you watch."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import strandline as sl
from strandline.cli.demo.dashboard_process import Beside
from strandline.cli.demo.kafka import Sent, topic_of
from strandline.cli.demo.log import Generated, Log
from strandline.cli.demo.recount import Recount, recount_log
from strandline.cli.live_view import LiveView, PlainView, View
from strandline.connectors.kafka import Kafka
from strandline.connectors.scores import TEAMS, Scores
from strandline.errors import SetupError, StateError
from strandline.observe.known_jobs import remember
from strandline.spark.job import Job

WINDOW_SECONDS: Final = 5
_RUNS: Final = Path("strandline-demo")
_ADVICE: Final = """Everything is in {database}: every pane in `totals`, the latest ones in `totals_now`,
and who was refused, and why, in `totals_late` and `totals_dead`. Try next:
  sqlite3 {database} "SELECT * FROM totals WHERE team = 'red' ORDER BY window_start, pane_index"
  sqlite3 {database} "SELECT reason, count(*) FROM totals_dead GROUP BY 1"
  {strandline} dashboard {home}   this run in the browser, at any time
  ./demo --seed 8        another stream; kill it in the middle, start it again, and it goes on"""
_KAFKA_ADVICE: Final = """
  {strandline} up kafka --home {home}   the broker again, with every record of the topic `scores`"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the stream is made of."""

    seed: int
    events: int
    rate: int
    kafka: bool = False


def pipeline(source: Scores | Kafka, database: Path) -> sl.Pipeline:
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


def run(
    *,
    seed: int,
    events: int,
    rate: int,
    folder: Path | None,
    plain: bool,
    kafka: bool = False,
    dashboard: bool = False,
) -> None:
    """Runs the demo to its end, or until Ctrl-C; the next start goes on from there."""
    console = Console()
    asked = Asked(seed, events, rate, kafka)
    source = Scores(seed, events, rate)
    home = folder if folder is not None else _next_run(asked)
    view: View = (PlainView if plain or not console.is_terminal else LiveView)(console, "strandline demo")
    result: Recount | None = None
    try:
        with (
            Sent(source, home, view.say) if kafka else Generated(source, home) as log,
            _shown(home, asked, log, view) if dashboard else nullcontext(view.say) as say,
        ):
            result = _played(log, asked, home, view, say)
    finally:
        view.close()
    if result is None:
        console.print(f"Stopped. Run the same command again: it goes on from its checkpoint in {home}.", soft_wrap=True)
        return
    _conclude(console, result, home, _KAFKA_ADVICE if kafka else "")


def played_by(plays: Mapping[str, Any]) -> sl.Pipeline:
    """The pipeline of a demo that is told in plain values, as its dashboard hears of it."""
    scores = Scores(plays["seed"], plays["events"], plays["rate"])
    source = scores if plays["servers"] is None else topic_of(scores, plays["servers"])
    return pipeline(source, _database(Path(plays["home"])))


@contextmanager
def _shown(home: Path, asked: Asked, log: Log, view: View) -> Iterator[Callable[[str], None]]:
    """The demo in the browser: whatever is said, the link is told with it."""
    told = [""]

    def say(text: str) -> None:
        told[0] = text
        view.say(f"{text}\nDashboard: {shown.url}")

    servers = log.source.servers if isinstance(log.source, Kafka) else None
    remember(home / "checkpoint")
    try:
        plays = {**asdict(asked), "home": str(home.absolute()), "servers": servers}
        shown = Beside(plays, lambda _: say(told[0]))
    except SetupError as problem:
        # The job is what counts.
        why = f"No dashboard: {problem}"
        yield lambda text: view.say(f"{text}\n{why}")
        return
    with shown:
        yield say


def _played(log: Log, asked: Asked, home: Path, view: View, say: Callable[[str], None]) -> Recount | None:
    """The job's answers and those of a batch job over the whole log; None if it was stopped before its end."""
    say(f"Starting Spark; the run is kept in {home}")
    started = time.monotonic()
    job: Job = pipeline(log.source, _database(home)).run(checkpoint=home / "checkpoint", listener=view.delivered)
    _note(home, asked, complete=False)
    say(f"Spark is up after {time.monotonic() - started:.0f} s; its workers warm up, then the stream starts")
    try:
        log.await_end(job)
    except KeyboardInterrupt:
        job.stop()
        return None
    _note(home, asked, complete=True)
    return recount_log(log.records(job), _database(home), WINDOW_SECONDS)


def _database(home: Path) -> Path:
    return home / "scores.db"


def _conclude(console: Console, result: Recount, home: Path, more: str) -> None:
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
    advice = (_ADVICE + more).format(database=_database(home), home=home, strandline=_program())
    console.print(f"{windows}; {letters}.\n\n{advice}", soft_wrap=True, highlight=False)


def _program() -> str:
    """What to type for this program: its name, or where it is if a shell would not find it."""
    beside = Path(sys.executable).with_name("strandline")
    return "strandline" if shutil.which("strandline") or not beside.exists() else os.path.relpath(beside)


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
