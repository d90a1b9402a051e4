"""Declare the `strandline dlq` commands."""

from typing import Annotated

import typer

dlq_app = typer.Typer(name="dlq", help="Inspect, redrive and drop dead letters.", no_args_is_help=True)

PipelineArgument = Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(help="Ids of letters, or prefixes of ids.")]
ReasonOption = Annotated[str | None, typer.Option(help="Only letters with this reason.")]
StepOption = Annotated[str | None, typer.Option(help="Only letters of this step.")]
SourceOption = Annotated[str | None, typer.Option(help="Only letters of this source.")]
StateOption = Annotated[str | None, typer.Option(help="Only letters in this state: new or redriven.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every letter.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dlq_app.command("list")
def dlq_list(
    pipeline: PipelineArgument,
    reason: ReasonOption = None,
    step: StepOption = None,
    source: SourceOption = None,
    state: StateOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of letters to print.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the letters, newest first."""
    from strandline.cli.actions.dlq import LetterFilter, run_list

    letter_filter = LetterFilter(reason=reason, step=step, source=source, state=state)
    raise typer.Exit(run_list(pipeline, letter_filter, limit=limit, as_json=as_json))


@dlq_app.command("show")
def dlq_show(
    pipeline: PipelineArgument,
    letter: Annotated[str, typer.Argument(help="The id of the letter, or a prefix of it.")],
    raw: Annotated[bool, typer.Option("--raw", help="Print only the original bytes of the record.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print all fields of one letter."""
    from strandline.cli.actions.dlq import run_show

    raise typer.Exit(run_show(pipeline, letter, raw=raw, as_json=as_json))


@dlq_app.command("count")
def dlq_count(
    pipeline: PipelineArgument,
    by: Annotated[
        str, typer.Option(help="reason, step, source, source_partition, exception, schema_id or state.")
    ] = "reason",
    reason: ReasonOption = None,
    step: StepOption = None,
    source: SourceOption = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count letters by reason or another field."""
    from strandline.cli.actions.dlq import LetterFilter, run_count

    letter_filter = LetterFilter(reason=reason, step=step, source=source, state=state)
    raise typer.Exit(run_count(pipeline, letter_filter, by=by, as_json=as_json))


@dlq_app.command("redrive")
def dlq_redrive(  # noqa: PLR0913, PLR0917 - one option each
    pipeline: PipelineArgument,
    letters: IdsArgument = None,
    reason: ReasonOption = None,
    step: StepOption = None,
    source: SourceOption = None,
    every: AllOption = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send records back to their sources. Each is sent once; exit 1 if a record cannot be sent."""
    from strandline.cli.actions.dlq import LetterFilter, run_redrive

    # Letters already redriven are skipped, unless their ids are given: then the report says so.
    letter_filter = LetterFilter(tuple(letters or ()), reason, step, source, None if letters else "new", every)
    raise typer.Exit(run_redrive(pipeline, letter_filter, dry=dry, as_json=as_json))


@dlq_app.command("drop")
def dlq_drop(  # noqa: PLR0913, PLR0917 - one option each
    pipeline: PipelineArgument,
    letters: IdsArgument = None,
    reason: ReasonOption = None,
    step: StepOption = None,
    source: SourceOption = None,
    state: StateOption = None,
    every: AllOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete letters permanently."""
    from strandline.cli.actions.dlq import LetterFilter, run_drop

    letter_filter = LetterFilter(tuple(letters or ()), reason, step, source, state, every)
    raise typer.Exit(run_drop(pipeline, letter_filter, yes=yes, as_json=as_json))
