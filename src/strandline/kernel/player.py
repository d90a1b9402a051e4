"""The kernel as a player of stories: each call is one batch, prepared, packed, stepped in key groups and gathered.

`BlockPlayer` turns calls into packets and output blocks back into panes; who carries the packets to the key groups is
left open. `KernelPlayer` does it in memory; Spark does it in `spark/story_player.py`.
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
from strandline.model.deduplicate import Deduplicate
from strandline.model.elements import EPOCH, Element, Timestamp
from strandline.model.operators import Operator
from strandline.model.panes import DeadLetter, Emitted, Late, LateReason, Pane, Row, Timing
from strandline.model.watermarks import Inputs
from strandline.model.windows import Window

KEY: Final = "@key"
GROUPS: Final = 2
"""Two, so that whatever depends on how keys are grouped shows."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One batch on its way: its elements, what is told of the partitions, and the watermark before it."""

    elements: pl.DataFrame | None
    control: Control
    horizon: int


def ask_of(step: Operator, rule: Rule, partitions: Sequence[str]) -> StepSpec:
    """What the key groups are asked to do for a story: it has one key, and its inputs or partitions are known."""
    return StepSpec((KEY,), step, rule, rule.names if isinstance(rule, Inputs) else tuple(partitions))


def prepared(packet: Packet, ask: StepSpec) -> tuple[Mapping[int, Block], pl.DataFrame | None]:
    """The blocks of a packet by key group, and those of its elements that cannot be taken in."""
    if packet.elements is None:
        return {}, None
    operator = operator_of(ask.operator, ask.keys)
    taken, dead = operator.admit(packet.elements, ask.watermark, packet.control.clock)
    return operator.prepare(taken, GROUPS, packet.horizon).blocks, dead


class BlockPlayer(ABC):
    """Plays a windowed step by whoever carries its blocks."""

    def __init__(
        self, ask: Operator, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        self._definition = ask
        self._values = () if isinstance(ask, Deduplicate) else tuple(name for name, _ in ask.aggregates)
        self._ask = ask_of(ask, rule, partitions)
        self._fires_per_element = fires_per_element
        self._clock = EPOCH.ms
        known = () if isinstance(ask, Deduplicate) else ask.aggregates
        self._read = dict.fromkeys(name for _, each in known for name in columns_of(each))
        self._key_type: pl.DataType = pl.String()
        self._last = Output()

    @abstractmethod
    def _carry(self, packet: Packet) -> Iterable[Block]:
        """The output of every key group."""

    @property
    def watermark(self) -> Timestamp:
        """How far time has come."""
        return Timestamp(self._last.progress.watermark)

    @property
    def output_watermark(self) -> Timestamp:
        """How far the step lets time come for those after it."""
        return Timestamp(self._last.output_watermark)

    @property
    def is_idle(self) -> bool:
        """Whether every partition or input is idle."""
        return self._last.progress.is_idle

    @property
    def rows(self) -> int:
        """The windows still held, over all keys; where they share what they hold, its strips."""
        return self._last.rows

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Elements come in. Inside a batch they arrive by source position: partition, then offset."""
        if self._fires_per_element:
            return sum((self._fed([element]) for element in elements), Emitted())
        return self._fed(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _fed(self, elements: Sequence[Element]) -> Emitted:
        if not elements:
            return self._play(())
        frame = self._frame(elements)
        return self._play(_seen(frame, self._ask.watermark, self._clock), frame)

    def _frame(self, elements: Sequence[Element]) -> pl.DataFrame:
        """The elements as columns; a column that some batches lack is null there."""
        self._read |= dict.fromkeys(name for element in elements for name in element.columns)
        rows = {
            KEY: [element.key for element in elements],
            AT: [element.at.ms for element in elements],
            PARTITION: [element.partition for element in elements],
            OFFSET: [element.offset for element in elements],
        }
        values = {name: [element.columns.get(name) for element in elements] for name in self._read}
        frame = pl.DataFrame({**rows, **values}, strict=False)
        if frame.schema[KEY] == pl.Null:  # where no element has a key, keys are of the type they were last
            return frame.with_columns(pl.col(KEY).cast(self._key_type))
        self._key_type = frame.schema[KEY]
        return frame

    def move_watermark(self, to: Timestamp, of: str | None = None) -> Emitted:
        """One partition or input tells its watermark, or all that have not ended do."""
        names = [name for name, each in self._partitions.items() if not each.finished]
        told = names if of is None else [self._may_be_new(of)]
        return self._play([Seen(name, watermark=to.ms) for name in told])

    def move_clock(self, to: Timestamp) -> Emitted:
        """Processing time moves on; it never goes back."""
        self._clock = max(self._clock, to.ms)
        return self._play(())

    def fall_idle(self, name: str) -> Emitted:
        """A partition or input falls idle."""
        return self._play([Seen(self._known(name), idle=True)])

    def return_active(self, name: str) -> Emitted:
        """A partition or input returns; a partition may also be new."""
        return self._play([Seen(self._may_be_new(name), idle=False)])

    def finish(self, name: str) -> Emitted:
        """A partition or input ends."""
        return self._play([Seen(self._known(name), finished=True)])

    def drain(self) -> Emitted:
        """The end of all input: every window closes."""
        return self._play((), drain=True)

    def _play(self, seen: Sequence[Seen], elements: pl.DataFrame | None = None, *, drain: bool = False) -> Emitted:
        control = Control(self._clock, tuple(seen), drain)
        self._last = gather(self._carry(Packet(elements, control, self._last.progress.watermark)))
        return self._told(self._last)

    @property
    def _partitions(self) -> Mapping[str, PartitionProgress]:
        """Those known from the start are there before the first batch."""
        return dict.fromkeys(self._ask.partitions, PartitionProgress()) | dict(self._last.progress.partitions)

    def _may_be_new(self, name: str) -> str:
        return self._known(name) if isinstance(self._ask.watermark, Inputs) else name

    def _known(self, name: str) -> str:
        if name in self._partitions:
            return name
        known = ", ".join(self._partitions) or "none"
        raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")

    def _told(self, output: Output) -> Emitted:
        rows = [*_rows(output.panes)]
        has_windows = not isinstance(self._definition, Deduplicate)
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
    """Key groups in memory, kept as the bytes that Spark would keep."""

    def __init__(self, ask: Operator, rule: Rule, **options: Any) -> None:
        super().__init__(ask, rule, **options)
        self._held: list[dict[str, bytes]] = [{} for _ in range(GROUPS)]

    def _carry(self, packet: Packet) -> Iterator[Block]:
        blocks, dead = prepared(packet, self._ask)
        for group, held in enumerate(self._held):
            mine = [unpack(pack(blocks[group]), "input")] if group in blocks else []
            stepped = step(held, mine, [packet.control], self._ask)
            for place, data in stepped.writes.items():
                if data is None:
                    held.pop(place, None)
                else:
                    held[place] = data
            yield to_block(stepped, dead if group == 0 else None, Counts())

    def restart(self) -> Self:
        """A player that knows nothing but the bytes that were kept, and what a source would tell it anew."""
        again = copy(self)
        again._held = [dict(held) for held in self._held]  # noqa: SLF001 - its own
        return again

    def close(self) -> None:
        """Nothing is held but memory."""


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
    """What was seen of each partition."""
    found = []
    for (name,), rows in frame.group_by(PARTITION, maintain_order=True):
        inside = rows_advancing_watermark(rows, rule, clock).filter((pl.col(AT) != NEVER) & (pl.col(AT) != FOREVER))[AT]
        highest: Any = inside.max()
        found.append(Seen(str(name), rows.height, highest, times=counted_times(inside)))
    return found
