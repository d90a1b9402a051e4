"""Samples for tests: elements as they came, each (seconds, key, partition, arrival), made into what is looked at."""

from collections.abc import Sequence

import polars as pl

import strandline as sl
from strandline.advise.report import Advice, Wishes, advise
from strandline.advise.sample import Columns, Origin, Sample, sample_of
from strandline.connectors.generated.draw_events import EMITTED, due, events

START = 1_700_000_000_000
"""A time in the past that every sample begins with; it is the beginning of no window of a minute or more."""
NOW = START + 10 * 86_400_000


def sample(
    times: Sequence[float], *, keys: Sequence[str] | None = None, parts: Sequence[str] | None = None,
    arrivals: Sequence[float] | None = None,
) -> Sample:  # fmt: skip
    """Times and arrivals in seconds after START."""
    rows: dict[str, list[object]] = {"at": [round(START + 1000 * each) for each in times]}
    rows["key"] = list(keys or ["a"] * len(times))
    rows["part"] = list(parts or [""] * len(times))
    if arrivals is not None:
        rows["came"] = [round(START + 1000 * each) for each in arrivals]
    columns = Columns("at", ("key",), None if arrivals is None else "came", "part")
    return sample_of(pl.DataFrame(rows), columns, Origin("a sample", 'sl.files("in", "key string, at long")'))


def stream(seconds: int = 240, **knobs: object) -> pl.DataFrame:
    """A generated stream of four partitions with its arrivals, in the order in which they came."""
    asked = {"seed": 4, "rate": 200, "keys": 50, "disorder": 0.3, "distance": "8s", "late": 0.02, "late_by": "40s"}
    ask = sl.generator(**{**asked, **knobs})  # type: ignore[arg-type]
    frames = [
        events(ask, number, 0, due(ask, number, seconds * 1_000), START).with_columns(pl.lit(number).alias("part"))
        for number in range(4)
    ]
    came = pl.from_epoch(pl.col(EMITTED), time_unit="ms").alias("came")
    return pl.concat(frames).sort(EMITTED, maintain_order=True).select("at", "key", "value", "part", came)


def advised(frame: pl.DataFrame, *, arrival: bool = True, **wishes: int) -> Advice:
    columns = Columns("at", ("key",), "came" if arrival else None, "part")
    source = 'sl.files("in", "key string, at timestamp")'
    return advise(sample_of(frame, columns, Origin("a stream", source)), Wishes(**wishes), now=NOW, cores=2)
