"""The oracle as a player: each call is one batch, or one for each element if so asked."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Self

from strandline.errors import InvalidWatermark
from strandline.model.elements import Element, TimeDomain, Timestamp
from strandline.model.panes import Emitted
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Inputs
from strandline.reference import snapshots, watermarks
from strandline.reference.batch import Kept, Tally, play
from strandline.reference.state import KeyState
from strandline.reference.values import rank
from strandline.reference.watermarks import Progress, Rule


class ReferencePlayer:
    """Plays a windowed step under a rule for its watermark; between calls it holds nothing but a `Kept`."""

    def __init__(
        self, ask: WindowedStep, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        self._ask = ask
        self._rule = rule
        self._fires_per_element = fires_per_element
        self._kept = Kept(progress=watermarks.begin(rule.names if isinstance(rule, Inputs) else partitions))

    @property
    def watermark(self) -> Timestamp:
        """How far time has come."""
        return self._kept.progress.watermark

    @property
    def output_watermark(self) -> Timestamp:
        """How far the step lets time come for those after it."""
        return self._kept.output_watermark

    @property
    def is_idle(self) -> bool:
        """Whether every partition or input is idle."""
        return self._kept.progress.is_idle

    @property
    def rows(self) -> int:
        """The windows still held, over all keys: open ones and marks of closed ones. A key that counts is one row."""
        states = [state for _, state in self._kept.keys.values()]
        return sum(len(state.windows) + len(state.closed) if isinstance(state, KeyState) else 1 for state in states)

    @property
    def tally(self) -> Tally:
        """What became of every element so far."""
        return self._kept.tally

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Elements come in. Inside a batch they arrive by source position: partition, then offset."""
        if self._fires_per_element:
            return sum((self._fed([element]) for element in elements), Emitted())
        return self._fed(sorted(elements, key=lambda element: (element.partition, element.offset)))

    def _fed(self, elements: Sequence[Element]) -> Emitted:
        clock = self._kept.clock
        if self._ask.time is TimeDomain.PROCESSING:
            elements = [replace(element, at=clock) for element in elements]
        return self._play(watermarks.on_rows(self._rule, self._kept.progress, elements, clock), clock, elements)

    def move_watermark(self, to: Timestamp, of: str | None = None) -> Emitted:
        """One partition or input tells its watermark, or all that have not ended do."""
        progress, clock = self._kept.progress, self._kept.clock
        names = [name for name, each in progress.partitions.items() if not each.finished]
        for name in names if of is None else [self._known(of)]:
            progress = watermarks.on_watermark(self._rule, progress, name, to, clock)
        return self._play(progress, clock)

    def move_clock(self, to: Timestamp) -> Emitted:
        """Processing time moves on; it never goes back."""
        clock = max(self._kept.clock, to)
        return self._play(watermarks.on_clock(self._rule, self._kept.progress, clock), clock)

    def fall_idle(self, name: str) -> Emitted:
        """A partition or input falls idle."""
        return self._turn(watermarks.on_idle, self._known(name))

    def return_active(self, name: str) -> Emitted:
        """A partition or input returns; a partition may also be new."""
        return self._turn(watermarks.on_active, self._known(name) if isinstance(self._rule, Inputs) else name)

    def finish(self, name: str) -> Emitted:
        """A partition or input ends."""
        return self._turn(watermarks.on_finish, self._known(name))

    def _turn(self, change: Callable[[Rule, Progress, str, Timestamp], Progress], name: str) -> Emitted:
        return self._play(change(self._rule, self._kept.progress, name, self._kept.clock), self._kept.clock)

    def _known(self, name: str) -> str:
        if name in self._kept.progress.partitions:
            return name
        known = ", ".join(self._kept.progress.partitions) or "none"
        raise InvalidWatermark(f"no partition or input is called {name!r}", detail=f"known so far: {known}")

    def drain(self) -> Emitted:
        """The end of all input: every window closes."""
        return self._play(watermarks.on_drain(self._kept.progress), self._kept.clock)

    def _play(self, progress: Progress, clock: Timestamp, elements: Sequence[Element] = ()) -> Emitted:
        self._kept, emitted = play(self._ask, self._rule, self._kept, elements, progress, clock)
        return emitted

    def snapshot(self) -> str:
        """All that is kept, as JSON text."""
        kept = self._kept
        tally = [getattr(kept.tally, each.name) for each in fields(Tally)]
        return snapshots.write(
            {"keys": [*kept.keys.values()], "progress": kept.progress, "clock": kept.clock, "tally": tally}
        )

    def restore(self, text: str) -> None:
        """Goes on from a snapshot."""
        kept = snapshots.read(text)
        keys = {rank(key): (key, state) for key, state in kept["keys"]}
        self._kept = Kept(keys, kept["progress"], kept["clock"], Tally(*kept["tally"]))

    def restart(self) -> Self:
        """A new player that knows nothing but the snapshot of this one."""
        again = type(self)(self._ask, self._rule, fires_per_element=self._fires_per_element)
        again.restore(self.snapshot())
        return again

    def close(self) -> None:
        """Nothing is held but memory."""
