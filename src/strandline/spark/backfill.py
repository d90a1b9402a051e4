"""Read history first, then a topic, in one job under one checkpoint.

    history   history is read to its end. The topic is paused at the offsets where it will start, and holds back the
              watermark: so no record of history is late, in any order.
    seam      Spark has committed the last batch of history, and the job's folder says so durably.
    live      the topic is read from those offsets, history has ended. The first batch says so. With a cut in event time
              it also says that the topic has reached the cut, so that all windows before it close.

A killed run starts again in its phase: the phase is in a file, offsets are in Spark's log. A savepoint keeps that file
as of its batch, and a restored job goes on with it.
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
from strandline.execution.prepare import Seam
from strandline.kernel.watermarks import Seen
from strandline.model.elements import Timestamp, zoned
from strandline.plan.backfill import backfilled, sources_of
from strandline.plan.endpoints import Source
from strandline.plan.nodes import Root
from strandline.plan.stages import Scan, Stages
from strandline.ports.crash_points import crash_point
from strandline.ports.sources import BackfillTarget, BoundedSource, CommittingSource
from strandline.spark.sources.paused_source import PausedSource

Cut = datetime | Mapping[str, Mapping[str, int]]
"""Where history ends: an event time, or offsets by topic and partition."""


def to_plain_offsets(at: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return offsets in a canonical order."""
    return {topic: {str(number): each[number] for number in sorted(each)} for topic, each in sorted(at.items())}


class Phase(StrEnum):
    """The phase of a backfill."""

    HISTORY = "history"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Backfill:
    """The request for a backfill: history, the source to read after it, and the cut between them."""

    history: Source
    topic: Source
    at: Cut

    @property
    def time(self) -> int | None:
        """Return the cut in event time, in milliseconds; None if it is at offsets."""
        return Timestamp.from_datetime(self.at).ms if isinstance(self.at, datetime) else None

    @property
    def cut(self) -> str:
        """Return the cut as text, to compare it with the one in a job's folder."""
        return self.at.isoformat() if isinstance(self.at, datetime) else json.dumps(to_plain_offsets(self.at))

    def over(self, root: Root) -> Root:
        """Return the pipeline that reads both."""
        return backfilled(root, self.history, self.topic, self.time)


@dataclass(frozen=True, slots=True)
class Plan:
    """The state of a backfill in a job's folder: its phase, the topic's start, the extent of history, the cut."""

    phase: Phase
    begins: Any
    extent: Any
    cut: str


def requested(root: Root, history: Source | None, topic: Source | None, at: Cut | None) -> Backfill | None:
    """Return the requested backfill, None if there is none; raise if the request is incomplete."""
    if history is None:
        if topic is not None or at is not None:
            raise SetupError("then= and at= belong to a backfill", hint="say backfill=… too, or leave them out")
        return None
    known = sources_of(root)
    live = topic if topic is not None else known[0] if len(known) == 1 else None
    if live is None or live not in known:
        raise InvalidStep(
            "it is not clear which source to read after the backfill"
            if topic is None
            else f"{topic.name} is not read here",
            detail=f"the pipeline reads {', '.join(each.name for each in known)}",
            hint="say then= with one of them",
        )
    if at is None or not isinstance(at, datetime | Mapping):
        raise InvalidStep("a backfill needs a cut", hint="say at= with a time of events, or with offsets of the topic")
    if isinstance(at, datetime):
        zoned(at, "at")
    if not isinstance(live, BackfillTarget):
        raise InvalidStep(f"{live.name} cannot go on after a backfill", hint="let it be a topic: kafka(…)")
    if not isinstance(history, BoundedSource) or history.partitions != ("",):
        raise InvalidStep(f"{history.name} is no history", hint="give files(…) or delta_table(…)")
    return Backfill(history, live, at)


def begin(home: Checkpoint, request: Backfill, spark: SparkSession) -> Plan:
    """Return the plan in the job's folder, or make a new one, durable before any record is read."""
    plan = plan_in(home.folder)
    if plan is not None:
        if plan.cut != request.cut:
            raise CheckpointMismatch(
                f"the backfill in {home.folder} was started with another cut",
                detail=f"{plan.cut} then, {request.cut} now",
                hint="say the same cut, or choose another folder",
            )
        return plan
    if home.identity.moves:
        raise CheckpointMismatch(
            f"the job in {home.folder} was restored from a savepoint of one without a backfill",
            hint="begin the backfill in a new folder",
        )
    assert isinstance(request.topic, BackfillTarget)  # noqa: S101 - requested() checked it
    assert isinstance(request.history, BoundedSource)  # noqa: S101
    begins = request.topic.beginning(None if isinstance(request.at, datetime) else request.at)
    return _stored(home, Plan(Phase.HISTORY, begins, request.history.extent(spark), request.cut))


def enter_live_phase(home: Checkpoint, plan: Plan) -> Plan:
    """Record durably that the job is live. Called once the last batch of history is committed."""
    crash_point("S1")
    live = _stored(home, replace(plan, phase=Phase.LIVE))
    crash_point("S2")
    return live


def plan_in(folder: Path) -> Plan | None:
    """Read the plan in a job's folder or a savepoint; None if the job began without a backfill."""
    path = folder / BACKFILL
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text())
        return Plan(Phase(facts["phase"]), facts["begins"], facts["extent"], facts["cut"])
    except (ValueError, KeyError, TypeError) as problem:
        raise CheckpointMismatch(
            f"cannot read {path}", detail=str(problem), hint=f"strandline checkpoint check {folder}"
        ) from None


def plan_at(plan: Plan, positions: Sequence[str]) -> Plan:
    """Return the plan as of the end of a batch. The heartbeat's offset says whether the job was live.

    If it was not, the batch was one of history, perhaps the last: a job that goes on from there passes the seam again.
    """
    live = json.loads(positions[-1]).get("live", 0)
    return replace(plan, phase=Phase.LIVE if live else Phase.HISTORY)


def require_same(plan: Plan | None, request: Backfill | None) -> None:
    """Raise if a job is restored with another backfill than it was started with."""
    if plan is None and request is not None:
        raise SavepointError(
            "the job of this savepoint was started without a backfill", hint="leave backfill= out, and start a new job"
        )
    if plan is not None and (request is None or request.cut != plan.cut):
        now = "none now" if request is None else f"{request.cut} now"
        raise SavepointError(
            "the job of this savepoint was started with a backfill, and must be restored with the same",
            detail=f"the cut was {plan.cut}, and there is {now}",
            hint="say backfill= and at= as when it was started",
        )


def keep(folder: Path, plan: Plan) -> None:
    """Write a plan durably to a job's folder or a savepoint."""
    facts = {"phase": plan.phase, "begins": plan.begins, "extent": plan.extent, "cut": plan.cut}
    write_durably(folder / BACKFILL, json.dumps(facts) + "\n")


def _stored(home: Checkpoint, plan: Plan) -> Plan:
    keep(home.folder, plan)
    return plan


def in_phase(stages: Stages, request: Backfill, plan: Plan) -> Stages:
    """Return the stages with a paused source in place of the one that is not read in this phase."""

    def source(scan: Scan) -> Source:
        if scan.source == request.topic and plan.phase is Phase.HISTORY:
            return PausedSource(scan.source, plan.begins)
        if scan.source == request.history:
            assert isinstance(scan.source, BoundedSource)  # noqa: S101 - or it were no history
            return PausedSource(scan.source) if plan.phase is Phase.LIVE else scan.source.within(plan.extent)
        return scan.source

    return replace(stages, scans=tuple(replace(scan, source=source(scan)) for scan in stages.scans))


def seam_of(stages: Stages, request: Backfill, plan: Plan) -> Seam:
    """Return what the first live batch announces: history has ended, and the topic has reached the cut."""
    over = {
        flow.name: (Seen("", finished=True),)
        for scan in stages.scans
        if scan.source == request.history
        for flow in scan.flows
    }
    if request.time is None or not isinstance(request.topic, CommittingSource):
        return Seam(over, {})
    reached = tuple(Seen(name, watermark=request.time - 1) for name in request.topic.partitions_at(plan.begins))
    live = {flow.name: reached for scan in stages.scans if scan.source == request.topic for flow in scan.flows}
    return Seam(over, live)
