"""Verdicts and reasons for each kind of change between two definitions."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.plan.nodes import to_plain
from strandline.plan.pipeline import Keyed, Pipeline, read
from strandline.plan.upgrade.state_upgrade import Upgrade, Verdict, compare
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource

SAME, COMPATIBLE, MIGRATABLE, INCOMPATIBLE = Verdict


@dataclass(frozen=True)
class Settings:
    """A pipeline with settings that a test may change."""

    source: PaperSource = PaperSource()
    column: str = "at"
    watermark: Any = sl.bounded(seconds=10)
    where: str | None = None
    keys: tuple[str, ...] = ("team",)
    window: Any = sl.tumbling(minutes=2)
    trigger: Any = sl.after_watermark(late=sl.after_count(1))
    accumulate: Any = sl.accumulating
    lateness: int = 5
    evictor: Any = None
    aggregates: tuple[tuple[str, Any], ...] = (("total", sl.sum("score")),)
    sink: PaperSink = PaperSink()

    @property
    def keyed(self) -> Keyed:
        elements = read(self.source, NoRunner())
        elements = elements.where(self.where) if self.where else elements
        keyed = elements.event_time(self.column, self.watermark).key_by(*self.keys).window(self.window)
        keyed = keyed.trigger(self.trigger).accumulate(self.accumulate).allow_lateness(minutes=self.lateness)
        return keyed.evict(self.evictor) if self.evictor else keyed

    @property
    def pipeline(self) -> Pipeline:
        return self.keyed.aggregate(**dict(self.aggregates)).write(self.sink)


WAS = Settings()


def upgrade(was: Pipeline, now: Pipeline) -> Upgrade:
    return compare(to_plain(was.root), to_plain(now.root))


EARLY = sl.after_watermark(early=sl.every(seconds=30), late=sl.after_count(1))
MORE = (*WAS.aggregates, ("n", sl.count()))
WIDER = PaperSource(columns="team string, user string, score double, at timestamp")
SEEN = PaperSource(columns="team string, user string, score long, seen timestamp")


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, SAME, ""),
        ({"aggregates": MORE}, COMPATIBLE, "n is new: in open windows it covers elements from the restore on"),
        ({"aggregates": (("n", sl.count()),)}, COMPATIBLE, "total is removed, with its state"),
        ({"aggregates": (("total", sl.max("score")),)}, MIGRATABLE, "total was Sum(column='score') and is Max("),
        ({"lateness": 9}, COMPATIBLE, "open windows use the new lateness"),
        ({"trigger": EARLY}, COMPATIBLE, "it starts over in open windows"),
        (
            {"watermark": sl.bounded(seconds=99)},
            COMPATIBLE,
            "the watermark continues by the new rule and never goes back",
        ),
        ({"where": "score > 0"}, COMPATIBLE, "earlier elements were processed by the old ones"),
        ({"sink": PaperSink("other")}, COMPATIBLE, "starts without the rows of other sinks"),
        ({"source": WIDER}, COMPATIBLE, "its records are decoded differently"),
        ({"window": sl.tumbling(minutes=3)}, MIGRATABLE, "open windows have other bounds"),
        ({"keys": ("team", "user")}, MIGRATABLE, "keys were team and are team, user"),
        ({"accumulate": sl.retracting}, MIGRATABLE, "hold more, or less, than the new mode needs"),
        ({"column": "seen", "source": SEEN}, MIGRATABLE, "event time was at and is seen"),
        ({"source": PaperSource(name="elsewhere")}, INCOMPATIBLE, "positions in one source have no meaning in another"),
    ],
)
def test_each_change_has_a_verdict_and_a_reason(change: dict[str, Any], verdict: Verdict, reason: str) -> None:
    found = upgrade(WAS.pipeline, Settings(**change).pipeline)
    assert found.verdict is verdict
    assert any(reason in words for part in found.of(verdict) for words in (*part.words, "")), found


def test_a_change_of_shared_slices_needs_a_migration() -> None:
    sliding, early = sl.sliding(minutes=2, every="1m"), sl.after_watermark(early=sl.after_count(1))
    assert (
        upgrade(Settings(window=sliding).pipeline, Settings(window=sliding, trigger=early).pipeline).verdict
        is MIGRATABLE
    )
    assert upgrade(Settings(trigger=early).pipeline, WAS.pipeline).verdict is COMPATIBLE


def test_a_new_aggregate_over_kept_elements_needs_a_migration() -> None:
    evicting = Settings(evictor=sl.keep_last(3))
    more = Settings(evictor=sl.keep_last(3), aggregates=(*WAS.aggregates, ("n", sl.count())))
    assert upgrade(evicting.pipeline, more.pipeline).verdict is MIGRATABLE


def test_steps_keep_their_state_when_other_steps_are_added_or_removed() -> None:
    one = WAS.keyed.aggregate(total=sl.sum("score"))
    other = Settings(keys=("user",)).keyed.aggregate(n=sl.count())
    both = sl.together(other.write(PaperSink("users")), one.write(PaperSink()))
    grown = upgrade(WAS.pipeline, both)
    assert [(step.number, step.was) for step in grown.steps] == [(0, None), (1, 0)]
    assert grown.steps[0].part.words == ("it is new, and starts without state at the positions of the savepoint",)
    assert grown.steps[1].part.verdict is SAME
    assert grown.new_sinks == (0,)
    shrunk = upgrade(both, WAS.pipeline)
    assert [(step.number, step.was) for step in shrunk.steps] == [(0, 1)]
    assert "old step n by user" in [part.what for part in shrunk.others]
    assert shrunk.verdict is COMPATIBLE


def test_a_step_over_panes_is_matched_too_and_sources_keep_their_positions() -> None:
    def chained(*streams: sl.Elements) -> Pipeline:
        elements = streams[0] if len(streams) == 1 else sl.union(*streams)
        panes = elements.key_by("team").window(sl.tumbling(minutes=1)).aggregate(total=sl.sum("score"))
        longer = panes.with_columns(who=pl.lit("all")).key_by("who").window(sl.tumbling(minutes=5))
        return longer.aggregate(all=sl.sum("total")).write(PaperSink())

    def stream(name: str) -> sl.Elements:
        return read(PaperSource(name), NoRunner()).event_time("at", sl.monotone())

    same = upgrade(chained(stream("a")), chained(stream("a")))
    assert (same.verdict, same.sources) == (SAME, (0,))
    more = upgrade(chained(stream("b")), chained(stream("a"), stream("b")))
    assert more.sources == (None, 0)
    assert more.steps[0].part.verdict is INCOMPATIBLE
    assert "it takes its elements from papersource(a) and papersource(b)" in more.steps[0].part.words[0]


def test_a_join_keeps_its_state_over_a_wider_interval_and_not_over_another_kind() -> None:
    def definition(**options: Any) -> Any:
        left, right = (
            read(PaperSource(name, columns="team string, at timestamp"), NoRunner()).event_time(
                "at", sl.bounded(seconds=1)
            )
            for name in ("left", "right")
        )
        return to_plain(left.join(right).on("team").within(**{"after": "1m", **options}).write(PaperSink()).root)

    assert compare(definition(), definition()).verdict is Verdict.SAME
    wider = compare(definition(), definition(after="2m", where="at < at_right"))
    assert wider.verdict is Verdict.COMPATIBLE
    assert wider.steps[0].part.what == "step 0, interval join by team"
    assert compare(definition(), definition(how="left")).verdict is Verdict.INCOMPATIBLE
    assert compare(definition(), definition(suffix="_other")).verdict is Verdict.MIGRATABLE


def test_a_window_join_of_another_kind_keeps_its_state_unless_windows_may_have_fired() -> None:
    def definition(size: str = "10m", **options: Any) -> Any:
        left, right = (
            read(PaperSource(name, columns="team string, at timestamp"), NoRunner()).event_time(
                "at", sl.bounded(seconds=1)
            )
            for name in ("left", "right")
        )
        joined = left.join(right).on("team").window(sl.tumbling(size), **options)
        return to_plain(joined.write(PaperSink()).root)

    assert compare(definition(), definition()).verdict is Verdict.SAME
    other = compare(definition(), definition(how="left", where="at < at_right", allowed_lateness="1m"))
    assert other.verdict is Verdict.COMPATIBLE
    assert other.steps[0].part.what == "step 0, window join by team"
    fired = compare(definition(allowed_lateness="1m"), definition(how="left", allowed_lateness="1m"))
    assert fired.verdict is Verdict.MIGRATABLE
    assert "open windows may have emitted rows of the old kind" in fired.steps[0].part.words[0]
    assert compare(definition(), definition(accumulate="retracting")).verdict is Verdict.COMPATIBLE
    assert compare(definition(), definition(size="5m")).verdict is Verdict.MIGRATABLE
    assert compare(definition(), definition(suffix="_other")).verdict is Verdict.MIGRATABLE
    early = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
    changed = compare(definition(), definition(trigger=early))
    assert changed.verdict is Verdict.COMPATIBLE
    assert changed.steps[0].new_trigger
