"""Declare the `strandline` command line and report its errors.

Each command imports its own module when it is called, so that `strandline version` loads neither Spark nor Polars.
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
from strandline.cli.commands.jobs import JOB_COMMANDS, alarms_app, config_app
from strandline.cli.commands.prove import prove_app
from strandline.cli.commands.replay import replay_app
from strandline.cli.commands.savepoint import lineage, plan, savepoint_app
from strandline.cli.commands.schema import schema_app
from strandline.cli.commands.state import state_app
from strandline.errors import StrandlineError

EXIT_REFUSED, EXIT_UNEXPECTED, EXIT_INTERRUPTED = 2, 1, 130

Home = Annotated[
    Path | None,
    typer.Option(help="The folder of the services. Default: STRANDLINE_SERVICES, or a folder in your user data."),
]

app = typer.Typer(
    name="strandline",
    help="Run the complete Dataflow model on Spark, from Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
)
app.add_typer(schema_app)
app.add_typer(dlq_app)
app.add_typer(config_app)
app.add_typer(alarms_app)
app.add_typer(prove_app)
for _command in JOB_COMMANDS:
    app.command()(_command)
app.command()(advise)
app.add_typer(savepoint_app)
app.command()(plan)
app.command()(lineage)
app.add_typer(replay_app)
app.add_typer(checkpoint_app)
app.add_typer(state_app)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False) -> None:
    """Run the complete Dataflow model on Spark, from Python."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("strandline"))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check the requirements of Spark. Prints a fix for each one that is not met."""
    from strandline.cli.actions.doctor import run

    raise typer.Exit(run(as_json=as_json))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the generator; the same seed gives the same events.")] = 7,
    events: Annotated[int, typer.Option(min=1, help="Number of events to send.")] = 15_000,
    rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 500,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the SQLite file and the checkpoint. Default: a new folder.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live screen.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Send the events through a topic of a real broker.")] = False,
    dashboard: Annotated[
        bool | None, typer.Option(help="Show the job in the browser too. Default: yes, unless --plain is given.")
    ] = None,
) -> None:
    """Run a demo pipeline. It shows late events, early panes and corrections, and counts every event."""
    from strandline.cli.demo.demo import run

    shown = not plain if dashboard is None else dashboard
    run(seed=seed, events=events, rate=rate, folder=folder, plain=plain, kafka=kafka, dashboard=shown)


@app.command()
def dashboard(  # noqa: PLR0913, PLR0917 - one option each
    places: Annotated[
        list[Path] | None,
        typer.Argument(help="Job folders, or folders that contain them. Default: the jobs started on this machine."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")] = 4270,
    pipeline: Annotated[
        list[str] | None, typer.Option(help="A pipeline, file.py:name, whose dead letters may be redriven.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow no changes from the dashboard.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in the browser.")] = False,
    bind: Annotated[
        str, typer.Option(help="The address to listen on; an address other than loopback needs TLS.")
    ] = "127.0.0.1",
    name: Annotated[list[str] | None, typer.Option(help="Another host name of the dashboard; may be repeated.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="The TLS certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="The private key of the certificate.")] = None,
) -> None:
    """Show jobs in the browser. Each job has its health, and the reason if it is unhealthy."""
    from strandline.cli.actions.dashboard import run

    names = tuple(name or ())
    served = {"port": port, "bind": bind, "names": names, "certificate": certificate, "key": key}
    run(places or [], pipelines=pipeline or [], open_browser=open_browser, read_only=read_only, **served)


@app.command()
def run(
    pipeline: Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="The job's folder; an existing job resumes. Default: the configured one.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="The batch interval. Default: no pause between batches.")] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process the data that is available, then end.")
    ] = False,
    by_arrival: Annotated[
        bool, typer.Option("--by-arrival", help="Process bounded input in its order of arrival.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live screen.")] = False,
) -> None:
    """Run a pipeline and show its progress. Ctrl-C stops the job; the same command resumes it.

    Example: `strandline run job.py:totals --checkpoint /data/jobs/totals`
    """
    from strandline.cli.actions.run import run

    chosen = {"available_now": available_now, "by_arrival": by_arrival}
    raise typer.Exit(run(pipeline, checkpoint=checkpoint, plain=plain, every=every, **chosen))


@app.command()
def lag(
    pipeline: Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")],
    checkpoint: Annotated[Path, typer.Option(help="The job's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the lag of a job. Shows each Kafka partition and folder; exit 1 if a partition is stalled or stopped."""
    from strandline.cli.actions.lag import run

    raise typer.Exit(run(pipeline, checkpoint=checkpoint, as_json=as_json))


@app.command()
def explain(
    pipeline: Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the stages of a pipeline. Shows where each runs, which data reaches Python and which state is kept.

    Example: `strandline explain job.py:totals`
    """
    from strandline.cli.actions.run import explain

    raise typer.Exit(explain(pipeline, as_json=as_json))


@app.command()
def compact(
    folder: Annotated[Path, typer.Argument(help="A folder that sl.folder(…) writes to.")],
    target_mb: Annotated[int, typer.Option(min=1, help="The target size of a file, in MiB.")] = 128,
    keep_seconds: Annotated[
        int, typer.Option(min=0, help="Seconds for which replaced files are kept for readers.")
    ] = 3_600,
) -> None:
    """Merge small files of a folder. Jobs may write to it and readers may read it at the same time."""
    from strandline.connectors.files import compact

    done = compact(folder, target_bytes=target_mb * 2**20, keep_seconds=keep_seconds)
    typer.echo(f"{done.before} files became {done.after}; {done.deleted} old ones were deleted")


@app.command()
def play(
    files: Annotated[list[Path], typer.Argument(help="Story files, or folders to search for *.story.yaml.")],
    on: Annotated[str, typer.Option(help="The player to use: reference, kernel or spark.")] = "kernel",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Play stories. Exit 0 if all of them hold, 1 with the differences if not, 2 if a file cannot be read."""
    from strandline.cli.actions.play import run

    raise typer.Exit(run(files, on, as_json=as_json))


bench = typer.Typer(help="Run the benchmarks of a checkout.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.callback()
def bench_options() -> None:
    """Run the benchmarks of a checkout."""


Quick = Annotated[bool, typer.Option("--quick", help="Run once with a tenth of the data.")]
Only = Annotated[list[str] | None, typer.Option(help="A row, a group or a cell to measure; may be repeated.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Number of rounds; each round runs every cell once.")]
Work = Annotated[Path | None, typer.Option(help="Folder for the test data and single runs. Default: a cache folder.")]
Again = Annotated[bool, typer.Option("--again", help="Repeat measurements that an earlier run has finished.")]


@bench.command()
def windows(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare windows with Spark. Also with hand-written code; verifies each result; resumes after an interrupt."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("windows", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def shapes(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare other shapes with Spark. Late-event storms, deduplication and unwindowed keys; verifies each result."""
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
def joins(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Join two streams by key and event time, against Spark's stream-stream join, each judged."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("joins.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def sources(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare Kafka sources with Spark. Windows over JSON and Avro records; verifies each result."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("sources", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def delivery(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare deliveries. Exactly-once with at-least-once, and upserts with plain JDBC; verifies each table."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("delivery", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def bounded(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare bounded runs. A folder run as one batch, as a stream, and as a plain batch job; verifies each result."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("bounded", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def nexmark(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare Nexmark queries with Spark. The log is out of order and partly late; verifies each result."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("nexmark.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def peers(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Compare with other systems. Tumbling windows; each system has its own environment, created at first use."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("peers.bench", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def scale(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Measure the cost of an event at scale. Events, keys, overlaps, partitions and cores grow; verifies results."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("scale", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def latency(
    quick: Quick = False, only: Only = None, rounds: Rounds = None, work: Work = None, again: Again = False
) -> None:
    """Measure the latency of panes. Early and on time, at fixed rates, with one setting changed at a time."""
    from strandline.cli.actions.bench import run_bench

    raise typer.Exit(run_bench("ladder", quick=quick, only=only or [], rounds=rounds, work=work, again=again))


@bench.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.5, help="Minutes for which events are sent.")] = 60,
    rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="Run for two minutes.")] = False,
    work: Work = None,
) -> None:
    """Check that memory and state stay constant. Samples every five seconds, and accounts for every event."""
    from strandline.cli.actions.bench import run_soak

    raise typer.Exit(run_soak(minutes, rate=rate, quick=quick, work=work))


@bench.command()
def profile(
    cell: Annotated[
        str, typer.Argument(help="A cell of `bench windows`, `shapes`, `sources`, `scale` or `nexmark`.")
    ] = "ours",
    quick: Quick = False,
    work: Work = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Profile one run. Shows CPU time by thread, work of the tasks and stages of the batches."""
    from strandline.cli.actions.bench import run_profile

    raise typer.Exit(run_profile(cell, quick=quick, work=work, as_json=as_json))


@app.command()
def up(
    names: Annotated[list[str], typer.Argument(help="The services to start: kafka, postgres, registry, valkey.")],
    home: Home = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port. Default: a free one.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="A Kafka topic to create, name or name:partitions; may be repeated.")
    ] = None,
) -> None:
    """Start services on this machine. They need no containers and run until `strandline down`."""
    from strandline.cli.actions.services import up

    up(names, home=home, port=port, topics=topic or ())


@app.command()
def down(
    names: Annotated[list[str] | None, typer.Argument(help="The services to stop. Default: all of them.")] = None,
    home: Home = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete their data too.")] = False,
) -> None:
    """Stop services that `strandline up` started. Their data is kept."""
    from strandline.cli.actions.services import down

    down(names or (), home=home, wipe=wipe)


@app.command()
def status(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="A job's folder; without it, the services are shown.")
    ] = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the status of a job, or of the services.

    Example: `strandline status /data/jobs/scores`
    """
    if checkpoint is not None:
        from strandline.cli.actions.jobs import run_status

        raise typer.Exit(run_status(checkpoint, as_json=as_json))
    from strandline.cli.actions.services import status

    status(home=home, as_json=as_json)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="The service.")],
    home: Home = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines to print.")] = 20,
) -> None:
    """Print the end of a service's log."""
    from strandline.cli.actions.services import logs

    logs(name, home=home, follow=follow, lines=lines)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command. An error becomes a message and an exit code; --debug adds the traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    # --debug is accepted after the command too: users append it to the line that just failed.
    given = [word for word in given if word != "--debug"]
    try:
        app(given, prog_name="strandline")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except StrandlineError as error:
        _print_error(error.message, error.detail, error.hint, debug=debug)
        sys.exit(EXIT_REFUSED)
    except Exception as error:  # noqa: BLE001 - the outermost handler: one line, with --debug the full traceback
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        _print_error(
            f"unexpected: {what}", "", "" if debug else "run again with --debug for the traceback", debug=debug
        )
        sys.exit(EXIT_UNEXPECTED)
    sys.exit(0)


def _print_error(message: str, detail: str, hint: str, *, debug: bool) -> None:
    from rich.text import Text

    from strandline.cli.terminal import indented, safe_console, say_lines

    console = safe_console(stderr=True, highlight=False, soft_wrap=True)
    if debug:
        say_lines(traceback.format_exc(), file=sys.stderr, end="")
    console.print(Text.assemble(("error: ", "bold red"), indented(message)))
    if detail:
        console.print(Text("  " + indented(detail), "dim"))
    if hint:
        console.print(Text.assemble(("  hint: ", "bold"), indented(hint)))
