"""The front of the command line: which words there are, and how an error is told.

Every command imports its own module when it is called, so that `strandline version` loads neither Spark nor Polars.
"""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from strandline.cli.commands.advise import advise
from strandline.cli.commands.checkpoint import checkpoint_app
from strandline.cli.commands.dlq import dlq_app
from strandline.cli.commands.jobs import WORDS, alarms_app, config_app
from strandline.cli.commands.prove import prove_app
from strandline.cli.commands.replay import replay_app
from strandline.cli.commands.savepoint import lineage, plan, savepoint_app
from strandline.cli.commands.schema import schema_app
from strandline.cli.commands.state import state_app
from strandline.errors import StrandlineError

REFUSED, UNEXPECTED, INTERRUPTED = 2, 1, 130

Home = Annotated[
    Path | None,
    typer.Option(help="The folder of the services; if not given, STRANDLINE_SERVICES or one among your data."),
]

app = typer.Typer(
    name="strandline",
    help="The whole Dataflow model on Spark, from Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
)
app.add_typer(schema_app)
app.add_typer(dlq_app)
app.add_typer(config_app)
app.add_typer(alarms_app)
app.add_typer(prove_app)
for _word in WORDS:
    app.command()(_word)
app.command()(advise)
app.add_typer(savepoint_app)
app.command()(plan)
app.command()(lineage)
app.add_typer(replay_app)
app.add_typer(checkpoint_app)
app.add_typer(state_app)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """Runs the whole Dataflow model on Spark, from Python."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("strandline"))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at this machine: each thing Spark needs, and the fix where one is missing."""
    from strandline.cli.actions.doctor import run

    raise typer.Exit(run(as_json=as_json))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 7,
    events: Annotated[int, typer.Option(min=1, help="How many events to send.")] = 15_000,
    rate: Annotated[int, typer.Option(min=1, help="Events a second.")] = 500,
    folder: Annotated[
        Path | None, typer.Option(help="Where the SQLite file and the checkpoint go; a new one if not given.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live screen.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Send the events to a topic of a real broker first.")] = False,
    dashboard: Annotated[
        bool | None, typer.Option(help="Show it in the browser too; if not said, unless --plain is.")
    ] = None,
) -> None:
    """Play a live pipeline: late events, early panes, corrections, and nothing lost."""
    from strandline.cli.demo.demo import run

    shown = not plain if dashboard is None else dashboard
    run(seed=seed, events=events, rate=rate, folder=folder, plain=plain, kafka=kafka, dashboard=shown)


@app.command()
def dashboard(  # noqa: PLR0913, PLR0917 - one option each
    places: Annotated[
        list[Path] | None, typer.Argument(help="Folders of jobs, or folders that jobs lie in; else those started here.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 4270,
    pipeline: Annotated[
        list[str] | None, typer.Option(help="A pipeline, file.py:name, whose dead letters may be sent back.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed from it.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    bind: Annotated[
        str, typer.Option(help="The address to listen at; others than this machine's need TLS.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="Another name that it is called by; may be given again.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A certificate, for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
) -> None:
    """Show jobs in the browser: whether each is well, and if not, why."""
    from strandline.cli.actions.dashboard import run

    names = tuple(name or ())
    served = {"port": port, "bind": bind, "names": names, "certificate": certificate, "key": key}
    run(places or [], pipelines=pipeline or [], open_browser=open_browser, read_only=read_only, **served)


@app.command()
def run(
    pipeline: Annotated[str, typer.Argument(help="Where it is: file.py:name or package.module:name.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="The job's folder; a run that finds one there goes on. Else as configured.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="How often a batch starts; at once if not said.")] = None,
    available_now: Annotated[bool, typer.Option("--available-now", help="Read what is there, then end.")] = False,
    by_arrival: Annotated[
        bool, typer.Option("--by-arrival", help="Play input that ends in the order in which it came.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live screen.")] = False,
) -> None:
    """Run a pipeline and watch it: Ctrl-C stops it, the same command goes on.

    Example: `strandline run job.py:totals --checkpoint /data/jobs/totals`
    """
    from strandline.cli.actions.run import run

    asked = {"available_now": available_now, "by_arrival": by_arrival}
    raise typer.Exit(run(pipeline, checkpoint=checkpoint, plain=plain, every=every, **asked))


@app.command()
def lag(
    pipeline: Annotated[str, typer.Argument(help="Where it is: file.py:name or package.module:name.")],
    checkpoint: Annotated[Path, typer.Option(help="The job's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """How far a job is behind its topics, per partition, and its folders; exit 1 if one is stalled or stopped."""
    from strandline.cli.actions.lag import run

    raise typer.Exit(run(pipeline, checkpoint=checkpoint, as_json=as_json))


@app.command()
def explain(
    pipeline: Annotated[str, typer.Argument(help="Where it is: file.py:name or package.module:name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Print the stages of a pipeline: what runs where, what crosses to Python, what is kept.

    Example: `strandline explain job.py:totals`
    """
    from strandline.cli.actions.run import explain

    raise typer.Exit(explain(pipeline, as_json=as_json))


@app.command()
def compact(
    folder: Annotated[Path, typer.Argument(help="A folder that sl.folder(…) writes to.")],
    target_mb: Annotated[int, typer.Option(min=1, help="How large a file may become, in MiB.")] = 128,
    keep_seconds: Annotated[int, typer.Option(min=0, help="How long replaced files are kept for readers.")] = 3_600,
) -> None:
    """Make few files of many, while jobs write and others read."""
    from strandline.connectors.files import compact

    done = compact(folder, target_bytes=target_mb * 2**20, keep_seconds=keep_seconds)
    typer.echo(f"{done.before} files became {done.after}; {done.deleted} old ones were deleted")


@app.command()
def play(
    files: Annotated[list[Path], typer.Argument(help="Stories, or folders in which *.story.yaml are looked for.")],
    on: Annotated[str, typer.Option(help="The player: reference, kernel or spark.")] = "kernel",
    as_json: Annotated[bool, typer.Option("--json", help="Print what happened as JSON.")] = False,
) -> None:
    """Play stories: exit 0 if all hold, 1 with the differences if not, 2 if one cannot be read."""
    from strandline.cli.actions.play import run

    raise typer.Exit(run(files, on, as_json=as_json))


bench = typer.Typer(
    help="Measure, in a checkout: how fast, against what, and was the answer right.", no_args_is_help=True
)
app.add_typer(bench, name="bench")


@bench.callback()
def bench_options() -> None:
    """Measures, in a checkout: how fast, against what, and was the answer right."""


Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the size, once: to try it out.")]
Only = Annotated[list[str] | None, typer.Option(help="A row, a group or a cell; may be given again.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="How often everything is repeated, in turns.")]
Work = Annotated[Path | None, typer.Option(help="Where corpora and single runs are kept; a cache otherwise.")]
Again = Annotated[bool, typer.Option("--again", help="Measure anew what an earlier run has measured.")]


@bench.command()
def windows(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Windows against Spark's own and hand-written ones, each checked by a judge; goes on where it was interrupted."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("windows", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def shapes(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """A storm of late events, each event once, keys without windows: against Spark's own, each checked by a judge."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("shapes", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def dedupe(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Deduplicate a stream of two million live ids, against Spark's dropDuplicatesWithinWatermark, each judged."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("dedupe.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def sources(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Windows over Kafka's records, in JSON and in Avro, against Spark's own, each checked by a judge."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("sources", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def delivery(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Exactly once against at least once on the same sink, and upserts against JDBC by hand, each table judged."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("delivery", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def bounded(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """A folder that ends, as one batch: against our own stream and a plain batch job, each checked by a judge."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("bounded", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def nexmark(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """The questions of Nexmark over a log that is out of order and partly late, against Spark's own, each judged."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("nexmark.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def peers(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Tumbling windows against other systems, each in an environment of its own that is made when it is first asked."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("peers.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def scale(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """What an event costs as events, keys, overlaps, partitions and cores grow, each checked by a judge."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("scale", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def latency(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """How soon panes are seen at fixed rates, early and on time, with one setting changed at a time."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("ladder", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long events come.")] = 60,
    rate: Annotated[int, typer.Option(min=1, help="Events a second.")] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="Two minutes: to try it out.")] = False,
    work: Work = None,
) -> None:
    """Whether memory and state of a job stay as they are, looked at every five seconds; every event accounted for."""
    from strandline.cli.actions.bench import run_soak

    raise typer.Exit(run_soak(minutes, rate=rate, quick=quick, work=work))


@bench.command()
def profile(
    cell: Annotated[
        str, typer.Argument(help="A cell of `bench windows`, `shapes`, `sources`, `scale` or `nexmark`.")
    ] = "ours",
    quick: Quick = False,
    work: Work = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Where the time of one run goes: CPU time by thread, what tasks did, and the stages of batches."""
    from strandline.cli.actions.bench import run_profile

    raise typer.Exit(run_profile(cell, quick=quick, work=work, as_json=as_json))


@app.command()
def up(
    names: Annotated[list[str], typer.Argument(help="Which services: kafka, postgres, registry, valkey.")],
    home: Home = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port; if not given, a free one.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="A topic of Kafka to make: name or name:partitions.")] = None,
) -> None:
    """Start real services on this machine, without a container; they run until `strandline down`."""
    from strandline.cli.actions.services import up

    up(names, home=home, port=port, topics=topic or ())


@app.command()
def down(
    names: Annotated[list[str] | None, typer.Argument(help="Which services; all of them if none is named.")] = None,
    home: Home = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete their data too.")] = False,
) -> None:
    """Stop services that `strandline up` started. Their data stay."""
    from strandline.cli.actions.services import down

    down(names or (), home=home, wipe=wipe)


@app.command()
def status(
    checkpoint: Annotated[Path | None, typer.Argument(help="A job's folder; without one, services are told.")] = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Tell how a job is, or which services run.

    Example: `strandline status /data/jobs/scores`
    """
    if checkpoint is not None:
        from strandline.cli.actions.jobs import run_status

        raise typer.Exit(run_status(checkpoint, as_json=as_json))
    from strandline.cli.actions.services import status

    status(home=home, as_json=as_json)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="Which service.")],
    home: Home = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows; Ctrl-C ends it.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines of its end.")] = 20,
) -> None:
    """Show the end of a service's log."""
    from strandline.cli.actions.services import logs

    logs(name, home=home, follow=follow, lines=lines)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command; an error becomes a message and an exit code, a traceback only with --debug."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    # Accepted behind the command too: it is what one adds at the end of a line that just failed.
    words = [word for word in words if word != "--debug"]
    try:
        app(words, prog_name="strandline")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except StrandlineError as error:
        _tell(error.message, error.detail, error.hint, debug=debug)
        sys.exit(REFUSED)
    except Exception as error:  # noqa: BLE001 - the outermost place: told in one line, with --debug in full
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        _tell(f"unexpected: {what}", "", "" if debug else "run again with --debug for the traceback", debug=debug)
        sys.exit(UNEXPECTED)
    sys.exit(0)


def _tell(message: str, detail: str, hint: str, *, debug: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if debug:
        traceback.print_exc()
    console.print(Text.assemble(("error: ", "bold red"), message))
    if detail:
        console.print(Text("  " + detail, "dim"))
    if hint:
        console.print(Text.assemble(("  hint: ", "bold"), hint))
