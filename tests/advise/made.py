"""Build samples for tests from event times, keys, partitions and arrival times."""

from collections.abc import Sequence

import polars as pl

import strandline as sl
from strandline.advise.report import Advice, Requirements, advise
from strandline.advise.sample import Columns, Origin, Sample, sample_of
from strandline.connectors.generated.draw_events import EMITTED, due, events

START = 1_700_000_000_000
"""The start of every sample, a time in the past that is not the start of a window of a minute or more."""
NOW = START + 10 * 86_400_000


def sample(
    times: Sequence[float], *, keys: Sequence[str] | None = None, parts: Sequence[str] | None = None,
    arrivals: Sequence[float] | None = None,
) -> Sample:  # fmt: skip
    """Build a sample; times and arrivals are seconds after START."""
    rows: dict[str, list[object]] = {"at": [round(START + 1000 * each) for each in times]}
    rows["key"] = list(keys or ["a"] * len(times))
    rows["part"] = list(parts or [""] * len(times))
    if arrivals is not None:
        rows["came"] = [round(START + 1000 * each) for each in arrivals]
    columns = Columns("at", ("key",), None if arrivals is None else "came", "part")
    return sample_of(pl.DataFrame(rows), columns, Origin("a sample", 'sl.files("in", "key string, at long")'))


def stream(seconds: int = 240, **knobs: object) -> pl.DataFrame:
    """Generate a stream of four partitions with arrival times, in order of arrival."""
    options = {"seed": 4, "rate": 200, "keys": 50, "disorder": 0.3, "distance": "8s", "late": 0.02, "late_by": "40s"}
    source = sl.generator(**{**options, **knobs})  # type: ignore[arg-type]
    frames = []
    for number in range(4):
        rows = events(source, number, 0, due(source, number, seconds * 1_000), START)
        frames.append(rows.with_columns(pl.lit(number).alias("part")))
    came = pl.from_epoch(pl.col(EMITTED), time_unit="ms").alias("came")
    return pl.concat(frames).sort(EMITTED, maintain_order=True).select("at", "key", "value", "part", came)


def advised(frame: pl.DataFrame, *, arrival: bool = True, **wanted: int) -> Advice:
    columns = Columns("at", ("key",), "came" if arrival else None, "part")
    origin = Origin("a stream", 'sl.files("in", "key string, at timestamp")')
    return advise(sample_of(frame, columns, origin), Requirements(**wanted), now=NOW, cores=2)
