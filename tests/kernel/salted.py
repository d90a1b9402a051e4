"""Play stories with every key salted: a step over salted keys, then a step that gathers them."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Self

import polars as pl

from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START, Block, pack, unpack
from strandline.kernel.operators import operator_of
from strandline.kernel.output import Counts, to_block
from strandline.kernel.player import GROUPS, KEY, BlockPlayer, Packet, ask_of
from strandline.kernel.salting import HELD, SALT, gather, spread
from strandline.kernel.step import Stepped, StepSpec, step
from strandline.kernel.watermarks import NEVER, Control, Input, Rule, Seen
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Inputs
from strandline.plan.salting import columns_read, in_two

NAME = "hold"
SALTS = 3


class SaltedPlayer(BlockPlayer):
    """Treat every key as hot."""

    def __init__(self, ask: WindowedStep, rule: Rule, *, partitions: Any = (), fires_per_element: bool = False) -> None:
        super().__init__(ask, rule, partitions=partitions, fires_per_element=fires_per_element)
        hold, take = in_two(ask)
        self._hold = replace(ask_of(hold, rule, partitions), keys=(KEY, SALT))
        self._take = StepSpec((KEY,), take, Inputs((NAME,)), inputs=(Input(NAME),))
        self._held: list[dict[str, bytes]] = [{} for _ in range(2 * GROUPS)]
        self._reached = NEVER

    def _carry(self, packet: Packet) -> Iterator[Block]:
        rows, dead = (None, None) if packet.elements is None else self._admitted(packet.elements, packet.control.clock)
        waiting = self._stepped(0, rows, packet.horizon, self._hold, [packet.control])
        found = [gather(_placed(each.rows)) for each in waiting if each.rows is not None]
        controls = [self._control_of(each, packet.control.clock) for each in waiting]
        given = pl.concat(found, how="diagonal_relaxed") if found else None
        if given is not None:
            kept = [KEY, AT, PARTITION, OFFSET, *self._columns(given), "window_start", "window_end"]
            given, _ = operator_of(self._take.operator, self._take.keys).admit(
                given.select(kept), None, packet.control.clock
            )
        taken = self._stepped(GROUPS, given, self._reached, self._take, controls)
        self._reached = taken[0].progress.watermark
        for number, (first, last) in enumerate(zip(waiting, taken, strict=True)):
            assert last.late is None
            late = None if first.late is None else first.late.drop(SALT, HELD, strict=False)
            both = replace(last, late=late, progress=first.progress, state_rows=first.state_rows + last.state_rows)
            yield to_block(both, dead if number == 0 else None, Counts())

    def _admitted(self, elements: pl.DataFrame, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        rows, dead = operator_of(self._ask.operator, self._ask.keys).admit(elements, self._ask.watermark, clock)
        return spread(rows, (KEY,), SALTS, 1, self._columns(rows)), dead

    def _columns(self, rows: pl.DataFrame) -> list[str]:
        assert isinstance(self._definition, WindowedStep)
        return [name for name in columns_read(self._definition) if name in rows.columns]

    def _stepped(
        self, first: int, rows: pl.DataFrame | None, horizon: int, spec: StepSpec, controls: list[Control]
    ) -> list[Stepped]:
        blocks = {} if rows is None else operator_of(spec.operator, spec.keys).prepare(rows, GROUPS, horizon).blocks
        found = []
        for group in range(GROUPS):
            held = self._held[first + group]
            inputs = [unpack(pack(blocks[group]), "input")] if group in blocks else []
            found.append(step(held, inputs, controls, spec))
            for place, data in found[-1].writes.items():
                if data is None:
                    held.pop(place, None)
                else:
                    held[place] = data
        return found

    def _control_of(self, stepped: Stepped, clock: int) -> Control:
        mark = Seen(NAME, watermark=stepped.output_watermark, idle=stepped.progress.is_idle)
        return Control(clock, (mark,), of=NAME)

    def restart(self) -> Self:
        again = copy(self)
        again._held = [dict(held) for held in self._held]
        return again

    def close(self) -> None:
        """Release nothing: all state is in memory."""


def _placed(panes: pl.DataFrame) -> pl.DataFrame:
    """Add window bounds as user columns, and placeholder positions that gathering replaces."""
    place = (pl.lit("").alias(PARTITION), pl.lit(0).alias(OFFSET))
    return panes.with_columns(pl.col(START).alias("window_start"), pl.col(END).alias("window_end"), *place)
