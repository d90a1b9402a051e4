"""Prepare one batch of a story: pack its rows by scan and its reports about partitions as blocks for key groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.execution.batch import Batch
from strandline.execution.block_addresses import address
from strandline.execution.prepare import Blocks, prepare_scan, tick
from strandline.kernel.blocks.block import Block
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.watermarks import Control, Seen, control_to_facts
from strandline.plan.stages import KeyedStep, Stages
from strandline.ports.raw_records import DRAINED, TICKED

_TASKS: Final = 1 << 20
"""Number of the task that ticks, above those of scans."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One batch: rows by scan, the clock, reports about partitions by flow, and whether the input ends."""

    rows: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    clock: int = 0
    reports: Mapping[str, tuple[Seen, ...]] = field(default_factory=dict)
    drain: bool = False
    alone: frozenset[int] = frozenset()
    """Scans whose records all count as one partition."""
    tables: Mapping[str, Sequence[Mapping[str, Any]] | None] = field(default_factory=dict)
    """Rows of lookup tables."""


def prepared(packet: Packet, stages: Stages, batch: Batch) -> Blocks:
    """Return the blocks of a batch: of its rows, of the heartbeat, and of reports about partitions."""
    blocks: Blocks = []
    for number, rows in packet.rows.items():
        scan = stages.scans[number]
        blocks += prepare_scan(rows, scan, stages.by_number, None, batch, number, alone=number in packet.alone)
    beat = pl.DataFrame({"mark": [DRAINED if packet.drain else TICKED]})
    blocks += tick(beat, stages.timed, batch, _TASKS)
    for flow, seen in packet.reports.items():
        blocks += _reported(stages.timed, flow, seen, packet.clock)
    return blocks


def _reported(steps: Sequence[KeyedStep], flow: str, seen: tuple[Seen, ...], clock: int) -> Blocks:
    """Return what a source reports about its partitions, for every key group of the steps that read it."""
    control = control_to_facts(Control(clock, seen, of=flow))
    block = Block(facts={"control": control, "from": "report", "counts": counts_to_facts(Counts())})
    reading = [step for step in steps if any(each.name == flow for each in step.inputs)]
    return [(address(step, group), block) for step in reading for group in range(step.groups)]
