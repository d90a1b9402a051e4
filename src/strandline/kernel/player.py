"""Play stories on the kernel: each call is one batch that is prepared, packed, processed by key groups and gathered.

`BlockPlayer` turns calls into packets, and output blocks back into panes. Subclasses carry the packets to the key
groups: `KernelPlayer` in memory, `spark/story_player.py` on Spark.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Self

import polars as pl

from strandline.errors import InvalidWatermark
from strandline.kernel.blocks.block import AT, END, OFFSET, OWN, PARTITION, REASON, SIGN, START, Block, pack, unpack
from strandline.kernel.operators import operator_of
from strandline.kernel.output import Counts, Output, gather, to_block
from strandline.kernel.step import PARTIAL, WATERMARK, StepSpec, step
from strandline.kernel.watermarks import (
    FOREVER,
    NEVER,
    Control,
    PartitionProgress,
    Rule,
    Seen,
    counted_times,
    rows_advancing_watermark,
)
from strandline.kernel.window import panes as columns
from strandline.model.aggregates import columns_of
from strandline.model.elements import EPOCH, Element, Timestamp
from strandline.model.operators import Operator
from strandline.model.panes import DeadLetter, Emitted, Late, LateReason, Pane, Row, Timing
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Inputs
from strandline.model.windows import Window

KEY: Final = "@key"
GROUPS: Final = 2
"""Two key groups, so that tests find results that depend on the grouping of keys."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One batch: its elements, the control row with the progress of partitions, and the watermark before it."""

    elements: pl.DataFrame | None
    control: Control
    horizon: int


def step_spec_of(step: Operator, rule: Rule, partitions: Sequence[str]) -> StepSpec:
    """Return the keyed step of a story, with its one key column and its known inputs or partitions."""
    return StepSpec((KEY,), step, rule, rule.names if isinstance(rule, Inputs) else tuple(partitions))


def prepared(packet: Packet, spec: StepSpec) -> tuple[Mapping[int, Block], pl.DataFrame | None]:
    """Return the blocks of a packet by key group, and its dead letters."""
    if packet.elements is None:
        return {}, None
    operator = operator_of(spec.operator, spec.keys)
    taken, dead = operator.admit(packet.elements, spec.watermark, packet.control.clock)
    return operator.prepare(taken, GROUPS, packet.horizon).blocks, dead


class BlockPlayer(ABC):
    """Play a keyed step; a subclass carries its blocks to the key groups."""

    def __init__(
        self, definition: Operator, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        self._definition = definition
        known = definition.aggregates if isinstance(definition, WindowedStep) else ()
        self._values = tuple(name for name, _ in known)
        self._spec = step_spec_of(definition, rule, partitions)
        self._fires_per_element = fires_per_element
        self._clock = EPOCH.ms
        self._known_columns = dict.fromkeys(name for _, each in known for name in columns_of(each))
        self._key_type: pl.DataType = pl.String()
        self._last = Output()

    @abstractmethod
    def _carry(self, packet: Packet) -> Iterable[Block]:
        """Process a packet; return the output block of every key group."""

    @property
    def watermark(self) -> Timestamp:
        """Return the watermark of the step."""
        return Timestamp(self._last.progress.watermark)

    @property
    def output_watermark(self) -> Timestamp:
        """Return the watermark that the step forwards to later steps."""
        return Timestamp(self._last.output_watermark)

    @property
    def is_idle(self) -> bool:
        """Tell whether every partition or input is idle."""
        return self._last.progress.is_idle

    @property
    def rows(self) -> int:
        """Return the number of state rows of all keys: open windows, or shared slices."""
        return self._last.rows

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Process elements. Inside a batch they arrive by source position: partition, then offset."""
        if self._fires_per_element:
            return sum((self._feed_batch([element]) for element in elements), Emitted())
        return self._feed_batch(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _feed_batch(self, elements: Sequence[Element]) -> Emitted:
        if not elements:
            return self._play(())
        frame = self._frame(elements)
        return self._play(_seen(frame, self._spec.watermark, self._clock), frame)

    def _frame(self, elements: Sequence[Element]) -> pl.DataFrame:
        """Return elements as columns; a column that a batch lacks is null."""
        self._known_columns |= dict.fromkeys(name for element in elements for name in element.columns)
        rows = {
            KEY: [element.key for element in elements],
            AT: [element.at.ms for element in elements],
            PARTITION: [element.partition for element in elements],
            OFFSET: [element.offset for element in elements],
        }
        values = {name: [element.columns.get(name) for element in elements] for name in self._known_columns}
        frame = pl.DataFrame({**rows, **values}, strict=False)
        if frame.schema[KEY] == pl.Null:  # if all keys are null, use the type of the keys before
            return frame.with_columns(pl.col(KEY).cast(self._key_type))
        self._key_type = frame.schema[KEY]
        return frame

    def move_watermark(self, to: Timestamp, of: str | None = None) -> Emitted:
        """Set the watermark of one partition or input, or of all unfinished ones."""
        names = [name for name, each in self._partitions.items() if not each.finished]
        partitions = names if of is None else [self._may_be_new(of)]
        return self._play([Seen(name, watermark=to.ms) for name in partitions])

    def move_clock(self, to: Timestamp) -> Emitted:
        """Advance processing time; it never goes back."""
        self._clock = max(self._clock, to.ms)
        return self._play(())

    def fall_idle(self, name: str) -> Emitted:
        """Mark a partition or input as idle."""
        return self._play([Seen(self._known(name), idle=True)])

    def return_active(self, name: str) -> Emitted:
        """Mark a partition or input as active again; a partition may also be new."""
        return self._play([Seen(self._may_be_new(name), idle=False)])

    def finish(self, name: str) -> Emitted:
        """Finish a partition or input."""
        return self._play([Seen(self._known(name), finished=True)])

    def drain(self) -> Emitted:
        """End all input: every window closes."""
        return self._play((), drain=True)

    def _play(self, seen: Sequence[Seen], elements: pl.DataFrame | None = None, *, drain: bool = False) -> Emitted:
        control = Control(self._clock, tuple(seen), drain)
        self._last = gather(self._carry(Packet(elements, control, self._last.progress.watermark)))
        return self._to_emitted(self._last)

    @property
    def _partitions(self) -> Mapping[str, PartitionProgress]:
        """Return the progress of all partitions; partitions known from the start exist before the first batch."""
        return dict.fromkeys(self._spec.partitions, PartitionProgress()) | dict(self._last.progress.partitions)

    def _may_be_new(self, name: str) -> str:
        return self._known(name) if isinstance(self._spec.watermark, Inputs) else name

    def _known(self, name: str) -> str:
        if name in self._partitions:
            return name
        known = ", ".join(self._partitions) or "none"
        raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")

    def _to_emitted(self, output: Output) -> Emitted:
        rows = [*_rows(output.panes)]
        has_windows = isinstance(self._definition, WindowedStep)
        return Emitted(
            tuple(self._pane(row) for row in rows if has_windows),
            tuple(self._late(row) for row in _rows(output.late)),
            tuple(self._letter(row) for row in _rows(output.dead)),
            tuple(_row(row) for row in rows if not has_windows),
        )

    def _pane(self, row: dict[str, Any]) -> Pane:
        return Pane(
            key=row[KEY],
            window=_window(row),
            values={name: row[name] for name in self._values},
            timing=Timing(row[columns.TIMING]),
            index=row[columns.INDEX],
            nonspeculative_index=row[columns.NONSPECULATIVE],
            is_first=row[columns.FIRST],
            is_last=row[columns.LAST],
            timestamp=Timestamp(row[columns.TIMESTAMP]),
            retraction=row[columns.RETRACTION],
        )

    def _late(self, row: dict[str, Any]) -> Late:
        mark = Timestamp(row[WATERMARK])
        window = _window(row) if START in row else None
        return Late(_element(row), LateReason(row[REASON]), window, mark, row[PARTIAL])

    def _letter(self, row: dict[str, Any]) -> DeadLetter:
        at = Timestamp(row[AT])
        known = {} if at.is_end else {"at": at}
        return DeadLetter(row[REASON], {**known, "key": row[KEY], **_element(row).columns})


class KernelPlayer(BlockPlayer):
    """Play on key groups in memory, with the same state bytes as on Spark."""

    def __init__(self, definition: Operator, rule: Rule, **options: Any) -> None:
        super().__init__(definition, rule, **options)
        self._held: list[dict[str, bytes]] = [{} for _ in range(GROUPS)]

    def _carry(self, packet: Packet) -> Iterator[Block]:
        blocks, dead = prepared(packet, self._spec)
        for group, held in enumerate(self._held):
            input_blocks = [unpack(pack(blocks[group]), "input")] if group in blocks else []
            stepped = step(held, input_blocks, [packet.control], self._spec)
            for place, data in stepped.writes.items():
                if data is None:
                    held.pop(place, None)
                else:
                    held[place] = data
            yield to_block(stepped, dead if group == 0 else None, Counts())

    def restart(self) -> Self:
        """Return a player restored from the state bytes, with the information that a source would repeat."""
        restarted = copy(self)
        restarted._held = [dict(held) for held in self._held]  # noqa: SLF001 - same class
        return restarted

    def close(self) -> None:
        """Do nothing: the player only uses memory."""


def _rows(frame: pl.DataFrame | None) -> Iterable[dict[str, Any]]:
    return () if frame is None else frame.iter_rows(named=True)


def _window(row: dict[str, Any]) -> Window:
    return Window(Timestamp(row[START]), Timestamp(row[END]))


def _row(row: dict[str, Any]) -> Row:
    return Row(row[KEY], Timestamp(row[AT]), _element(row).columns, row.get(SIGN, 1) < 0)


def _element(row: dict[str, Any]) -> Element:
    values = {name: value for name, value in row.items() if not name.startswith(OWN) and value is not None}
    return Element(Timestamp(row[AT]), row[KEY], values, row[PARTITION], row[OFFSET])


def _seen(frame: pl.DataFrame, rule: Rule | None, clock: int) -> list[Seen]:
    """Return the progress of each partition in a batch."""
    found = []
    for (name,), rows in frame.group_by(PARTITION, maintain_order=True):
        inside = rows_advancing_watermark(rows, rule, clock).filter((pl.col(AT) != NEVER) & (pl.col(AT) != FOREVER))[AT]
        highest: Any = inside.max()
        found.append(Seen(str(name), rows.height, highest, times=counted_times(inside)))
    return found
