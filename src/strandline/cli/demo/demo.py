"""Run the demo: out-of-order, partly broken scores become early, on-time and late totals on the screen."""

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
from strandline.cli.demo.dashboard_process import DashboardProcess
from strandline.cli.demo.kafka import KafkaLog, topic_of
from strandline.cli.demo.log import GeneratedLog, Log
from strandline.cli.demo.recount import Recount, recount_log
from strandline.cli.live_view import LiveView, PlainView, View
from strandline.connectors.kafka import Kafka
from strandline.connectors.scores import TEAMS, Scores
from strandline.errors import SetupError, StateError
from strandline.observe.known_jobs import remember
from strandline.spark.job import Job

WINDOW_SECONDS: Final = 5
_RUNS: Final = Path("strandline-demo")
_ADVICE: Final = """All results are in {database}: every pane in `totals`, the latest panes in `totals_now`,
refused records with their reasons in `totals_late` and `totals_dead`. Try next:
  sqlite3 {database} "SELECT * FROM totals WHERE team = 'red' ORDER BY window_start, pane_index"
  sqlite3 {database} "SELECT reason, count(*) FROM totals_dead GROUP BY 1"
  {strandline} dashboard {home}   open this run in the browser, at any time
  ./demo --seed 8        run another stream; kill it in the middle, start it again, and it resumes"""
_KAFKA_ADVICE: Final = """
  {strandline} up kafka --home {home}   start the broker again, with every record of the topic `scores`"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options that define the demo's stream."""

    seed: int
    events: int
    rate: int
    kafka: bool = False


def pipeline(source: Scores | Kafka, database: Path) -> sl.Pipeline:
    """Build the demo's pipeline: the four questions, one line each."""
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
    """Run the demo to its end or until Ctrl-C; the next start resumes it."""
    console = Console()
    options = DemoOptions(seed, events, rate, kafka)
    source = Scores(seed, events, rate)
    home = folder if folder is not None else _next_run(options)
    view: View = (PlainView if plain or not console.is_terminal else LiveView)(console, "strandline demo")
    result: Recount | None = None
    try:
        with (
            KafkaLog(source, home, view.say) if kafka else GeneratedLog(source, home) as log,
            _with_dashboard(home, options, log, view) if dashboard else nullcontext(view.say) as say,
        ):
            result = _run_and_recount(log, options, home, view, say)
    finally:
        view.close()
    if result is None:
        stopped = f"Stopped. Run the same command again to resume from the checkpoint in {home}."
        console.print(stopped, soft_wrap=True, markup=False)
        return
    _print_result(console, result, home, _KAFKA_ADVICE if kafka else "")


def pipeline_of(demo: Mapping[str, Any]) -> sl.Pipeline:
    """Return the pipeline of a demo that is described in plain values, as sent to its dashboard."""
    scores = Scores(demo["seed"], demo["events"], demo["rate"])
    source = scores if demo["servers"] is None else topic_of(scores, demo["servers"])
    return pipeline(source, _database(Path(demo["home"])))


@contextmanager
def _with_dashboard(home: Path, options: DemoOptions, log: Log, view: View) -> Iterator[Callable[[str], None]]:
    """Start the demo's dashboard; yield a function that shows a message together with the dashboard's link."""
    last = [""]

    def say(text: str) -> None:
        last[0] = text
        view.say(f"{text}\nDashboard: {shown.url}")

    servers = log.source.servers if isinstance(log.source, Kafka) else None
    remember(home / "checkpoint")
    try:
        demo = {**asdict(options), "home": str(home.absolute()), "servers": servers}
        shown = DashboardProcess(demo, lambda _: say(last[0]))
    except SetupError as problem:
        # The demo works without a dashboard.
        why = f"No dashboard: {problem}"
        yield lambda text: view.say(f"{text}\n{why}")
        return
    with shown:
        yield say


def _run_and_recount(
    log: Log, options: DemoOptions, home: Path, view: View, say: Callable[[str], None]
) -> Recount | None:
    """Run the job, then recount its results from the whole log; None if the job was stopped before its end."""
    say(f"Starting Spark; the run is kept in {home}")
    started = time.monotonic()
    job: Job = pipeline(log.source, _database(home)).run(checkpoint=home / "checkpoint", listener=view.delivered)
    _write_status(home, options, complete=False)
    say(f"Spark is up after {time.monotonic() - started:.0f} s; its workers warm up, then the stream starts")
    try:
        log.await_end(job)
    except KeyboardInterrupt:
        job.stop()
        return None
    _write_status(home, options, complete=True)
    return recount_log(log.records(job), _database(home), WINDOW_SECONDS)


def _database(home: Path) -> Path:
    return home / "scores.db"


def _print_result(console: Console, result: Recount, home: Path, more: str) -> None:
    table = Table(title="Final totals: the stream compared with a batch job over the whole log")
    for name in ("team", "stream", "late", "stream + late", "batch job", ""):
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
    windows = f"All {len(result.batch)} totals by team and window agree"
    letters = f"{result.dead} records are dead letters, and {result.unreadable} records in the log are broken"
    advice = (_ADVICE + more).format(database=_database(home), home=home, strandline=_program())
    console.print(f"{windows}; {letters}.\n\n{advice}", soft_wrap=True, highlight=False, markup=False)


def _program() -> str:
    """Return the command to type for this program: its name, or its path if the shell would not find it."""
    beside = Path(sys.executable).with_name("strandline")
    return "strandline" if shutil.which("strandline") or not beside.exists() else os.path.relpath(beside)


def _next_run(options: DemoOptions) -> Path:
    """Return the latest run if it is unfinished and has the same options; else a new one."""
    runs = sorted(_RUNS.glob("run-*"), key=lambda path: int(path.name[4:]))
    if runs and _is_unfinished(runs[-1], options):
        return runs[-1]
    return _RUNS / f"run-{int(runs[-1].name[4:]) + 1 if runs else 1}"


def _is_unfinished(home: Path, options: DemoOptions) -> bool:
    try:
        written = json.loads((home / "run.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(written == {**asdict(options), "complete": False})


def _write_status(home: Path, options: DemoOptions, *, complete: bool) -> None:
    (home / "run.json").write_text(json.dumps({**asdict(options), "complete": complete}) + "\n")
