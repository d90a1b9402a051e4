"""Generate pipeline code with the recommended settings, to paste."""

from typing import Final

from strandline.advise.report import Advice
from strandline.advise.sample import DECODED
from strandline.advise.verdict import Way
from strandline.model.elements import Duration

_UNITS: Final = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def lines(advice: Advice) -> str:
    """Return a complete pipeline: source, the four questions, and a count to start with."""
    found, columns = advice.settings, advice.sample.columns
    watermark = f'sl.bounded("{_length(found.delay)}")'
    if found.idle_after is not None:
        watermark += f'.idle_after("{_length(found.idle_after)}")'
    if found.future is not None:
        watermark += f'.future_bound("{_length(found.future)}")'
    key = ", ".join(f'"{name}"' for name in columns.keys) or '"…"  # name the key'
    timestamp = _time(advice)
    source, pipeline = advice.sample.origin.source, advice.sample.origin.pipeline
    code = [
        *(["import pathlib"] if "pathlib." in source else []),
        *(["import polars as pl"] if timestamp else []),
        "import strandline as sl",
        "",
        "answers = (",
        f"    sl.read(...)  # and the operations before event_time, as in {pipeline}"
        if pipeline
        else f"    sl.read({source})",
        *([f"    .with_columns({columns.time}={timestamp})"] if timestamp else []),
        f'    .event_time("{columns.time}", {watermark})',
        f"    .key_by({key})",
        f'    .window(sl.tumbling("{_length(found.window)}"))',
    ]
    if found.early is not None:
        late = ", late=sl.after_count(1)" if found.lateness else ""
        code.append(f'    .trigger(sl.after_watermark(early=sl.every("{_length(found.early)}"){late}))')
    if found.early is not None or found.lateness:
        code.append("    .accumulate(sl.retracting)")
    if found.lateness:
        code.append(f'    .allow_lateness("{_length(found.lateness)}")')
    code += ["    .aggregate(events=sl.count())", ")"]
    return "\n".join(code) + "\n"


def _time(advice: Advice) -> str:
    """Return the expression that converts the column to a timestamp; empty if it is one already."""
    name, sample = advice.sample.columns.time, advice.sample
    if sample.unit:
        unit = _UNITS[sample.unit]
        number = f'(pl.col("{name}") * 1000)' if unit == "s" else f'pl.col("{name}")'
        return f'pl.from_epoch({number}.cast(pl.Int64), time_unit="{"ms" if unit == "s" else unit}")'
    if sample.texts and sample.origin.format in ("parquet", DECODED):
        return f'pl.col("{name}").str.to_datetime(time_zone="UTC", strict=False)'
    return ""


def command(advice: Advice) -> str:
    """Return the command that runs the pipeline as recommended; empty if a batch job is recommended."""
    where = advice.sample.origin.pipeline or "job.py:answers"
    match advice.verdict.way:
        case Way.SCHEDULED:
            every = _length(advice.verdict.every or 0)
            return f"strandline run {where} --checkpoint FOLDER --available-now   # every {every}"
        case Way.STREAM | Way.EARLY:
            return f"strandline run {where} --checkpoint FOLDER"
    return ""


def _length(ms: int) -> str:
    return str(Duration(ms))
