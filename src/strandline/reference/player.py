"""Play stories on the oracle: each call is one batch, or one batch per element if so configured."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Self

from strandline.errors import InvalidWatermark
from strandline.model.elements import Element, TimeDomain, Timestamp
from strandline.model.operators import Operator
from strandline.model.panes import Emitted
from strandline.model.watermarks import Inputs
from strandline.reference import snapshots, watermarks
from strandline.reference.batch import StepState, Tally, play
from strandline.reference.state import KeyState
from strandline.reference.values import rank
from strandline.reference.watermarks import Progress, Rule


class ReferencePlayer:
    """Run a keyed operator under a watermark rule; all state between calls is one `StepState`."""

    def __init__(
        self, ask: Operator, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        self._ask = ask
        self._rule = rule
        self._fires_per_element = fires_per_element
        self._state = StepState(progress=watermarks.begin(rule.names if isinstance(rule, Inputs) else partitions))

    @property
    def watermark(self) -> Timestamp:
        """Return the watermark."""
        return self._state.progress.watermark

    @property
    def output_watermark(self) -> Timestamp:
        """Return the watermark that the step forwards."""
        return self._state.output_watermark

    @property
    def is_idle(self) -> bool:
        """Return whether every partition or input is idle."""
        return self._state.progress.is_idle

    @property
    def rows(self) -> int:
        """Return the number of windows held over all keys, open or marked as closed. A counting key is one row."""
        states = [state for _, state in self._state.keys.values()]
        return sum(len(state.windows) + len(state.closed) if isinstance(state, KeyState) else 1 for state in states)

    @property
    def tally(self) -> Tally:
        """Return the counts of all elements so far, by outcome."""
        return self._state.tally

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Process elements as a batch, ordered by source position: partition, then offset."""
        if self._fires_per_element:
            return sum((self._feed_batch([element]) for element in elements), Emitted())
        return self._feed_batch(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _feed_batch(self, elements: Sequence[Element]) -> Emitted:
        clock = self._state.clock
        if self._ask.time is TimeDomain.PROCESSING:
            elements = [replace(element, at=clock) for element in elements]
        return self._play(watermarks.on_rows(self._rule, self._state.progress, elements, clock), clock, elements)

    def move_watermark(self, to: Timestamp, of: str | None = None) -> Emitted:
        """Set the watermark of one partition or input, or of all that have not ended."""
        progress, clock = self._state.progress, self._state.clock
        names = [name for name, each in progress.partitions.items() if not each.finished]
        for name in names if of is None else [self._known(of)]:
            progress = watermarks.on_watermark(self._rule, progress, name, to, clock)
        return self._play(progress, clock)

    def move_clock(self, to: Timestamp) -> Emitted:
        """Advance processing time; it never goes back."""
        clock = max(self._state.clock, to)
        return self._play(watermarks.on_clock(self._rule, self._state.progress, clock), clock)

    def fall_idle(self, name: str) -> Emitted:
        """Mark a partition or input as idle."""
        return self._change_partition(watermarks.on_idle, self._known(name))

    def return_active(self, name: str) -> Emitted:
        """Mark a partition or input as active; a partition may also be new."""
        return self._change_partition(
            watermarks.on_active, self._known(name) if isinstance(self._rule, Inputs) else name
        )

    def finish(self, name: str) -> Emitted:
        """Mark a partition or input as ended."""
        return self._change_partition(watermarks.on_finish, self._known(name))

    def _change_partition(self, change: Callable[[Rule, Progress, str, Timestamp], Progress], name: str) -> Emitted:
        return self._play(change(self._rule, self._state.progress, name, self._state.clock), self._state.clock)

    def _known(self, name: str) -> str:
        if name in self._state.progress.partitions:
            return name
        known = ", ".join(self._state.progress.partitions) or "none"
        raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")

    def drain(self) -> Emitted:
        """End all input: every window closes."""
        return self._play(watermarks.on_drain(self._state.progress), self._state.clock)

    def _play(self, progress: Progress, clock: Timestamp, elements: Sequence[Element] = ()) -> Emitted:
        self._state, emitted = play(self._ask, self._rule, self._state, elements, progress, clock)
        return emitted

    def snapshot(self) -> str:
        """Return all state as JSON text."""
        state = self._state
        tally = [getattr(state.tally, each.name) for each in fields(Tally)]
        return snapshots.write(
            {"keys": [*state.keys.values()], "progress": state.progress, "clock": state.clock, "tally": tally}
        )

    def restore(self, text: str) -> None:
        """Restore the state of a snapshot."""
        snapshot = snapshots.read(text)
        keys = {rank(key): (key, state) for key, state in snapshot["keys"]}
        self._state = StepState(keys, snapshot["progress"], snapshot["clock"], Tally(*snapshot["tally"]))

    def restart(self) -> Self:
        """Return a new player that has only the snapshot of this one."""
        again = type(self)(self._ask, self._rule, fires_per_element=self._fires_per_element)
        again.restore(self.snapshot())
        return again

    def close(self) -> None:
        """Do nothing: the player holds only memory."""
