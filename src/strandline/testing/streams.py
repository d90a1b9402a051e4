"""A story written as code: each call adds a step and gives a new stream."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from strandline.errors import InvalidWatermark
from strandline.model.elements import TimeDomain
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, ByClock, Inputs, Watermark
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.story import Story, StoryPipeline, story_over
from strandline.testing.playing import USUAL_PLAYER, player_named

Rows = Sequence[Mapping[str, Any]]
Time = Any
"""As in a story: `"26s"` after the epoch, whole milliseconds, an ISO text; or a Timestamp or datetime."""


class TestStream:
    """A stream under a test's control. Without a watermark strategy the test moves the watermark by hand.

    >>> from strandline.model import aggregates, steps, windows
    >>> counts = steps.WindowedStep((("n", aggregates.count()),), windows.tumbling(minutes=1))
    >>> TestStream(counts).input([{"at": "5s"}]).watermark("1m").expect([{"n": 1, "timing": "on_time"}]).play().ok
    True
    """

    __test__: ClassVar[bool] = False  # pytest takes every class called Test… for a test
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
        self._pipeline = StoryPipeline(step, rule, tuple(partitions), fires_per_element)
        self._steps: tuple[Mapping[str, Any], ...] = ()
        self._name = name

    def input(self, elements: Rows) -> "TestStream":
        """One batch of elements: `at`, `key` and `partition`, and columns by their names."""
        return self._then("input", elements)

    def watermark(self, to: Time, of: str | None = None) -> "TestStream":
        """The watermark moves, the whole one or that of one partition or input."""
        return self._then("watermark", to if of is None else {"of": of, "to": to})

    def clock(self, to: Time) -> "TestStream":
        """Processing time moves."""
        return self._then("clock", to)

    def idle(self, name: str) -> "TestStream":
        """A partition or input falls idle."""
        return self._then("idle", name)

    def active(self, name: str) -> "TestStream":
        """A partition or input returns."""
        return self._then("active", name)

    def finish(self, name: str) -> "TestStream":
        """A partition or input ends."""
        return self._then("finish", name)

    def drain(self) -> "TestStream":
        """The input ends."""
        return self._then("drain", None)

    def restart(self) -> "TestStream":
        """Stop, restore from what was kept, go on."""
        return self._then("restart", None)

    def expect(self, panes: Rows) -> "TestStream":
        """These panes came out since the last expectation, no more and no less; only named fields are compared."""
        return self._then("expect", panes)

    def expect_some(self, panes: Rows) -> "TestStream":
        """These panes are among those that came out; the others are thrown away."""
        return self._then("expect_some", panes)

    def expect_late(self, rows: Rows) -> "TestStream":
        """These elements came too late."""
        return self._then("expect_late", rows)

    def expect_dead(self, rows: Rows) -> "TestStream":
        """These elements could not be taken in."""
        return self._then("expect_dead", rows)

    def expect_watermark(self, at: Time) -> "TestStream":
        """Where the watermark is; `"none"` before there is one."""
        return self._then("expect_watermark", at)

    def expect_output_watermark(self, at: Time) -> "TestStream":
        """What the step forwards; `"none"` before there is anything."""
        return self._then("expect_output_watermark", at)

    def expect_idle(self, is_idle: bool = True) -> "TestStream":
        """Whether every partition or input is idle."""
        return self._then("expect_idle", is_idle)

    def expect_state(self, rows: int) -> "TestStream":
        """How many windows are still held, over all keys; 0 when nothing is kept."""
        return self._then("expect_state", {"rows": rows})

    def ignore(self) -> "TestStream":
        """Throws away what is pending."""
        return self._then("ignore", None)

    def story(self) -> Story:
        """The story so far; errors name the step as `steps[n]`, from 0."""
        return story_over(self._pipeline, self._steps, self._name)

    def play(self, on: str = USUAL_PLAYER) -> Outcome:
        """Plays the story so far."""
        return perform(self.story(), player_named(on))

    def _then(self, word: str, value: Any) -> "TestStream":
        longer = object.__new__(TestStream)
        longer._pipeline, longer._name = self._pipeline, self._name
        longer._steps = (*self._steps, {word: value})
        return longer
