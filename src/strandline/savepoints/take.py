"""Take a savepoint: the state and the offsets at the end of a batch, of a running or a stopped job."""

import shutil
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from strandline.checkpoint.hardlink_snapshot import snapshot
from strandline.checkpoint.job_folder import Checkpoint, Identity, write_durably
from strandline.checkpoint.log_identities import LOGS, as_text, read_identities
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
    """Save the job in `checkpoint` to the new folder `to`: its last batch, or an earlier one.

    A running job is not stopped: hard links keep its files while they are read.
    """
    home, draft = Checkpoint(Path(checkpoint).absolute()), Draft(Path(to).absolute())
    try:
        with snapshot(home) as frozen:
            return draft.finish(_written(spark, frozen, draft, batch))
    except BaseException:
        draft.discard()
        raise


def _written(spark: SparkSession, frozen: Checkpoint, draft: Draft, batch: int | None) -> Manifest:
    identity, at = frozen.identity, committed_batch(frozen, batch)
    state = read_snapshot(spark, frozen, at)
    definition = read_definition(identity.definition)
    _require_whole(state, identity, definition)
    sealed = position_at(frozen, at)
    steps = [_step(draft, state, number, identity, definition) for number in state.steps]
    _copy_sources(frozen.spark / "sources", draft.at / "sources")
    plan = plan_in(frozen.folder)
    if plan is not None:
        keep(draft.at, plan_at(plan, frozen.positions(at)))
    logs = read_identities(frozen.folder)
    if logs:
        write_durably(draft.at / LOGS, as_text(logs))
    noted = frozen.noted(at)
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
        clock=frozen.clock(at),
        watermark=min((int(each.progress["watermark"]) for each in steps), default=NEVER),
        identity=identity,
        positions=frozen.positions(at),
        digest=sealed.digest,
        ends=sealed.ends or "",
        partitions=1 + max((each.partition for each in state.groups), default=0),
        steps=tuple(steps),
        sinks=tuple(sinks),
        files={},
    )


def position_at(frozen: Checkpoint, batch: int) -> Sealed:
    """Return the range of a batch as its ledger entry identifies it, computed again from the logs of the checkpoint."""
    moves = frozen.identity.moves
    if frozen.in_spark(batch) == 0 and moves:
        # This is the savepoint that the job was restored from. The restore wrote this log entry itself.
        return Sealed(str(moves[-1]["digest"]), None, str(moves[-1]["ends"]))
    sealed = frozen.seal(batch)
    if sealed.starts is None and frozen.in_spark(batch) > 0:
        raise SavepointError(
            f"batch {batch} is the oldest batch that is kept, and its start offsets are gone",
            hint=f"name batch {batch + 1} or a later one",
        )
    return sealed


def _require_whole(state: JobState, identity: Identity, definition: Definition) -> None:
    """Raise if the state of a step is incomplete: a step with state has it in every key group."""
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


def _copy_sources(source: Path, to: Path) -> None:
    """Copy the logs of sources. Hadoop's checksum files are left out, since they are written again."""
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns(".*"))
