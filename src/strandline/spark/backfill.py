"""Backfill, then live: history and a topic under one checkpoint, in two phases with a seam between them.

    history   history is read to its end, batch by batch; the topic stands still at the positions where it will begin,
              and so does the watermark: history is not late, in whatever order it lies
    seam      durable in the job's folder once Spark has committed the last batch of history
    live      the topic goes on from those positions; history is over. The first batch says so, and with a cut in event
              time also that the topic has come as far as the cut, so that all windows before it close

A run that is killed begins again in the phase it was in: the seam is a file, and positions are in Spark's log. A
savepoint keeps that file as it was at its batch, and a job that is restored goes on with it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from strandline.checkpoint.job_folder import BACKFILL, Checkpoint, write_durably
from strandline.errors import CheckpointMismatch, InvalidStep, SavepointError, SetupError
from strandline.kernel.watermarks import Seen
from strandline.model.elements import Timestamp
from strandline.plan.backfill import backfilled, sources_of
from strandline.plan.endpoints import Source
from strandline.plan.nodes import Root
from strandline.plan.stages import Scan, Stages
from strandline.ports.crash_points import crash_point
from strandline.ports.sources import BackfillTarget, BoundedSource, CommittingSource
from strandline.spark.sources.paused_source import Silent
from strandline.spark.tasks.prepare import Seam

Cut = datetime | Mapping[str, Mapping[str, int]]
"""A time of events, or offsets by topic and partition."""


def to_plain_offsets(at: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Offsets in one order, whoever wrote them."""
    return {topic: {str(number): each[number] for number in sorted(each)} for topic, each in sorted(at.items())}


class Phase(StrEnum):
    """What is being read."""

    HISTORY = "history"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What was asked: history, the source that goes on after it, and where the cut between them is."""

    history: Source
    topic: Source
    at: Cut

    @property
    def time(self) -> int | None:
        """The cut in event time, in milliseconds; None if it is at offsets."""
        return Timestamp.from_datetime(self.at).ms if isinstance(self.at, datetime) else None

    @property
    def cut(self) -> str:
        """The cut in words, by which a folder knows it again."""
        return self.at.isoformat() if isinstance(self.at, datetime) else json.dumps(to_plain_offsets(self.at))

    def over(self, root: Root) -> Root:
        """The pipeline that reads both."""
        return backfilled(root, self.history, self.topic, self.time)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was looked up when the job began, and the phase it is in."""

    phase: Phase
    begins: Any
    extent: Any
    cut: str


def asked_for(root: Root, history: Source | None, topic: Source | None, at: Cut | None) -> Backfill | None:
    """A backfill, if one was asked for; refused if it was asked for by halves."""
    if history is None:
        if topic is not None or at is not None:
            raise SetupError("then= and at= belong to a backfill", hint="say backfill=… too, or leave them out")
        return None
    known = sources_of(root)
    live = topic if topic is not None else known[0] if len(known) == 1 else None
    if live is None or live not in known:
        raise InvalidStep(
            "which source goes on after the backfill is not said"
            if topic is None
            else f"{topic.name} is not read here",
            detail=f"the pipeline reads {', '.join(each.name for each in known)}",
            hint="say then= with one of them",
        )
    if at is None or not isinstance(at, datetime | Mapping):
        raise InvalidStep("a backfill needs a cut", hint="say at= with a time of events, or with offsets of the topic")
    if not isinstance(live, BackfillTarget):
        raise InvalidStep(f"{live.name} cannot go on after a backfill", hint="let it be a topic: kafka(…)")
    if not isinstance(history, BoundedSource) or history.partitions != ("",):
        raise InvalidStep(f"{history.name} is no history", hint="give files(…) or delta_table(…)")
    return Backfill(history, live, at)


def begun(home: Checkpoint, asked: Backfill, spark: SparkSession) -> Plan:
    """What the folder says, or a new plan, durable before anything is read."""
    plan = plan_in(home.folder)
    if plan is not None:
        if plan.cut != asked.cut:
            raise CheckpointMismatch(
                f"the backfill in {home.folder} was begun with another cut",
                detail=f"{plan.cut} then, {asked.cut} now",
                hint="say the same cut, or choose another folder",
            )
        return plan
    if home.identity.moves:
        raise CheckpointMismatch(
            f"the job in {home.folder} was restored from a savepoint of one without a backfill",
            hint="begin the backfill in a new folder",
        )
    assert isinstance(asked.topic, BackfillTarget)  # noqa: S101 - it was asked for
    assert isinstance(asked.history, BoundedSource)  # noqa: S101
    begins = asked.topic.beginning(None if isinstance(asked.at, datetime) else asked.at)
    return _kept(home, Plan(Phase.HISTORY, begins, asked.history.extent(spark), asked.cut))


def at_the_seam(home: Checkpoint, plan: Plan) -> Plan:
    """The last batch of history is committed: from now on the job is live, whenever it starts."""
    crash_point("S1")
    live = _kept(home, replace(plan, phase=Phase.LIVE))
    crash_point("S2")
    return live


def plan_in(folder: Path) -> Plan | None:
    """The plan that a job's folder, or a savepoint, holds; None if it began without a backfill."""
    path = folder / BACKFILL
    if not path.exists():
        return None
    try:
        told = json.loads(path.read_text())
        return Plan(Phase(told["phase"]), told["begins"], told["extent"], told["cut"])
    except (ValueError, KeyError, TypeError) as problem:
        raise CheckpointMismatch(
            f"cannot read {path}", detail=str(problem), hint=f"strandline checkpoint check {folder}"
        ) from None


def plan_at(plan: Plan, positions: Sequence[str]) -> Plan:
    """The plan as it was at the end of a batch: the heartbeat's position tells whether the seam was behind it.

    Where it was not, the batch was one of history, perhaps the last: whoever goes on from there comes to the seam.
    """
    live = json.loads(positions[-1]).get("live", 0)
    return replace(plan, phase=Phase.LIVE if live else Phase.HISTORY)


def to_restore(plan: Plan | None, asked: Backfill | None) -> None:
    """Refuses a restore with another backfill than the job was begun with."""
    if plan is None and asked is not None:
        raise SavepointError(
            "the job of this savepoint was begun without a backfill", hint="leave backfill= out, and begin a new job"
        )
    if plan is not None and (asked is None or asked.cut != plan.cut):
        now = "none now" if asked is None else f"{asked.cut} now"
        raise SavepointError(
            "the job of this savepoint was begun with a backfill, and is restored with the same",
            detail=f"the cut was {plan.cut}, and there is {now}",
            hint="say backfill= and at= as when it was started",
        )


def keep(folder: Path, plan: Plan) -> None:
    """Durable in a job's folder, or in a savepoint."""
    told = {"phase": plan.phase, "begins": plan.begins, "extent": plan.extent, "cut": plan.cut}
    write_durably(folder / BACKFILL, json.dumps(told) + "\n")


def _kept(home: Checkpoint, plan: Plan) -> Plan:
    keep(home.folder, plan)
    return plan


def in_phase(stages: Stages, asked: Backfill, plan: Plan) -> Stages:
    """The stages with the source that is not read now stood in for."""

    def source(scan: Scan) -> Source:
        if scan.source == asked.topic and plan.phase is Phase.HISTORY:
            return Silent(scan.source, plan.begins)
        if scan.source == asked.history:
            assert isinstance(scan.source, BoundedSource)  # noqa: S101 - or it were no history
            return Silent(scan.source) if plan.phase is Phase.LIVE else scan.source.within(plan.extent)
        return scan.source

    return replace(stages, scans=tuple(replace(scan, source=source(scan)) for scan in stages.scans))


def seam_of(stages: Stages, asked: Backfill, plan: Plan) -> Seam:
    """What the first batch of the live phase says: history is over, and how far the topic has come without a word."""
    over = {
        flow.name: (Seen("", finished=True),)
        for scan in stages.scans
        if scan.source == asked.history
        for flow in scan.flows
    }
    if asked.time is None or not isinstance(asked.topic, CommittingSource):
        return Seam(over, {})
    reached = tuple(Seen(name, watermark=asked.time - 1) for name in asked.topic.partitions_at(plan.begins))
    live = {flow.name: reached for scan in stages.scans if scan.source == asked.topic for flow in scan.flows}
    return Seam(over, live)
