"""Run the demo: aggregate a stream of scores, out of order and partly broken, and check the totals with a batch job."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
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
from strandline.cli.terminal import safe_console
from strandline.connectors.kafka import Kafka
from strandline.connectors.scores import TEAMS, Scores
from strandline.errors import StateError
from strandline.observe.known_jobs import remember
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.job import Job

WINDOW_SECONDS: Final = 5
_RUNS: Final = Path("strandline-demo")
_ADVICE: Final = """Everything is in {database}: every pane in `totals`, the latest one of each window in `totals_now`,
late events in `totals_late`, broken records with their reasons in `totals_dead`. Try next:
  sqlite3 {database} "SELECT * FROM totals WHERE team = 'red' ORDER BY window_start, pane_index"
  sqlite3 {database} "SELECT reason, count(*) FROM totals_dead GROUP BY 1"
  {strandline} dashboard {home}   this run in the browser, at any time
  ./demo --seed 8        another stream; kill it in the middle, start it again, and it goes on"""
_KAFKA_ADVICE: Final = """
  {strandline} up kafka --home {home}   the broker again, with every record of the topic `scores`"""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The command line options that define the stream. A run goes on only with the same ones."""

    seed: int
    events: int
    rate: int
    kafka: bool = False


def pipeline(source: Scores | Kafka, database: Path) -> sl.Pipeline:
    """Define the demo's pipeline. Each of the four questions of the Dataflow model is a line or two."""
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
    """Run the demo to its end, or until Ctrl-C; the next start resumes from its checkpoint."""
    console = safe_console()
    options = StreamOptions(seed, events, rate, kafka)
    source = Scores(seed, events, rate)
    home = folder if folder is not None else _next_run(options)
    view: View = (PlainView if plain or not console.is_terminal else LiveView)(console, "strandline demo")
    result: Recount | None = None
    try:
        with (
            KafkaLog(source, home, view.say) if kafka else GeneratedLog(source, home) as log,
            _with_dashboard(home, options, log, view) if dashboard else nullcontext(view) as shown,
        ):
            result = _run_job(log, options, home, shown)
    finally:
        view.close()
    if result is None:
        console.print(f"Stopped. Run the same command again: it resumes from its checkpoint in {home}.", soft_wrap=True)
        return
    _conclude(console, result, home, _KAFKA_ADVICE if kafka else "")


def pipeline_of(definition: Mapping[str, Any]) -> sl.Pipeline:
    """Rebuild the pipeline in the dashboard's process from the plain values that the demo sends."""
    scores = Scores(definition["seed"], definition["events"], definition["rate"])
    source = scores if definition["servers"] is None else topic_of(scores, definition["servers"])
    return pipeline(source, _database(Path(definition["home"])))


@contextmanager
def _with_dashboard(home: Path, options: StreamOptions, log: Log, view: View) -> Iterator[View]:
    """Show the run in the browser too, from its first panes on."""
    remember(home / "checkpoint")
    servers = log.source.servers if isinstance(log.source, Kafka) else None
    linked = LinkedView(view, {**asdict(options), "home": str(home.absolute()), "servers": servers})
    try:
        yield linked
    finally:
        linked.end()


class LinkedView:
    """A view that starts the dashboard's process with the first panes, and shows its link.

    Started together with Spark, the process takes a second of CPU time away from the JVM, and the first pane comes
    later.
    """

    def __init__(self, view: View, definition: dict[str, Any]) -> None:
        self._view, self._definition = view, definition
        self._process: DashboardProcess | None = None
        self._is_started = False

    def say(self, text: str) -> None:
        self._view.say(text)

    def delivered(self, batch: Delivered) -> None:
        """Show a batch. Called after each commit."""
        self._view.delivered(batch)
        panes = batch.output.panes
        if not self._is_started and panes is not None and not panes.is_empty():
            self._is_started = True
            try:
                self._process = DashboardProcess(self._definition, self._view.say)
            except OSError as problem:  # the job must not fail because of its dashboard
                self._view.say(f"No dashboard: {problem}")

    def close(self) -> None:
        self._view.close()

    def end(self) -> None:
        """Tell the dashboard's process that the demo has ended."""
        if self._process is not None:
            self._process.close()


def _run_job(log: Log, options: StreamOptions, home: Path, view: View) -> Recount | None:
    """Run the job, then compute the same totals with a batch job over the whole log; None if the job was stopped."""
    view.say(f"Starting Spark; the run is kept in {home}")
    started = time.monotonic()
    job: Job = pipeline(log.source, _database(home)).run(checkpoint=home / "checkpoint", listener=view.delivered)
    _save_options(home, options, complete=False)
    view.say(f"Spark is up after {time.monotonic() - started:.0f} s; its workers warm up, then the stream starts")
    try:
        log.await_end(job)
    except KeyboardInterrupt:
        job.stop()
        return None
    _save_options(home, options, complete=True)
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
    """Return what to type for this program: its name, or its path if it is not on PATH."""
    installed = Path(sys.executable).with_name("strandline")
    return "strandline" if shutil.which("strandline") or not installed.exists() else os.path.relpath(installed)


def _next_run(options: StreamOptions) -> Path:
    """Return the folder of the latest run if it is unfinished and has the same options; else a new folder."""
    runs = sorted(_RUNS.glob("run-*"), key=lambda path: int(path.name[4:]))
    if runs and _is_unfinished(runs[-1], options):
        return runs[-1]
    return _RUNS / f"run-{int(runs[-1].name[4:]) + 1 if runs else 1}"


def _is_unfinished(home: Path, options: StreamOptions) -> bool:
    try:
        saved = json.loads((home / "run.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(saved == {**asdict(options), "complete": False})


def _save_options(home: Path, options: StreamOptions, *, complete: bool) -> None:
    (home / "run.json").write_text(json.dumps({**asdict(options), "complete": complete}) + "\n")
