"""Play a graph of steps on the oracle: each call is one batch, or one batch per element if so configured."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from strandline.errors import InvalidWatermark
from strandline.model.counts import Counts
from strandline.model.elements import BEGINNING, END, EPOCH, INSTANT, Element, TimeDomain, Timestamp
from strandline.model.panes import DeadLetter, Emitted, Late, Pane
from strandline.model.watermarks import Inputs
from strandline.reference import snapshots, watermarks
from strandline.reference.batch import StepState, Tally, admit, play
from strandline.reference.graph import Graph, Path, Step, StepInput
from strandline.reference.state import KeyState
from strandline.reference.values import rank
from strandline.reference.watermarks import Progress, Rule

Change = Callable[[StepInput, Rule, Progress], Progress]
"""Changes the progress of an input of a step."""
_FIRST: Final = BEGINNING


@dataclass(frozen=True, slots=True)
class Moved:
    """A row between steps: its columns, time and sign."""

    columns: Mapping[str, Any]
    at: Timestamp
    retraction: bool = False


@dataclass(frozen=True, slots=True)
class GraphStep:
    """The state of one step: what its operator holds, the progress of each input, and the number of rows sent."""

    state: StepState
    inputs: Mapping[str, Progress] = field(default_factory=dict)
    sent: int = 0
    read: int = 0
    """Elements that reach their first step here."""


class GraphPlayer:
    """Run the steps of a graph, one after the other in each batch."""

    def __init__(self, graph: Graph, *, fires_per_element: bool = False) -> None:
        self._graph = graph
        self._fires_per_element = fires_per_element
        self._clock = EPOCH
        self._steps = tuple(_begun(step) for step in graph.steps)

    @property
    def watermark(self) -> Timestamp:
        """Return the lowest watermark of all steps."""
        return self.watermark_of()

    @property
    def output_watermark(self) -> Timestamp:
        """Return the lowest watermark that a step forwards to an output."""
        return self.output_watermark_of()

    @property
    def rows(self) -> int:
        """Return the number of windows held over all keys and steps, open or marked as closed."""
        return self.rows_of()

    @property
    def is_idle(self) -> bool:
        """Return whether every partition and input is idle."""
        return all(each.state.progress.is_idle for each in self._steps)

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Return what became of all elements so far, by step."""
        return {step.name: _counts(each) for step, each in zip(self._graph.steps, self._steps, strict=True)}

    def watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark of a step, or the lowest."""
        return min(self._steps[number].state.progress.watermark for number in self._named(name))

    def output_watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark that a step forwards, or the lowest of those that write to an output."""
        named = self._named(name)
        ends = named if name is not None else [number for number in named if self._graph.steps[number].outputs]
        return min(self._steps[number].state.output_watermark for number in ends)

    def rows_of(self, name: str | None = None) -> int:
        """Return the number of windows that a step holds, or all. A counting key is one row."""
        held = [state for number in self._named(name) for _, state in self._steps[number].state.keys.values()]
        return sum(len(each.windows) + len(each.closed) if isinstance(each, KeyState) else 1 for each in held)

    def _named(self, name: str | None) -> list[int]:
        return [*range(len(self._steps))] if name is None else [self._graph.names[name]]

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Process elements as a batch, ordered by source position: partition, then offset."""
        if self._fires_per_element:
            return sum((self._feed_batch([element]) for element in elements), Emitted())
        return self._feed_batch(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _feed_batch(self, elements: Sequence[Element]) -> Emitted:
        def observe(of: StepInput, rule: Rule, progress: Progress) -> Progress:
            mine = [each for each in elements if each.input in ("", of.source)]
            timed = [replace(each, at=self._time(of, each)) for each in mine]
            return watermarks.on_rows(rule, progress, timed, self._clock)

        return self._play(observe, elements)

    def _time(self, of: StepInput, element: Element) -> Timestamp:
        column = next((path.time for step in self._graph.steps for path in step.paths if path.input == of.name), None)
        return self._clock if column is None else _instant(self._row(element).get(column))

    def move_watermark(self, to: Timestamp, of: str | None = None, source: str | None = None) -> Emitted:
        """Set the watermark of one partition or input, or of all that have not ended."""

        def move(_: StepInput, rule: Rule, progress: Progress) -> Progress:
            names = [name for name, each in progress.partitions.items() if not each.finished]
            # A source without known partitions is one partition, until its elements name others.
            names = names if names or self._graph.hidden else [""]
            for name in names if of is None else [_known(progress, of)]:
                progress = watermarks.on_watermark(rule, progress, name, to, self._clock)
            return progress

        return self._play(self._only(source, move))

    def move_clock(self, to: Timestamp) -> Emitted:
        """Advance processing time; it never goes back."""
        self._clock = max(self._clock, to)
        return self._play(lambda _, rule, progress: watermarks.on_clock(rule, progress, self._clock))

    def fall_idle(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition, or all of an input, as idle."""
        return self._change(watermarks.on_idle, name, source)

    def return_active(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition, or all of an input, as active; a partition may also be new."""
        return self._change(watermarks.on_active, name, source, may_be_new=True)

    def finish(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition, or all of an input, as ended."""
        return self._change(watermarks.on_finish, name, source)

    def _change(
        self,
        change: Callable[[Rule, Progress, str, Timestamp], Progress],
        name: str | None,
        source: str | None,
        *,
        may_be_new: bool = False,
    ) -> Emitted:
        def changed(_: StepInput, rule: Rule, progress: Progress) -> Progress:
            new = may_be_new and not isinstance(rule, Inputs)
            names = [*progress.partitions] if name is None else [name if new else _known(progress, name)]
            for each in names:
                progress = change(rule, progress, each, self._clock)
            return progress

        return self._play(self._only(source, changed))

    def _only(self, source: str | None, change: Change) -> Change:
        """Limit a change to one source; the others see the clock of the batch."""

        def limited(of: StepInput, rule: Rule, progress: Progress) -> Progress:
            if source in (None, of.source):
                return change(of, rule, progress)
            return watermarks.on_clock(rule, progress, self._clock)

        return limited

    def drain(self) -> Emitted:
        """End all input: every window closes."""
        return self._play(lambda _, __, progress: watermarks.on_drain(progress), is_drain=True)

    def _play(self, change: Change, elements: Sequence[Element] = (), *, is_drain: bool = False) -> Emitted:
        done: list[GraphStep] = []
        sent: list[list[Moved]] = []
        emitted = Emitted()
        for step, before in zip(self._graph.steps, self._steps, strict=True):
            inputs, progress = self._advanced(step, before, change, done, is_drain=is_drain)
            admitted, refused = self._admitted(step, elements, sent)
            state, said = play(
                step.operator, None, before.state, admitted, progress, self._clock, refused, _roles(step)
            )
            rows = [*_rows_of(step, said)]
            first = sum(self._is_first(step, path, each) for path in step.paths for each in elements)
            done.append(GraphStep(state, inputs, before.sent + len(rows), before.read + first))
            sent.append(rows)
            emitted += self._shown(step, said)
        self._steps = tuple(done)
        return emitted

    def _advanced(
        self, step: Step, before: GraphStep, change: Change, done: Sequence[GraphStep], *, is_drain: bool
    ) -> tuple[Mapping[str, Progress], Progress]:
        """Advance the inputs of a step, and its own watermark, their minimum."""
        if step.rule is not None:
            return {}, change(step.inputs[0], step.rule, before.state.progress)
        inputs = {
            each.name: change(each, each.rule, before.inputs[each.name])
            for each in step.inputs
            if each.rule is not None
        }
        reached = {name: (each.watermark, each.is_idle) for name, each in inputs.items()}
        for path in step.paths:
            if path.step is not None:
                sender = done[path.step].state
                reached[path.input] = (sender.output_watermark, sender.progress.is_idle)
        names = Inputs(tuple(each.name for each in step.inputs))
        combined = watermarks.on_inputs(names, before.state.progress, reached, self._clock)
        return inputs, watermarks.on_drain(combined) if is_drain and inputs else combined

    def _admitted(
        self, step: Step, elements: Sequence[Element], sent: Sequence[Sequence[Moved]]
    ) -> tuple[list[Element], list[DeadLetter]]:
        """Return the elements that reach a step on its paths, and those that the rule of their input refuses."""
        rules = {each.name: each.rule for each in step.inputs}
        admitted: list[Element] = []
        refused: list[DeadLetter] = []
        for number, path in enumerate(step.paths):
            place = f"{number:03}" if len(step.paths) > 1 else ""
            arrived = [*self._arrived(step, path, elements, sent)]
            taken, dead = admit(rules[path.input], [replace(each, input=place) for each in arrived], self._clock)
            admitted += taken
            refused += dead
        return admitted, refused

    def _arrived(
        self, step: Step, path: Path, elements: Sequence[Element], sent: Sequence[Sequence[Moved]]
    ) -> Iterator[Element]:
        if path.step is not None:
            first = self._steps[path.step].sent
            name = f"step {path.step}"
            for place, moved in enumerate(sent[path.step]):
                yield self._element(path, moved.columns, moved.at, name, first + place, moved.retraction)
            return
        for each in elements:
            if each.input in ("", path.source):
                row = self._row(each)
                at = self._clock if path.time is None else _instant(row.get(path.time))
                at = self._clock if step.operator.time is TimeDomain.PROCESSING else at
                yield self._element(path, row, at, each.partition, each.offset, each.retraction)

    def _row(self, element: Element) -> Mapping[str, Any]:
        """Return all columns of an element. A story's own inputs have the key and the time beside the columns."""
        if not self._graph.hidden:
            return element.columns
        return {"key": element.key, "at": element.at, **element.columns}

    def _element(
        self, path: Path, row: Mapping[str, Any], at: Timestamp, partition: str, offset: int, retraction: bool = False
    ) -> Element:
        keys = tuple(row.get(name) for name in path.keys)
        columns = row if path.time is None or not self._graph.hidden else _without(row, (path.time,))
        return Element(at, keys[0] if len(keys) == 1 else keys, columns, partition, offset, retraction)

    def _is_first(self, step: Step, path: Path, element: Element) -> bool:
        """Tell whether an element reaches its first step on this path. Elsewhere it is counted as played again."""
        if path.source is None or element.input not in ("", path.source):
            return False
        first = next(
            (each, way)
            for each in self._graph.steps
            for way in each.paths
            if way.source in (element.input, path.source)
        )
        return first == (step, path)

    def _shown(self, step: Step, said: Emitted) -> Emitted:
        """Return what a step emits as its outputs show it."""
        hidden = self._graph.hidden
        return Emitted(
            tuple(
                replace(
                    pane, values=_without({**_keys_of(step, pane.key), **pane.values}, hidden - {"at"}), output=output
                )
                for output in step.outputs
                for pane in said.panes
            ),
            tuple(self._late(step, each) for each in said.late),
            tuple(replace(each, output=step.dead_to) for each in said.dead),
            tuple(
                replace(row, values=_without(row.values, hidden), output=output)
                for output in step.outputs
                for row in said.rows
            ),
        )

    def _late(self, step: Step, late: Late) -> Late:
        origin = step.paths[int(late.element.input)].origin if late.element.input else ""
        columns = _without(late.element.columns, self._graph.hidden)
        return replace(late, element=replace(late.element, input=origin, columns=columns), output=step.late_to)

    def snapshot(self) -> str:
        """Return all state as JSON text."""
        steps = [
            {
                "keys": [*each.state.keys.values()],
                "progress": each.state.progress,
                "clock": each.state.clock,
                "tally": _tally_facts(each.state.tally),
                "inputs": each.inputs,
                "sent": each.sent,
                "read": each.read,
            }
            for each in self._steps
        ]
        return snapshots.write({"steps": steps, "clock": self._clock})

    def restore(self, text: str) -> None:
        """Restore the state of a snapshot."""
        snapshot = snapshots.read(text)
        self._clock = snapshot["clock"]
        self._steps = tuple(
            GraphStep(
                StepState(
                    {rank(key): (key, state) for key, state in each["keys"]},
                    each["progress"],
                    each["clock"],
                    Tally(*each["tally"]),
                ),
                each["inputs"],
                each["sent"],
                each["read"],
            )
            for each in snapshot["steps"]
        )

    def restart(self) -> Self:
        """Return a new player that has only the snapshot of this one."""
        again = copy(self)
        again.restore(self.snapshot())
        return again

    def close(self) -> None:
        """Do nothing: the player holds only memory."""


def _begun(step: Step) -> GraphStep:
    """Return a step before its first batch: inputs and partitions known from the start hold the watermark back."""
    if step.rule is not None:
        return GraphStep(StepState(progress=_known_from_start(step.inputs[0])))
    inputs = {each.name: _known_from_start(each) for each in step.inputs if each.rule is not None}
    return GraphStep(StepState(progress=watermarks.begin(each.name for each in step.inputs)), inputs)


def _known_from_start(each: StepInput) -> Progress:
    return watermarks.begin(each.rule.names if isinstance(each.rule, Inputs) else each.partitions)


def _known(progress: Progress, name: str) -> str:
    if name in progress.partitions:
        return name
    known = ", ".join(progress.partitions) or "none"
    raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")


def _instant(value: Any) -> Timestamp:
    return value if isinstance(value, Timestamp) else _FIRST


def _keys_of(step: Step, key: Any) -> dict[str, Any]:
    return dict(zip(step.keys, (key,) if len(step.keys) == 1 else key, strict=True))


def _roles(step: Step) -> Mapping[str, str]:
    """Return the role of each path, by its place in the identity of elements."""
    if len(step.paths) == 1:
        return {"": step.paths[0].role}
    return {f"{number:03}": path.role for number, path in enumerate(step.paths)}


def _rows_of(step: Step, said: Emitted) -> Iterator[Moved]:
    """Return the rows of a step as the elements of another, with the columns of panes under their public names."""
    for pane in said.panes:
        columns = {**_keys_of(step, pane.key), **pane.values, **_pane_columns(pane)}
        # Panes of a global window have the end of time, which elements cannot have.
        yield Moved(columns, min(pane.timestamp, END - INSTANT, key=_ms), pane.retraction)
    for row in said.rows:
        yield Moved({**_keys_of(step, row.key), **row.values}, row.at, row.retraction)


def _without(columns: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name not in names}


def _ms(at: Timestamp) -> int:
    return at.ms


def _pane_columns(pane: Pane) -> dict[str, Any]:
    start, end = pane.window.start, pane.window.end
    return {
        "window_start": None if start.is_end else start,
        "window_end": None if end.is_end else end,
        "timing": str(pane.timing),
        "pane_index": pane.index,
        "is_last": pane.is_last,
        "retraction": pane.retraction,
    }


def _counts(step: GraphStep) -> Counts:
    tally = step.state.tally
    return Counts(
        read=step.read,
        contributed=tally.contributed,
        late=sum(tally.late.values()),
        dead=sum(tally.dead.values()),
        filtered=tally.filtered,
        again=tally.elements - step.read,
    )


def _tally_facts(tally: Tally) -> list[Any]:
    return [tally.elements, tally.contributed, tally.late, tally.dead, tally.filtered]
