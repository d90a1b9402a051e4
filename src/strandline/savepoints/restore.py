"""Restore a savepoint into a new checkpoint: check everything, write it, and write the identity last.

The restored job continues with the state, the offsets and the ledgers of the savepoint. The old job is not touched.
What may change: the definition, as far as `plan.upgrade` allows, the numbers of partitions and key groups, and with a
fork the lineage and the outputs.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import polars as pl
from pyspark.sql import SparkSession

from strandline.checkpoint.job_folder import NO_OFFSET, Checkpoint, Identity, write_durably
from strandline.checkpoint.log_identities import LOGS, as_text, read_identities
from strandline.errors import SavepointError
from strandline.execution.block_addresses import address
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.operator import Exported, Fit
from strandline.kernel.operators import operator_of
from strandline.kernel.state_export import distribute
from strandline.kernel.watermarks import NEVER, Progress
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Source
from strandline.plan.explain import explain_stages
from strandline.plan.nodes import KeyedNode, Root, to_plain, walk
from strandline.plan.refinement.inherited import as_stored
from strandline.plan.stages import KeyedStep, Stages, step_name
from strandline.plan.upgrade.state_upgrade import StepUpgrade, Upgrade, Verdict, compare
from strandline.ports.durable_files import sync_folder
from strandline.ports.sources import CommittingSource
from strandline.savepoints.files import Savepoint, load, verify
from strandline.savepoints.seed_state import place_at, seed
from strandline.savepoints.sink_positions import require_positions
from strandline.spark.backfill import Cut, keep, plan_in, requested, require_same
from strandline.spark.launch.preflight import local_folder
from strandline.spark.launch.session import require_rocksdb

Migrate = Callable[[int, dict[str, pl.DataFrame]], Mapping[str, pl.DataFrame]]
"""From the number of a step and the frames of its old definition to the frames of the new one."""

_UNFINISHED: Final = ".restoring"
"""Marks a checkpoint that is being written. Spark stores its path in it, so it cannot be written elsewhere and renamed.
But no run uses a folder without an identity."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored job: its folder, lineage and batch, and what changed."""

    checkpoint: Path
    lineage: str
    batch: int
    upgrade: Upgrade
    partitions: int
    key_groups: int


def restore(  # noqa: PLR0913 - options of a move, each with its default
    root: Root,
    spark: SparkSession,
    savepoint: str | Path,
    checkpoint: str | Path,
    *,
    fork: bool = False,
    partitions: int | None = None,
    key_groups: int | None = None,
    migrate: Migrate | None = None,
    backfill: Source | None = None,
    then: Source | None = None,
    at: Cut | None = None,
) -> Restored:
    """Make the new folder `checkpoint`, from which a run of this pipeline continues at the savepoint.

    The job keeps its lineage, so its sinks must be exactly at the savepoint. A `fork` is another job with outputs of
    its own. `migrate` converts the state of a step for a new definition, where only its author knows how. A job that
    was started with a `backfill` is restored with the same, whether its history has ended or not.
    """
    require_rocksdb(spark)
    to_fill = requested(root, backfill, then, at)
    root = root if to_fill is None else to_fill.over(root)
    found = load(Path(savepoint).absolute())
    verify(found)
    require_same(plan_in(found.folder), to_fill)
    kept = found.manifest.identity
    root = as_stored(root, kept.fingerprint)
    stages = to_stages(root, _positive("key_groups", key_groups) or kept.key_groups)
    many = _positive("partitions", partitions) or found.manifest.partitions
    upgrade = compare(kept.definition, to_plain(root))
    require_way(upgrade, migrate)
    folder = local_folder(checkpoint)
    _require_new(folder)
    steps = states_of(root, stages, found, upgrade, migrate)
    positions = _positions(found, upgrade)
    _require_available(stages, positions)
    starting = require_positions(stages, upgrade, found, fork=fork)
    identity = _identity(root, stages, found, starting, fork=fork)
    _write(spark, folder, stages, found, identity, steps, positions, upgrade, many)
    return Restored(folder, identity.lineage, found.manifest.batch, upgrade, many, stages.groups)


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise SavepointError(f"{name} is {value}, and there must be one at least")
    return value


def require_way(upgrade: Upgrade, migrate: Migrate | None) -> None:
    for verdict, hint in (
        (Verdict.INCOMPATIBLE, "start the new definition with a folder of its own, or go back to what fits"),
        (Verdict.MIGRATABLE, "give a function that says what the old state means to it: migrate="),
    ):
        parts = upgrade.of(verdict)
        if parts and (verdict is Verdict.INCOMPATIBLE or migrate is None):
            raise SavepointError(
                f"the savepoint does not fit this definition: {parts[0].what} is {verdict}",
                detail="; ".join(parts[0].words),
                hint=hint,
            )


def _require_new(folder: Path) -> None:
    if (folder / _UNFINISHED).exists() and not (folder / "strandline.json").exists():
        shutil.rmtree(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SavepointError(
            f"{folder} is not empty", hint="a savepoint is restored into a new folder; the old one stays as it is"
        )


def _require_available(stages: Stages, positions: tuple[str, ...]) -> None:
    """Raise if records after the offsets are gone."""
    for number, scan in enumerate(stages.scans):
        if isinstance(scan.source, CommittingSource) and positions[number] != NO_OFFSET:
            scan.source.refuse_lost(json.loads(positions[number]))


def states_of(
    root: Root, stages: Stages, found: Savepoint, upgrade: Upgrade, migrate: Migrate | None
) -> dict[int, Exported]:
    """Return the initial state of each step of the new definition."""
    there = {each.number for each in found.manifest.steps}
    names = {step_name(each.was): step_name(each.number) for each in upgrade.steps if each.was is not None}
    nodes = [node for node in walk(root) if isinstance(node, KeyedNode)]
    moved: dict[int, Exported] = {}
    for each in upgrade.steps:
        if each.was is None or each.was not in there:
            continue
        keyed = stages.by_number[each.number]
        state = _renamed(found.step(each.was), names)
        moved[each.number] = _fitted(state, keyed, each, _types(nodes[each.number]), migrate)
    return moved


def _fitted(
    state: Exported, keyed: KeyedStep, each: StepUpgrade, types: Mapping[str, str | None], migrate: Migrate | None
) -> Exported:
    if each.part.verdict is Verdict.MIGRATABLE and migrate is not None:
        state = replace(state, frames=_migrated(state, each, migrate))
    operator = operator_of(keyed.operator, keyed.keys, keyed.operator_inputs)
    state = operator.fitted(_widened(state, keyed, types), Fit(each.added, each.removed, each.new_trigger))
    absent = operator.missing(state)
    if absent:
        raise SavepointError(
            f"{each.part.what} cannot go on with this state", detail="; ".join(absent), hint="let migrate= add it"
        )
    _require_inputs(state.progress, keyed, each)
    return state


def _migrated(state: Exported, each: StepUpgrade, migrate: Migrate) -> dict[str, pl.DataFrame]:
    """Convert frames with the user's function."""
    try:
        made: dict[str, Any] = dict(migrate(each.number, dict(state.frames)))
    except Exception as problem:
        raise SavepointError(
            f"migrate raised for {each.part.what}", detail=f"{type(problem).__name__}: {problem}"
        ) from problem
    wrong = [name for name, frame in made.items() if not isinstance(frame, pl.DataFrame)]
    if wrong:
        raise SavepointError(
            f"migrate gave no frame for {wrong[0]} of {each.part.what}", hint="return a Polars frame by each name"
        )
    return made


def _types(node: KeyedNode) -> Mapping[str, str | None]:
    return node.inputs[0].columns


def _widened(state: Exported, keyed: KeyedStep, types: Mapping[str, str | None]) -> Exported:
    """Cast keys to the types of new elements. Values adapt by themselves."""
    kinds = {key: to_polars(kind) for key in keyed.keys if (kind := types.get(key)) is not None}
    frames = {}
    for name, frame in state.frames.items():
        wanted = {key: kind for key, kind in kinds.items() if key in frame.columns and frame.schema[key] != kind}
        try:
            frames[name] = frame.cast(wanted)  # type: ignore[arg-type]
        except pl.exceptions.PolarsError as problem:
            raise SavepointError(
                f"the keys of {keyed.name} do not fit their new type",
                detail=str(problem).partition("\n")[0],
                hint="give them a type that holds what was there, or let migrate= change them",
            ) from None
    return replace(state, frames=frames)


def _renamed(state: Exported, names: Mapping[str, str]) -> Exported:
    """Rename inputs that are other steps: their numbers may have changed."""
    progress = state.progress
    partitions = {names.get(name, name): each for name, each in progress.partitions.items()}
    inputs = {names.get(name, name): each for name, each in progress.inputs.items()}
    return replace(state, progress=replace(progress, partitions=partitions, inputs=inputs))


def _require_inputs(progress: Progress, keyed: KeyedStep, each: StepUpgrade) -> None:
    several = len(keyed.inputs) > 1 or keyed.inputs[0].watermark is None
    known = {given.name for given in keyed.inputs}
    if several and not set(progress.partitions) <= known:
        raise SavepointError(
            f"{each.part.what} takes its time from other inputs than before",
            detail=f"{', '.join(sorted(progress.partitions))} against {', '.join(sorted(known))}",
            hint="keep the streams of a union as they were, and in their order",
        )


def _positions(found: Savepoint, upgrade: Upgrade) -> tuple[str, ...]:
    """Return the offsets in the order of the new definition's sources, with the heartbeat last."""
    *sources, heartbeat = found.manifest.positions
    return (*(NO_OFFSET if number is None else sources[number] for number in upgrade.sources), heartbeat)


def _identity(root: Root, stages: Stages, found: Savepoint, starting: tuple[int, ...], *, fork: bool) -> Identity:
    old, manifest = found.manifest.identity, found.manifest
    move = {
        "as": "fork" if fork else "restore",
        "savepoint": manifest.id,
        "name": found.name,
        "lineage": old.lineage,
        "fingerprint": old.fingerprint,
        "batch": manifest.batch,
        "positions": list(manifest.positions),
        "ends": manifest.ends,
        "digest": manifest.digest,
        "version": version("strandline"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Identity(
        stages.fingerprint,
        uuid.uuid4().hex if fork else old.lineage,
        explain_stages(stages),
        to_plain(root),
        stages.groups,
        first=manifest.batch,
        moves=(*old.moves, move),
        starting=starting,
    )


def _write(  # noqa: PLR0913, PLR0917 - all that a checkpoint is made of
    spark: SparkSession,
    folder: Path,
    stages: Stages,
    found: Savepoint,
    identity: Identity,
    steps: Mapping[int, Exported],
    positions: tuple[str, ...],
    upgrade: Upgrade,
    partitions: int,
) -> None:
    home, mark = Checkpoint(folder), folder / _UNFINISHED
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark.touch()
    try:
        levels = [frozenset(address(step, g) for step in level for g in range(step.groups)) for level in stages.levels]
        seed(spark, home.spark, levels, blocks_of(stages, steps), partitions)
        place_at(home.spark, positions, found.manifest.clock)
        for number, old in enumerate(upgrade.sources):
            if old is not None:
                _copy_log(found, f"sources/{old}/", home.spark / "sources" / str(number))
        if (plan := plan_in(found.folder)) is not None:
            keep(folder, plan)
        logs = read_identities(found.folder)
        kept = {number: logs[old] for number, old in enumerate(upgrade.sources) if old is not None and old in logs}
        if kept:
            write_durably(folder / LOGS, as_text(kept))
        marks = {number: each.progress.watermark for number, each in steps.items()}
        if len(marks) == len(stages.steps):
            home.note(found.manifest.batch, min(marks.values(), default=NEVER), marks)
        _make_durable(folder)
        home.adopt(identity)
        mark.unlink()
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _copy_log(found: Savepoint, prefix: str, to: Path) -> None:
    """Copy the files of a source's log that the manifest names and `verify` has checked."""
    for name in found.manifest.files:
        if name.startswith(prefix):
            target = to / name.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found.folder / name, target)


def blocks_of(stages: Stages, steps: Mapping[int, Exported]) -> dict[int, Mapping[str, bytes]]:
    found: dict[int, Mapping[str, bytes]] = {}
    for number, moved in steps.items():
        keyed = stages.by_number[number]
        for group, blocks in distribute(
            moved, operator_of(keyed.operator, keyed.keys, keyed.operator_inputs), keyed.groups
        ).items():
            found[address(keyed, group)] = blocks
    return found


def _make_durable(folder: Path) -> None:
    """Sync all files, which Spark does not do. A power cut must not damage the start of the job."""
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
