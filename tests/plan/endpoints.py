"""A source and a sink for plan tests, which are never opened."""

from dataclasses import dataclass

import strandline as sl
from strandline.model.ddl import parse
from strandline.plan.endpoints import Delivery
from strandline.plan.pipeline import Elements, read


@dataclass(frozen=True, slots=True)
class PaperSource:
    name: str = "scores"
    partitions: tuple[str, ...] = ("0", "1")
    columns: str = "team string, user string, score long, at timestamp"
    decoder: str | None = "on paper"

    @property
    def types(self) -> dict[str, str]:
        return parse(self.columns)


@dataclass(frozen=True, slots=True)
class PaperSink:
    name: str = "paper"
    offers: frozenset[Delivery] = frozenset({Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE})
    takes_retractions: bool = True


class NoRunner:
    """Runs nothing."""

    def run(self, *arguments: object, **options: object) -> None:
        raise AssertionError("a plan was run")

    def to_dataframe(self, *arguments: object, **options: object) -> None:
        raise AssertionError("a plan was run")


def scores(source: PaperSource | None = None) -> Elements:
    """Return the elements of a test source."""
    return read(source or PaperSource(), NoRunner())


def totals(
    source: PaperSource | None = None, sink: PaperSink | None = None, delivery: str = "exactly_once"
) -> sl.Pipeline:
    """Return a test pipeline: totals by team."""
    panes = (
        scores(source)
        .event_time("at", sl.bounded(seconds=10).idle_after(minutes=1))
        .key_by("team")
        .window(sl.tumbling(minutes=2))
        .trigger(sl.after_watermark(early=sl.every(seconds=30), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(minutes=5)
        .aggregate(total=sl.sum("score"))
    )
    return panes.write(sink or PaperSink(), delivery=delivery)
