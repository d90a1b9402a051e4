"""Play a story on a player, step by step, and report the steps that fail."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from strandline.errors import StrandlineError
from strandline.model.elements import BEGINNING, Timestamp
from strandline.model.panes import Emitted
from strandline.plan.nodes import KeyedNode, outputs_of
from strandline.plan.stories.expectations import (
    Difference,
    dead_fields,
    late_fields,
    pane_fields,
    panes_differ,
    row_fields,
    rows_differ,
)
from strandline.plan.stories.operators import words_of
from strandline.plan.stories.operators.contract import WithAnyColumn
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story import EXPECTATION, Story
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.plan.stories.story_steps import (
    Drain,
    Expectation,
    ExpectDead,
    ExpectIdle,
    ExpectLate,
    ExpectPanes,
    ExpectState,
    ExpectWatermark,
    FallIdle,
    Feed,
    Finish,
    Ignore,
    Move,
    MoveClock,
    MoveWatermark,
    Restart,
    ReturnActive,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed step: its number, counted from 1, its position, and the difference."""

    step: int
    place: str
    difference: Difference
    is_error: bool = False

    def __str__(self) -> str:
        found = self.difference
        lines = [f"{self.place}: step {self.step}: {found.summary}" if self.step else f"{self.place}: {found.summary}"]
        if found.expected or found.got:
            lines += ["  expected", *(f"    {row}" for row in found.expected or ("  nothing",))]
            lines += ["  got", *(f"    {row}" for row in found.got or ("  nothing",))]
        return "\n".join([*lines, *(f"  {remark}" for remark in found.remarks)])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a story: its failures and all output of the player."""

    story: Story
    failures: tuple[Failure, ...]
    outputs: Emitted

    @property
    def ok(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"{self.story.name}: passes"
        return "\n".join([f"{self.story.name}: fails", *map(str, self.failures)])


def perform(story: Story, player_of: Callable[[StoryPipeline], Player]) -> Outcome:
    """Play a story to its end, or to an error, on a player made for its pipeline."""
    failures, outputs = _refused(story) if story.refusal else _played(story, player_of)
    return Outcome(story, _as_intended(story, failures), outputs)


def _refused(story: Story) -> tuple[tuple[Failure, ...], Emitted]:
    return (Failure(0, story.place, Difference(str(story.refusal), (), ()), is_error=True),), Emitted()


def _played(story: Story, player_of: Callable[[StoryPipeline], Player]) -> tuple[tuple[Failure, ...], Emitted]:
    try:
        stage = _Stage(player_of(story.pipeline), story.pipeline)
    except StrandlineError as error:
        return (Failure(0, story.place, Difference(str(error), (), ()), is_error=True),), Emitted()
    failures = []
    try:
        for number, step in enumerate(story.steps, 1):
            try:
                difference = stage.act(step.act)
            except StrandlineError as error:
                failures.append(Failure(number, step.place, Difference(str(error), (), ()), is_error=True))
                return tuple(failures), stage.outputs
            if difference is not None:
                failures.append(Failure(number, step.place, difference))
        failures += [Failure(len(story.steps), story.place, left) for left in stage.left_over()]
        return tuple(failures), stage.outputs
    finally:
        stage.player.close()


def _as_intended(story: Story, failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Return the failures of a story; a story with `fails` passes if it fails as it says."""
    if story.fails is None:
        return failures
    if story.fails == EXPECTATION:
        matches = any(not failure.is_error for failure in failures)
    else:
        matches = any(story.fails in str(failure) for failure in failures)
    if matches:
        return ()
    expected = "an expectation" if story.fails == EXPECTATION else f"the text {story.fails!r}"
    summary = f"it should fail with {expected}, and {'fails otherwise' if failures else 'passes'}"
    return (Failure(0, story.place, Difference(summary, (), ())), *failures)


class _Stage:
    """A player with its output, of which `pending` is not yet compared with an expectation."""

    def __init__(self, player: Player, pipeline: StoryPipeline) -> None:
        self.player = player
        self.outputs = Emitted()
        self._pending = Emitted()
        self._fed = 0
        self._is_inline = pipeline.is_inline
        self._outputs = pipeline.output_names
        self._of_rows = {
            name
            for name, write in zip(self._outputs, outputs_of(pipeline.root), strict=False)
            if not (isinstance(write.of, KeyedNode) and words_of(write.of.operator).readers(write.of.operator))
        }
        """Outputs of rows; the others are of panes."""
        self._in_any_order = {
            name
            for name, write in zip(self._outputs, outputs_of(pipeline.root), strict=False)
            if isinstance(write.of, KeyedNode)
            and isinstance(words_of(write.of.operator).readers(write.of.operator), WithAnyColumn)
        }
        """Outputs whose panes have several rows in any order."""
        operators = [node.operator for node in pipeline.nodes]
        self._multisets = {name for each in operators for name in words_of(each).multisets(each)}

    def act(self, act: Move | Expectation) -> Difference | None:
        match act:
            case ExpectPanes() | ExpectLate() | ExpectDead() | Ignore():
                return self._look_at_output(act)
            case ExpectWatermark() | ExpectIdle() | ExpectState():
                return self._look_at_player(act)
            case Restart():
                self.player = self.player.restart()
                return None
            case _:
                emitted = self._move(act)
                self.outputs += emitted
                self._pending += emitted
                self._fed += len(act.elements) if isinstance(act, Feed) else 0
                return self._conserved()

    def _conserved(self) -> Difference | None:
        """Check that every element has one outcome: read = contributed + late + dead + filtered."""
        counts = self.player.counts
        lost = {name: each.missing for name, each in counts.items() if each.missing}
        if lost:
            named = ", ".join(f"{many} of {name or 'the operator'}" for name, many in lost.items())
            return Difference(f"elements are unaccounted for: {named}", (), (), tuple(map(str, counts.values())))
        read = sum(each.read for each in counts.values())
        # Spark drops rows by SQL before a job counts them.
        if self._is_inline and read != self._fed:
            return Difference(f"{read} elements are counted, expected {self._fed}", (), ())
        return None

    def _move(self, move: Feed | MoveWatermark | MoveClock | FallIdle | ReturnActive | Finish | Drain) -> Emitted:
        match move:
            case Feed(elements):
                return self.player.feed(elements)
            case MoveWatermark(to, of, source):
                return self.player.move_watermark(to, of, source)
            case MoveClock(to):
                return self.player.move_clock(to)
            case FallIdle(name, source):
                return self.player.fall_idle(name, source)
            case ReturnActive(name, source):
                return self.player.return_active(name, source)
            case Finish(name, source):
                return self.player.finish(name, source)
            case Drain():
                return self.player.drain()
        assert_never(move)

    def _look_at_output(self, expected: ExpectPanes | ExpectLate | ExpectDead | Ignore) -> Difference | None:
        """Compare pending output with an expectation and discard it."""
        pending = self._pending
        match expected:
            case ExpectPanes(rows, some, output):
                panes = [pane for pane in pending.panes if pane.output == output]
                found = [row for row in pending.rows if row.output == output]
                self._pending = replace(
                    pending,
                    panes=tuple(pane for pane in pending.panes if pane.output != output),
                    rows=tuple(row for row in pending.rows if row.output != output),
                )
                if found or output in self._of_rows:
                    return rows_differ("row", rows, [row_fields(row) for row in found], some=some)
                if output in self._in_any_order:
                    return rows_differ("row", rows, [pane_fields(pane) for pane in panes], some=some)
                return panes_differ(rows, panes, self._multisets, some=some)
            case ExpectLate(rows, output):
                late = [each for each in pending.late if each.output == output]
                self._pending = replace(pending, late=tuple(each for each in pending.late if each.output != output))
                return rows_differ("late row", rows, [late_fields(each) for each in late])
            case ExpectDead(rows, output):
                dead = [each for each in pending.dead if each.output == output]
                self._pending = replace(pending, dead=tuple(each for each in pending.dead if each.output != output))
                return rows_differ("dead letter", rows, [dead_fields(letter) for letter in dead])
            case Ignore():
                self._pending = Emitted()
                return None
        assert_never(expected)

    def _look_at_player(self, expected: ExpectWatermark | ExpectIdle | ExpectState) -> Difference | None:
        match expected:
            case ExpectWatermark(at, of_output, name):
                got = self.player.output_watermark_of(name) if of_output else self.player.watermark_of(name)
                return _unequal(
                    "the output watermark" if of_output else "the watermark", _time_text(at), _time_text(got)
                )
            case ExpectIdle(is_idle):
                return _unequal("idleness", str(is_idle).lower(), str(self.player.is_idle).lower())
            case ExpectState(rows, name):
                return _unequal("the number of windows held", str(rows), str(self.player.rows_of(name)))
        assert_never(expected)

    def left_over(self) -> list[Difference]:
        """Return the differences for output that no expectation covers."""
        expectations = [
            expected
            for output in self._outputs
            for expected in (ExpectPanes((), output=output), ExpectLate((), output), ExpectDead((), output))
        ]
        differences = [self._look_at_output(expected) for expected in expectations]
        return [
            replace(left, summary=f"at the end of the story {left.summary}") for left in differences if left is not None
        ]


def _time_text(at: Timestamp) -> str:
    return "none" if at == BEGINNING else str(at)


def _unequal(what: str, expected: str, got: str) -> Difference | None:
    return None if expected == got else Difference(f"{what} is {got}, expected {expected}", (), ())
