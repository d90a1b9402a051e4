"""A wrong pipeline of the zoo, and the right parts that it is made of."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

import strandline
from strandline.plan.pipeline import Elements, Keyed
from tests.plan import endpoints

sl: Any = strandline
scores: Any = endpoints.scores
"""Without types: what is wrong here is wrong for a type checker too."""
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


def timed(elements: Elements | None = None) -> Any:
    return (scores() if elements is None else elements).event_time("at", sl.bounded(seconds=1))


def keyed(*columns: str) -> Any:
    return timed().key_by(*(columns or ("team",))).window(sl.tumbling(minutes=1))


def counted(elements: Elements) -> Any:
    return timed(elements).key_by("team").window(sl.tumbling(minutes=1)).aggregate(plays=sl.count())


def totals(step: Keyed | None = None, **aggregates: Any) -> Any:
    return (keyed() if step is None else step).aggregate(**(aggregates or {"total": sl.sum("score")}))


def waits_for_lock(frame: pl.DataFrame) -> pl.DataFrame:
    with LOCK:
        return frame


def from_kafka(**settings: Any) -> Any:
    return sl.kafka(**{"servers": SERVERS, "value": sl.json(SCHEMA), **settings})
