"""Restoring a savepoint into a new checkpoint: everything is checked, then written, and last of all whose it is.

The job that is restored goes on where the savepoint stands: with its state, at its positions, in its sinks' ledgers.
Nothing of the old job is touched. What may be another than before: the definition, as far as `plan.upgrade` allows, the
numbers of partitions and key groups, and with a fork the lineage and the outputs.
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

from strandline.checkpoint.job_folder import NO_OFFSET, Checkpoint, Identity
from strandline.errors import SavepointError
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.state.state_export import Fit, Moved, fitted, grouped, missing
from strandline.kernel.watermarks import NEVER, Progress
from strandline.plan.columns import columns_after
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Source
from strandline.plan.explain import explain_stages
from strandline.plan.nodes import Aggregated, Root, to_plain, walk
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
from strandline.spark.tasks.block_addresses import address

Migrate = Callable[[int, dict[str, pl.DataFrame]], Mapping[str, pl.DataFrame]]
"""From the number of a step and the frames that its old definition kept, to those that the new one needs."""

_UNFINISHED: Final = ".restoring"
"""Beside a checkpoint that is being made. Spark writes its own place into it, so it cannot be made aside and renamed;
but as long as nothing says whose it is, no run takes it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A job that is ready to go on: where, as whom, from which batch, and what became of its parts."""

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
    """Makes the new folder `checkpoint`, from which a run of this pipeline goes on where the savepoint stands.

    The job keeps its lineage, so its sinks must stand exactly where it does; a `fork` is another job with outputs of
    its own. `migrate` says what the state of a step means to another definition, where only its author can know. A job
    that was begun with a `backfill` is restored with the same, whether history is behind it or not.
    """
    require_rocksdb(spark)
    filling = requested(root, backfill, then, at)
    root = root if filling is None else filling.over(root)
    found = load(Path(savepoint).absolute())
    verify(found)
    require_same(plan_in(found.folder), filling)
    kept = found.manifest.identity
    stages = to_stages(root, _at_least_one("key_groups", key_groups) or kept.key_groups)
    many = _at_least_one("partitions", partitions) or found.manifest.partitions
    upgrade = compare(kept.definition, to_plain(root))
    require_way(upgrade, migrate)
    folder = local_folder(checkpoint)
    _require_new(folder)
    steps = states_of(root, stages, found, upgrade, migrate)
    positions = _positions(found, upgrade)
    _require_kept(stages, positions)
    starting = require_positions(stages, upgrade, found, fork=fork)
    identity = _identity(root, stages, found, starting, fork=fork)
    _write(spark, folder, stages, found, identity, steps, positions, upgrade, many)
    return Restored(folder, identity.lineage, found.manifest.batch, upgrade, many, stages.groups)


def _at_least_one(name: str, asked: int | None) -> int | None:
    if asked is not None and asked < 1:
        raise SavepointError(f"{name} is {asked}, and there must be one at least")
    return asked


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


def _require_kept(stages: Stages, positions: tuple[str, ...]) -> None:
    """What comes after the positions must still be there."""
    for number, scan in enumerate(stages.scans):
        if isinstance(scan.source, CommittingSource) and positions[number] != NO_OFFSET:
            scan.source.refuse_lost(json.loads(positions[number]))


def states_of(
    root: Root, stages: Stages, found: Savepoint, upgrade: Upgrade, migrate: Migrate | None
) -> dict[int, Moved]:
    """What each step of the new definition begins with."""
    there = {each.number for each in found.manifest.steps}
    names = {step_name(each.was): step_name(each.number) for each in upgrade.steps if each.was is not None}
    nodes = [node for node in walk(root) if isinstance(node, Aggregated)]
    moved: dict[int, Moved] = {}
    for each in upgrade.steps:
        if each.was is None or each.was not in there:
            continue
        keyed = stages.by_number[each.number]
        state = _renamed(found.step(each.was), names)
        moved[each.number] = _fitted(state, keyed, each, _types(nodes[each.number]), migrate)
    return moved


def _fitted(
    state: Moved, keyed: KeyedStep, each: StepUpgrade, types: Mapping[str, str | None], migrate: Migrate | None
) -> Moved:
    if each.part.verdict is Verdict.MIGRATABLE and migrate is not None:
        state = replace(state, frames=_migrated(state, each, migrate))
    state = fitted(_widened(state, keyed, types), keyed.step, Fit(each.added, each.removed, each.new_trigger))
    lacks = missing(state, keyed.keys, keyed.step)
    if lacks:
        raise SavepointError(
            f"{each.part.what} cannot go on with this state", detail="; ".join(lacks), hint="let migrate= add it"
        )
    _require_inputs(state.progress, keyed, each)
    return state


def _migrated(state: Moved, each: StepUpgrade, migrate: Migrate) -> dict[str, pl.DataFrame]:
    """Frames as a user's own code makes them."""
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


def _types(node: Aggregated) -> Mapping[str, str | None]:
    return columns_after(node.of)


def _widened(state: Moved, keyed: KeyedStep, types: Mapping[str, str | None]) -> Moved:
    """Keys of the type that new elements have; values adapt by themselves."""
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


def _renamed(state: Moved, names: Mapping[str, str]) -> Moved:
    """Inputs that are other steps are called by their numbers, which may be others now."""
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
    """Of the new definition's sources, in its order; the heartbeat goes on too."""
    *sources, heartbeat = found.manifest.positions
    return (*(NO_OFFSET if number is None else sources[number] for number in upgrade.sources), heartbeat)


def _identity(root: Root, stages: Stages, found: Savepoint, starting: tuple[int, ...], *, fork: bool) -> Identity:
    was, manifest = found.manifest.identity, found.manifest
    move = {
        "as": "fork" if fork else "restore",
        "savepoint": manifest.id,
        "name": found.name,
        "lineage": was.lineage,
        "fingerprint": was.fingerprint,
        "batch": manifest.batch,
        "positions": list(manifest.positions),
        "ends": manifest.ends,
        "digest": manifest.digest,
        "version": version("strandline"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Identity(
        stages.fingerprint,
        uuid.uuid4().hex if fork else was.lineage,
        explain_stages(stages),
        to_plain(root),
        stages.groups,
        first=manifest.batch,
        moves=(*was.moves, move),
        starting=starting,
    )


def _write(  # noqa: PLR0913, PLR0917 - all that a checkpoint is made of
    spark: SparkSession,
    folder: Path,
    stages: Stages,
    found: Savepoint,
    identity: Identity,
    steps: Mapping[int, Moved],
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
        for number, was in enumerate(upgrade.sources):
            log = found.folder / "sources" / str(was)
            if was is not None and log.is_dir():
                shutil.copytree(log, home.spark / "sources" / str(number))
        if (plan := plan_in(found.folder)) is not None:
            keep(folder, plan)
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


def blocks_of(stages: Stages, steps: Mapping[int, Moved]) -> dict[int, Mapping[str, bytes]]:
    found: dict[int, Mapping[str, bytes]] = {}
    for number, moved in steps.items():
        keyed = stages.by_number[number]
        for group, blocks in grouped(moved, keyed.keys, keyed.step, keyed.groups).items():
            found[address(keyed, group)] = blocks
    return found


def _make_durable(folder: Path) -> None:
    """Spark makes nothing durable; a job that begins here must not lose its beginning to a power cut."""
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
