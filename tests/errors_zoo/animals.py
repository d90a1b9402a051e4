"""A wrong pipeline of the zoo, and the right parts that it is made of."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

import strandline as sl
from strandline.plan.pipeline import Elements, Keyed, Panes
from tests.plan.endpoints import scores

SCHEMA: Final = "team string, user string, score long, at timestamp"
LOCK: Final = threading.Lock()
SERVERS: Final = "localhost:9092"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong pipeline, and parts of what is said: what happened, the detail, the hint."""

    build: Callable[[], Any]
    what: str
    detail: str
    hint: str


def timed(elements: Elements | None = None) -> Elements:
    return (scores() if elements is None else elements).event_time("at", sl.bounded(seconds=1))


def keyed(*columns: str) -> Keyed:
    return timed().key_by(*(columns or ("team",))).window(sl.tumbling(minutes=1))


def counted(elements: Elements) -> Panes:
    return timed(elements).key_by("team").window(sl.tumbling(minutes=1)).aggregate(plays=sl.count())


def totals(step: Keyed | None = None, **aggregates: Any) -> Panes:
    return (keyed() if step is None else step).aggregate(**(aggregates or {"total": sl.sum("score")}))


def waits_for_lock(frame: pl.DataFrame) -> pl.DataFrame:
    with LOCK:
        return frame


def from_kafka(**settings: Any) -> Any:
    return sl.kafka(**{"servers": SERVERS, "value": sl.json(SCHEMA), **settings})  # type: ignore[arg-type]
