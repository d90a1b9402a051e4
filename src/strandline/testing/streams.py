"""Write a story as code: each call adds a step and returns a new stream."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from strandline.errors import InvalidWatermark
from strandline.model.elements import TimeDomain
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, ByClock, Inputs, Watermark
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.story import Story, story_over
from strandline.plan.stories.story_pipeline import one_operator
from strandline.testing.playing import USUAL_PLAYER, player_named

Rows = Sequence[Mapping[str, Any]]
Time = Any
"""A time as in a story: `"26s"` after the epoch, whole milliseconds, an ISO text; or a Timestamp or datetime."""


class TestStream:
    """A stream controlled by a test. Without a watermark strategy the test sets the watermark itself.

    >>> from strandline.model import aggregates, steps, windows
    >>> counts = steps.WindowedStep((("n", aggregates.count()),), windows.tumbling(minutes=1))
    >>> TestStream(counts).input([{"at": "5s"}]).watermark("1m").expect([{"n": 1, "timing": "on_time"}]).play().ok
    True
    """

    __test__: ClassVar[bool] = False  # pytest would collect a class called Test…
    __slots__ = ("_name", "_pipeline", "_steps")

    def __init__(
        self,
        step: WindowedStep,
        watermark: Watermark | Inputs | None = None,
        *,
        partitions: Sequence[str] = (),
        fires_per_element: bool = False,
        name: str = "TestStream",
    ) -> None:
        by_clock = step.time is TimeDomain.PROCESSING
        if by_clock and watermark is not None:
            raise InvalidWatermark("in processing time the clock is the watermark", hint="leave the watermark out")
        rule = watermark or (Watermark(ByClock()) if by_clock else BY_HAND)
        self._pipeline = one_operator(step, rule, partitions, fires_per_element)
        self._steps: tuple[Mapping[str, Any], ...] = ()
        self._name = name

    def input(self, elements: Rows) -> "TestStream":
        """Add one batch of elements: `at`, `key` and `partition`, and columns by name."""
        return self._then("input", elements)

    def watermark(self, to: Time, of: str | None = None) -> "TestStream":
        """Advance the watermark, or that of one partition or input."""
        return self._then("watermark", to if of is None else {"of": of, "to": to})

    def clock(self, to: Time) -> "TestStream":
        """Advance processing time."""
        return self._then("clock", to)

    def idle(self, name: str) -> "TestStream":
        """Mark a partition or input as idle."""
        return self._then("idle", name)

    def active(self, name: str) -> "TestStream":
        """Mark a partition or input as active."""
        return self._then("active", name)

    def finish(self, name: str) -> "TestStream":
        """Mark a partition or input as ended."""
        return self._then("finish", name)

    def drain(self) -> "TestStream":
        """End the input."""
        return self._then("drain", None)

    def restart(self) -> "TestStream":
        """Stop, restore from the stored state, and continue."""
        return self._then("restart", None)

    def expect(self, panes: Rows) -> "TestStream":
        """Expect exactly these panes since the last expectation; only the given fields are compared."""
        return self._then("expect", panes)

    def expect_some(self, panes: Rows) -> "TestStream":
        """Expect these panes among those emitted; the others are dropped."""
        return self._then("expect_some", panes)

    def expect_late(self, rows: Rows) -> "TestStream":
        """Expect these late elements."""
        return self._then("expect_late", rows)

    def expect_dead(self, rows: Rows) -> "TestStream":
        """Expect these dead letters."""
        return self._then("expect_dead", rows)

    def expect_watermark(self, at: Time) -> "TestStream":
        """Expect this watermark; `"none"` before there is one."""
        return self._then("expect_watermark", at)

    def expect_output_watermark(self, at: Time) -> "TestStream":
        """Expect this output watermark; `"none"` before there is one."""
        return self._then("expect_output_watermark", at)

    def expect_idle(self, is_idle: bool = True) -> "TestStream":
        """Expect that every partition or input is idle."""
        return self._then("expect_idle", is_idle)

    def expect_state(self, rows: int) -> "TestStream":
        """Expect this number of open windows over all keys; 0 if no state is kept."""
        return self._then("expect_state", {"rows": rows})

    def ignore(self) -> "TestStream":
        """Drop the pending output."""
        return self._then("ignore", None)

    def story(self) -> Story:
        """Return the story so far; errors name a step as `steps[n]`, from 0."""
        return story_over(self._pipeline, self._steps, self._name)

    def play(self, on: str = USUAL_PLAYER) -> Outcome:
        """Play the story so far."""

        return perform(self.story(), player_named(on))

    def _then(self, word: str, value: Any) -> "TestStream":
        longer = object.__new__(TestStream)
        longer._pipeline, longer._name = self._pipeline, self._name
        longer._steps = (*self._steps, {word: value})
        return longer
