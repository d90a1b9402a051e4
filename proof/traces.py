"""Compare the panes of a job with the reference: the same batches give the same panes."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import strandline as sl
from proof.inbox import Event
from proof.jobs import Real, panes_of
from strandline.model.elements import Element, Timestamp
from strandline.model.steps import WindowedStep
from strandline.plan.compile import to_stages
from strandline.reference.player import ReferencePlayer

Trace = Counter[tuple[Any, ...]]
"""Batch, key, start of the window, index, timing, retraction, total, plays."""


def expected(real: Real, batches: Mapping[int, list[Event]]) -> tuple[Trace, Counter[int]]:
    """Compute each batch's panes and late elements with the reference, one element at a time."""
    step = to_stages(panes_of(real)[1].write(sl.discard()).root).steps[0]
    (source,) = step.inputs
    assert source.watermark is not None
    assert isinstance(step.operator, WindowedStep)
    player = ReferencePlayer(step.operator, source.watermark, partitions=source.partitions or ("0",))
    panes: Trace = Counter()
    late: Counter[int] = Counter()
    for batch, events in sorted(batches.items()):
        emitted = player.feed([_element(each, (source.partitions or ("0",))[0]) for each in events])
        for pane in emitted.panes:
            start = datetime.fromtimestamp(pane.window.start.ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.000")
            values = (pane.values["total"], pane.values["plays"])
            panes[batch, _plain(pane.key), start, pane.index, str(pane.timing), pane.retraction, *values] += 1
        late.update(each.element.offset for each in emitted.late)
    return panes, late


def _element(event: Event, partition: str) -> Element:
    at = Timestamp(round(event.at.timestamp() * 1_000))
    return Element(
        at, event.key, {"score": event.score, "key": event.key, "event": event.event}, partition, event.event
    )


def _plain(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) else key


def told(real: Real) -> tuple[Trace, Counter[int], int]:
    """Read the table: panes, late events, and the number of unreadable lines."""
    ask = "SELECT batch, key, window_start, pane_index, timing, retraction, total, plays FROM totals"
    with closing(sqlite3.connect(real.totals)) as connection:
        panes = Counter((*row[:5], bool(row[5]), *row[6:]) for row in connection.execute(ask))
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        late: Counter[int] = Counter()
        if "totals_late" in there:
            late.update(event for (event,) in connection.execute("SELECT event FROM totals_late"))
        dead = connection.execute("SELECT count(*) FROM totals_dead").fetchone()[0] if "totals_dead" in there else 0
    return panes, late, int(dead)


def faults(real: Real, batches: Mapping[int, list[Event]], files: int) -> list[str]:
    """Return differences between table and reference."""
    wanted, wanted_late = expected(real, batches)
    found, late, dead = told(real)
    differs = []
    for name, more in (("missing", wanted - found), ("not to be there", found - wanted)):
        if more:
            differs.append(f"{more.total()} panes are {name}, such as {min(more)}")
    if late != wanted_late:
        differs.append(f"late elements differ: {sorted((late - wanted_late) + (wanted_late - late))[:5]}")
    if dead != files:
        differs.append(f"{dead} dead letters, and {files} lines that cannot be read")
    return differs
