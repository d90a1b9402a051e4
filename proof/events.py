"""Define the workload: numbered events, some late and some unreadable, independent of batches."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START, Block
from strandline.kernel.dead_letters import letters_of, with_source
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.step import WATERMARK
from strandline.ports.codecs import RAW, REASON

EVENT: Final = "event"
"""Column of the event number; for dead letters `source_offset`."""
PARTS: Final = ("panes", "late", "dead")

_EVERY: Final = 7


def part_of(event: int) -> str:
    """Return the output of an event: rows, late elements or dead letters."""
    return {3: "late", 5: "dead"}.get(event % _EVERY, "panes")


def block_of(events: Iterable[int], outputs: int, clock: int) -> Block:
    """Build the output block of a batch, as Spark tasks would send it."""
    mine: dict[str, list[int]] = {part: [] for part in PARTS}
    for event in events:
        mine[part_of(event)].append(event)
    made = {"out": _rows(mine["panes"]), "late": _late(mine["late"]), "dead": _dead(mine["dead"])}
    frames = {f"{name}:{each}": frame for each in range(outputs) for name, frame in made.items() if frame.height}
    counts = Counts(sum(map(len, mine.values())), *(len(mine[part]) for part in PARTS))
    told = {"counts": {"events": dict(counts_to_facts(counts))}, "clock": clock, "drain": False, "scan": 0, "ended": []}
    return Block(frames, told)


def _rows(events: list[int]) -> pl.DataFrame:
    return pl.DataFrame({EVENT: pl.Series(events, dtype=pl.Int64), "said": [f"event {each}" for each in events]})


def _late(events: list[int]) -> pl.DataFrame:
    size = len(events)
    return pl.DataFrame({
        EVENT: pl.Series(events, dtype=pl.Int64), AT: [1_500] * size, PARTITION: ["0"] * size, OFFSET: events,
        START: [0] * size, END: [10_000] * size, REASON: ["expired"] * size, WATERMARK: [25_000] * size,
    })  # fmt: skip


def _dead(events: list[int]) -> pl.DataFrame:
    if not events:
        return pl.DataFrame()
    size = len(events)
    rows = pl.DataFrame({
        PARTITION: ["0"] * size, OFFSET: events, RAW: [f"event {each}".encode() for each in events],
        REASON: ["undecodable"] * size,
    })  # fmt: skip
    return with_source(letters_of(rows), "events")
