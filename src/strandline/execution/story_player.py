"""Play stories on the code that tasks of Spark run: each call is one batch that is prepared, played and gathered.

`StagesPlayer` turns calls into packets, and gathered output into panes. Subclasses carry the packets to the key groups:
`KernelPlayer` in memory, `spark/story_player.py` on Spark.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import polars as pl

from strandline.errors import InvalidWatermark, StateError, Unsupported
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import address, place
from strandline.execution.gather_output import Gathered, StepOutput, gather
from strandline.execution.keyed_step import play_group, sender_of
from strandline.execution.prepare import Blocks
from strandline.execution.stateless_steps import run_operations
from strandline.execution.story_batch import Packet, prepared
from strandline.kernel.blocks.block import AT, END, OFFSET, OWN, PARTITION, REASON, SIGN, START, pack, unpack
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.dead_letters import RAW, SOURCE
from strandline.kernel.operator import PARTIAL, WATERMARK
from strandline.kernel.watermarks import NEVER, PartitionProgress, Progress, Seen
from strandline.kernel.window import panes as columns
from strandline.model.counts import Counts
from strandline.model.elements import BEGINNING, EPOCH, Element, Timestamp
from strandline.model.panes import DeadLetter, Emitted, Late, LateReason, Pane, Row, Timing
from strandline.model.watermarks import Inputs
from strandline.model.windows import Window
from strandline.plan.sql_pushdown import in_python
from strandline.plan.stages import Flagged, Scan
from strandline.plan.stateless_operations import Operation, describe, names_only
from strandline.plan.stories.story_pipeline import AT as TIME
from strandline.plan.stories.story_pipeline import KEY, StoryPipeline

HIDDEN = (KEY, TIME)
"""Columns of a story's own elements that are not shown, because a row has them as its key or its time."""


class StagesPlayer(ABC):
    """Play the stages of a pipeline; a subclass carries the blocks to the key groups."""

    def __init__(self, pipeline: StoryPipeline) -> None:
        self._pipeline, self._stages = pipeline, pipeline.stages
        self._hidden = HIDDEN if pipeline.is_inline else ()
        self._scans = {pipeline.input_name(scan.source): scan for scan in self._stages.scans}
        # Partitions of a story's own inputs are told apart even if it names none from the start.
        alone = (scan.number for scan in self._stages.scans if scan.source.partitions == ("",))
        self._alone = frozenset[int]() if pipeline.is_inline else frozenset(alone)
        self._clock = EPOCH.ms
        self._known_columns: dict[str, dict[str, None]] = {}
        self._key_types: dict[str, pl.DataType] = {}
        self._steps: Mapping[int, StepOutput] = {}
        self._counts: dict[str, Counts] = {}

    @abstractmethod
    def _carry(self, packet: Packet, batch: Batch) -> Gathered:
        """Process a packet; return the output of all key groups."""

    def watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark of an operator, or the lowest of all."""
        reached = [step.progress.watermark for step in self._named(name)]
        return Timestamp(min(reached, default=NEVER))

    def output_watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark that an operator forwards, or the lowest of those that write to an output."""
        ends = {step.number for step in self._stages.steps if any(route.output is not None for route in step.routes)}
        found = self._named(name) if name is not None else [self._step(number) for number in ends]
        return Timestamp(min((step.output_watermark for step in found), default=NEVER))

    def rows_of(self, name: str | None = None) -> int:
        """Return the number of state rows of all keys: open windows, or shared slices."""
        return sum(step.rows for step in self._named(name))

    @property
    def watermark(self) -> Timestamp:
        """Return the lowest watermark of all operators."""
        return self.watermark_of()

    @property
    def output_watermark(self) -> Timestamp:
        """Return the lowest watermark that is forwarded to an output."""
        return self.output_watermark_of()

    @property
    def rows(self) -> int:
        """Return the number of state rows of all operators."""
        return self.rows_of()

    @property
    def is_idle(self) -> bool:
        """Tell whether every partition or input is idle."""
        return bool(self._stages.steps) and all(self._step(step.number).progress.is_idle for step in self._stages.steps)

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Return what became of all elements so far, by step, or by output that elements reach without one."""
        return self._counts

    def _step(self, number: int) -> StepOutput:
        return self._steps.get(number, StepOutput())

    def _named(self, name: str | None) -> list[StepOutput]:
        if name is None:
            return [self._step(step.number) for step in self._stages.steps]
        return [self._step(self._pipeline.number_of(name))]

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Process elements. Inside a batch they arrive by source position: partition, then offset."""
        if self._pipeline.fires_per_element:
            return sum((self._feed_batch([element]) for element in elements), Emitted())
        return self._feed_batch(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _feed_batch(self, elements: Sequence[Element]) -> Emitted:
        rows = {}
        for name, scan in self._scans.items():
            mine = [each for each in elements if each.input in ("", name)]
            if mine:
                rows[scan.number] = self._narrowed(scan, self._frame(scan, mine))
        return self._play(rows)

    def _frame(self, scan: Scan, elements: Sequence[Element]) -> pl.DataFrame:
        """Return elements as columns of their source."""
        places = {
            PARTITION: pl.Series([each.partition for each in elements], dtype=pl.String),
            OFFSET: pl.Series([each.offset for each in elements], dtype=pl.Int64),
            RAW: pl.Series([self._record(each) for each in elements], dtype=pl.Binary),
        }
        if not self._pipeline.is_inline:
            kinds = {name: to_polars(kind) for name, kind in scan.source.types.items()}
            rows = [[_in_frame(each.columns.get(name)) for name in kinds] for each in elements]
            return pl.DataFrame(rows, schema=kinds, orient="row").with_columns(**places)
        return self._inline_frame(scan, elements).with_columns(**places)

    def _record(self, element: Element) -> bytes:
        """Return the record of an element, which a dead letter carries."""
        record = {KEY: element.key, **element.columns} if self._pipeline.is_inline else element.columns
        return json.dumps(record, default=str).encode()

    def _inline_frame(self, scan: Scan, elements: Sequence[Element]) -> pl.DataFrame:
        """Return elements of a story's own input as columns; a column that a batch lacks is null."""
        name = scan.source.name
        known = self._known_columns.setdefault(name, self._columns_read(scan))
        known |= dict.fromkeys(column for element in elements for column in element.columns)
        times = [None if element.at.is_end else element.at.ms for element in elements]
        values = {column: [element.columns.get(column) for element in elements] for column in known}
        frame = pl.DataFrame({KEY: [element.key for element in elements], **values}, strict=False)
        at = pl.Series(TIME, times, dtype=pl.Int64).cast(pl.Datetime("ms", "UTC"))
        if frame.schema[KEY] == pl.Null:  # if all keys are null, use the type of the keys before
            frame = frame.with_columns(pl.col(KEY).cast(self._key_types.get(name, pl.String())))
        self._key_types[name] = frame.schema[KEY]
        return frame.with_columns(at)

    def _columns_read(self, scan: Scan) -> dict[str, None]:
        """Return the columns that operators read from a source, beside those that its elements always have."""
        found: dict[str, None] = {}

        def need(column: str) -> str:
            found[column] = None
            return "long"

        for route in (route for flow in scan.flows for route in flow.routes if route.step is not None):
            step = self._stages.by_number[route.step or 0]
            keys = step.paths[route.input].keys
            step.plan.check_columns(need, keys)
            found |= dict.fromkeys(keys)
        return {column: None for column in found if column not in HIDDEN}

    def _narrowed(self, scan: Scan, rows: pl.DataFrame) -> pl.DataFrame:
        """Run the operations that Spark runs in a job, as far as they only choose columns."""
        for operation in scan.native:
            if isinstance(operation, Flagged) or not names_only(operation):
                raise Unsupported(
                    f"«{_described(operation)}» is Spark SQL, which only Spark runs",
                    hint="play the story on spark, or write the expression in Polars",
                )
            rows = run_operations(rows, in_python((operation,))).rows
        return rows

    def move_watermark(self, to: Timestamp, of: str | None = None, source: str | None = None) -> Emitted:
        """Set the watermark of one partition or input, or of all unfinished ones."""

        def moved(flow: str) -> list[Seen]:
            known = self._partitions(flow)
            unfinished = [name for name, each in known.items() if not each.finished]
            names = unfinished if of is None else [self._may_be_new(flow, of)]
            return [Seen(name, watermark=to.ms) for name in names]

        return self._report(source, moved)

    def move_clock(self, to: Timestamp) -> Emitted:
        """Advance processing time; it never goes back."""
        self._clock = max(self._clock, to.ms)
        return self._play()

    def fall_idle(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition or input as idle."""
        return self._report(source, lambda flow: [Seen(each, idle=True) for each in self._some(flow, name)])

    def return_active(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition or input as active again; a partition may also be new."""

        def returned(flow: str) -> list[Seen]:
            names = [*self._partitions(flow)] if name is None else [self._may_be_new(flow, name)]
            return [Seen(each, idle=False) for each in names]

        return self._report(source, returned)

    def finish(self, name: str | None, source: str | None = None) -> Emitted:
        """Finish a partition or input."""
        return self._report(source, lambda flow: [Seen(each, finished=True) for each in self._some(flow, name)])

    def drain(self) -> Emitted:
        """End all input: every window closes."""
        return self._play(drain=True)

    def _report(self, source: str | None, seen: Callable[[str], list[Seen]]) -> Emitted:
        scans = self._stages.scans if source is None else (self._scans[source],)
        flows = [flow.name for scan in scans for flow in scan.flows]
        return self._play(reports={flow: tuple(seen(flow)) for flow in flows})

    def _play(
        self,
        rows: Mapping[int, pl.DataFrame] | None = None,
        reports: Mapping[str, tuple[Seen, ...]] | None = None,
        *,
        drain: bool = False,
    ) -> Emitted:
        horizons = {step.number: self._step(step.number).progress.watermark for step in self._stages.steps}
        batch = Batch(self._clock, horizons)
        packet = Packet(rows or {}, self._clock, reports or {}, drain, self._alone)
        gathered = self._carry(packet, batch)
        for name, (many, facts) in gathered.unaccounted.items():
            raise StateError(f"{many} elements of {name} are unaccounted for", detail=facts)
        self._steps = {**self._steps, **gathered.steps}
        for name, counts in gathered.counts.items():
            self._counts[name] = self._counts.get(name, Counts()) + counts
        return sum((self._emitted(gathered, number) for number in range(len(self._stages.outputs))), Emitted())

    def _partitions(self, flow: str) -> Mapping[str, PartitionProgress]:
        """Return the progress of a flow's partitions; those known from the start exist before the first batch."""
        step, each = next((step, each) for step in self._stages.steps for each in step.inputs if each.name == flow)
        progress = self._step(step.number).progress
        progress = progress if len(step.inputs) == 1 else progress.inputs.get(flow, Progress())
        usual = each.partitions if self._pipeline.is_inline else each.partitions or ("",)
        return dict.fromkeys(usual, PartitionProgress()) | dict(progress.partitions)

    def _some(self, flow: str, name: str | None) -> list[str]:
        return [*self._partitions(flow)] if name is None else [self._known(flow, name)]

    def _may_be_new(self, flow: str, name: str) -> str:
        rules = (each.watermark for step in self._stages.steps for each in step.inputs if each.name == flow)
        return self._known(flow, name) if isinstance(next(rules, None), Inputs) else name

    def _known(self, flow: str, name: str) -> str:
        partitions = self._partitions(flow)
        if name in partitions:
            return name
        known = ", ".join(partitions) or "none"
        raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")

    def _emitted(self, gathered: Gathered, number: int) -> Emitted:
        """Return the rows, late elements and dead letters of one output."""
        name = self._pipeline.output_names[number]
        keys = next((step.keys for step in self._stages.steps for route in step.routes if route.output == number), ())
        found = [*_rows(gathered.frames.get(f"out:{number}"))]
        are_panes = bool(found) and columns.TIMING in found[0] and all(key in found[0] for key in keys)
        late_keys = next((step.keys for step in self._stages.steps if step.late_to == number), keys)
        return Emitted(
            tuple(self._pane(row, keys, name) for row in found if are_panes),
            tuple(self._late(row, late_keys, name) for row in _rows(gathered.frames.get(f"late:{number}"))),
            tuple(self._letter(row, name) for row in _rows(gathered.frames.get(f"dead:{number}"))),
            tuple(self._row(row, keys, name) for row in found if not are_panes),
        )

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the user's columns of a row."""
        return {name: _plain(value) for name, value in row.items() if not name.startswith(OWN)}

    def _present(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the user's columns; of a story's own elements, a null is a column that the element lacks."""
        columns = self._columns(row)
        if not self._hidden:
            return columns
        return {name: value for name, value in columns.items() if value is not None and name not in self._hidden}

    def _pane(self, row: dict[str, Any], keys: Sequence[str], output: str) -> Pane:
        return Pane(
            key=_key(row, keys),
            window=_window(row),
            values={name: value for name, value in self._columns(row).items() if not self._hidden or name != KEY},
            timing=Timing(row[columns.TIMING]),
            index=row[columns.INDEX],
            nonspeculative_index=row[columns.NONSPECULATIVE],
            is_first=row[columns.FIRST],
            is_last=row[columns.LAST],
            timestamp=Timestamp(row[columns.TIMESTAMP]),
            retraction=row[columns.RETRACTION],
            output=output,
        )

    def _row(self, row: dict[str, Any], keys: Sequence[str], output: str) -> Row:
        values = self._present(row)
        if columns.TIMING in row:  # a pane without its key columns
            values |= {"window": _window(row), "timing": row[columns.TIMING], "index": row[columns.INDEX]}
        key = _key(row, keys) if all(each in row for each in keys) else None
        at = row.get(AT, row.get(columns.TIMESTAMP))
        taken_back = row.get(columns.RETRACTION, row.get(SIGN, 1) < 0)
        return Row(key, BEGINNING if at is None else Timestamp(at), values, taken_back, output)

    def _late(self, row: dict[str, Any], keys: Sequence[str], output: str) -> Late:
        window = _window(row) if START in row else None
        origin = row.get(SOURCE) or ""
        names = {f"step {step.number}": self._pipeline.name_of(step) for step in self._stages.steps}
        element = Element(
            Timestamp(row[AT]),
            _key(row, [name for name in keys if name in row]),  # a salt is not shown
            self._present(row),
            row[PARTITION],
            row[OFFSET],
            row.get(SIGN, 1) < 0,
            names.get(origin, origin),
        )
        return Late(element, LateReason(row[REASON]), window, Timestamp(row[WATERMARK]), row[PARTIAL], output)

    def _letter(self, row: dict[str, Any], output: str) -> DeadLetter:
        record: Any = json.loads(row[RAW]) if row[RAW] else {}
        known = {} if row[AT] is None else {"at": Timestamp(row[AT])}
        fields = {name: value for name, value in record.items() if value is not None or name == KEY}
        if self._hidden:
            fields.pop(TIME, None)
        return DeadLetter(
            row[REASON], {**known, **{name: each for name, each in fields.items() if name not in known}}, output
        )


class KernelPlayer(StagesPlayer):
    """Play on key groups in memory, with the same state bytes as on Spark."""

    def __init__(self, pipeline: StoryPipeline) -> None:
        super().__init__(pipeline)
        self._held: dict[int, dict[str, bytes]] = {}

    def _prepared(self, packet: Packet, batch: Batch) -> Blocks:
        return prepared(packet, self._stages, batch)

    def _carry(self, packet: Packet, batch: Batch) -> Gathered:
        sent = [(to, pack(block)) for to, block in self._prepared(packet, batch)]
        for level in self._stages.levels:
            here = {address(step, group): (step, group) for step in level for group in range(step.groups)}
            shuffled: dict[int, list[bytes]] = {}
            for to, data in sent:
                shuffled.setdefault(to, []).append(data)
            sent = [(to, data) for to, data in sent if to not in here]
            for to, (step, group) in here.items():
                blocks = [unpack(data, "input") for data in shuffled.get(to, [])]
                held = self._held.setdefault(to, {})
                ordered = sorted(blocks, key=sender_of)
                writes, answers = play_group(step, group, held, ordered, self._stages.by_number, batch)
                _write(held, writes)
                sent += [(where, pack(block)) for where, block in answers]
        return gather(unpack(data, "output") for _, data in sorted(sent, key=lambda each: place(each[0])))

    def restart(self) -> Self:
        """Return a player restored from the state bytes, with the information that a source would repeat."""
        restarted = copy(self)
        restarted._held = {to: dict(held) for to, held in self._held.items()}  # noqa: SLF001 - same class
        restarted._counts = dict(self._counts)  # noqa: SLF001 - same class
        return restarted

    def close(self) -> None:
        """Do nothing: the player only uses memory."""


def _described(operation: Operation | Flagged) -> str:
    return f"where {operation.condition}" if isinstance(operation, Flagged) else describe(operation)


def _write(held: dict[str, bytes], writes: Mapping[str, bytes | None]) -> None:
    for where, data in writes.items():
        if data is None:
            held.pop(where, None)
        else:
            held[where] = data


def _rows(frame: pl.DataFrame | None) -> Iterable[dict[str, Any]]:
    return () if frame is None else frame.iter_rows(named=True)


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> Any:
    values = tuple(_plain(row[name]) for name in keys)
    return values[0] if len(values) == 1 else values


def _plain(value: Any) -> Any:
    """Return times as timestamps, as the oracle has them."""
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _in_frame(value: Any) -> Any:
    """Return a time as frames have it."""
    if not isinstance(value, Timestamp) or value.is_end:
        return None if isinstance(value, Timestamp) else value
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value.ms)


def _window(row: Mapping[str, Any]) -> Window:
    return Window(Timestamp(row[START]), Timestamp(row[END]))
