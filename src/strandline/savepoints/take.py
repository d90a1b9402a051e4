"""Taking a savepoint: what a job keeps and where it stands at the end of a batch, while it runs or after it stopped."""

import shutil
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from strandline.checkpoint.hardlink_snapshot import held
from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.errors import SavepointError
from strandline.kernel.operator import Exported
from strandline.kernel.state_export import export, with_group_numbers
from strandline.kernel.watermarks import NEVER
from strandline.plan.upgrade.definitions import Definition, name_of, read_definition
from strandline.ports.ledger import Sealed
from strandline.savepoints.files import Draft, Manifest, Savepoint, SinkPosition, StepFiles
from strandline.savepoints.state_reader import JobState, committed_batch, read_snapshot
from strandline.spark.backfill import keep, plan_at, plan_in


def create(spark: SparkSession, checkpoint: str | Path, to: str | Path, *, batch: int | None = None) -> Savepoint:
    """A savepoint of the job in `checkpoint`, in the new folder `to`: of its last batch, or of an earlier one.

    A running job is not stopped and does not notice: its files are held by links while they are read.
    """
    home, draft = Checkpoint(Path(checkpoint).absolute()), Draft(Path(to).absolute())
    try:
        with held(home) as still:
            return draft.finish(_written(spark, still, draft, batch))
    except BaseException:
        draft.discard()
        raise


def _written(spark: SparkSession, still: Checkpoint, draft: Draft, batch: int | None) -> Manifest:
    identity, at = still.identity, committed_batch(still, batch)
    state = read_snapshot(spark, still, at)
    definition = read_definition(identity.definition)
    _require_whole(state, identity, definition)
    sealed = position_at(still, at)
    steps = [_step(draft, state, number, identity, definition) for number in state.steps]
    _copy_sources(still.spark / "sources", draft.at / "sources")
    plan = plan_in(still.folder)
    if plan is not None:
        keep(draft.at, plan_at(plan, still.positions(at)))
    noted = still.noted(at)
    epochs = () if noted is None else noted.epochs
    sinks = [
        SinkPosition(name_of(sink), identity.lineage, epochs[n] if n < len(epochs) else None, at, sealed.digest)
        for n, sink in enumerate(definition.sinks)
    ]
    return Manifest(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=version("strandline"),
        batch=at,
        clock=still.clock(at),
        watermark=min((int(each.progress["watermark"]) for each in steps), default=NEVER),
        identity=identity,
        positions=still.positions(at),
        digest=sealed.digest,
        ends=sealed.ends or "",
        partitions=1 + max((each.partition for each in state.groups), default=0),
        steps=tuple(steps),
        sinks=tuple(sinks),
        files={},
    )


def position_at(still: Checkpoint, batch: int) -> Sealed:
    """By what a ledger knows a batch: what it was sealed with, computed again from the logs."""
    moves = still.identity.moves
    if still.in_spark(batch) == 0 and moves:
        # The savepoint that this job came from: its own entry in the log was written by the restore.
        return Sealed(str(moves[-1]["digest"]), None, str(moves[-1]["ends"]))
    sealed = still.seal(batch)
    if sealed.starts is None and still.in_spark(batch) > 0:
        raise SavepointError(
            f"batch {batch} is the oldest of which anything is kept, and where it began is not",
            hint=f"name batch {batch + 1} or a later one",
        )
    return sealed


def _require_whole(state: JobState, identity: Identity, definition: Definition) -> None:
    """A keyed step that has heard of anything keeps something in every key group."""
    for number in state.steps:
        groups = [each.group for each in state.of_step(number)]
        if number >= len(definition.steps) or groups != [*range(identity.key_groups)]:
            raise SavepointError(
                "the state is not that of the definition beside it",
                detail=f"step {number} has key groups {groups}, and should have {identity.key_groups}",
                hint="the checkpoint is damaged: restore it from a copy",
            )


def _step(draft: Draft, state: JobState, number: int, identity: Identity, definition: Definition) -> StepFiles:
    keys = tuple(definition.steps[number]["keys"])
    moved: Exported = export(each.blocks for each in state.of_step(number))
    frames: dict[str, pl.DataFrame] = {
        name: with_group_numbers(frame, keys, identity.key_groups) for name, frame in moved.frames.items()
    }
    return draft.step(number, keys, moved, frames)


def _copy_sources(was: Path, to: Path) -> None:
    """What sources wrote down for themselves; checksums beside the files are Hadoop's, and made anew."""
    if was.is_dir():
        shutil.copytree(was, to, ignore=shutil.ignore_patterns(".*"))
