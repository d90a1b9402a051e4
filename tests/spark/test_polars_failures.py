"""A panic or an error of Polars becomes a dead letter, or an error that names its place; it never ends a job bare."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import StateError
from strandline.execution import keyed_step
from strandline.execution.batch import Batch
from strandline.execution.keyed_step import play_group
from strandline.execution.row_decoding import decode_or_refuse
from strandline.kernel.dead_letters import DETAIL, RAW, REASON
from strandline.kernel.panics import PanicException
from strandline.model.aggregates import Aggregate
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.ports.codecs import Decoded
from strandline.ports.sinks import Stamp
from tests.plan.endpoints import PaperSink, PaperSource
from tests.spark.by_hand import Carrier

OUT_OF_CALENDAR = pl.Series([100_000_000], dtype=pl.Int32).cast(pl.Date)
"""A date that Polars cannot format: it panics."""


@dataclass(frozen=True, slots=True)
class Typed(PaperSource):
    partitions: tuple[str, ...] = ("",)
    columns: str = "key string, v long, at timestamp"
    decoder: str | None = None


def panic(*_: Any) -> Any:
    return OUT_OF_CALENDAR.to_list()


def job(step: Callable[[Any], Any] = lambda rows: rows, **aggregates: Aggregate) -> Stages:
    rows = step(sl.read(Typed()).event_time("at", sl.bounded(seconds=0)))
    panes = rows.key_by("key").window(sl.tumbling(seconds=10)).aggregate(**aggregates)
    return to_stages(panes.write(PaperSink()).root)


def batch_of(values: pl.Series) -> pl.DataFrame:
    at = pl.Series("at", range(values.len()), dtype=pl.Int64).cast(pl.Datetime("ms")).cast(pl.Datetime("us"))
    return pl.DataFrame([pl.Series("key", ["a"] * values.len()), values.alias("v"), at.dt.replace_time_zone("UTC")])


def test_a_panic_is_no_exception_in_python() -> None:
    with pytest.raises(PanicException):
        panic()
    assert not issubclass(PanicException, Exception)


def test_rows_on_which_an_expression_panics_become_dead_letters() -> None:
    text = pl.col("v").cast(pl.Int32).cast(pl.Date).cast(pl.String)
    stages = job(lambda rows: rows.where(text != ""), total=sl.sum("v"))
    (output,) = Carrier(stages).carry_frames({0: [batch_of(pl.Series([1, 100_000_000, 2]))]}, 0, drain=True)
    assert output.panes is not None
    assert output.panes["total"].to_list() == [3]
    assert output.dead is not None
    assert output.dead[REASON].to_list() == ["function_failed"]
    assert "out-of-range date" in output.dead[DETAIL][0]


@pytest.mark.parametrize(
    ("aggregate", "values", "left", "refused"),
    [
        (sl.mean("v"), pl.Series(["1", "x", "3"]), 2.0, 1),
        (sl.sum("v"), pl.Series(["1", "2"]), None, 2),
        (sl.any_true("v"), pl.Series([1, 2], dtype=pl.Int32).cast(pl.Date), None, 2),
        (sl.bit_or("v"), pl.Series([0.5, 1.0]), None, 2),
        (sl.string_agg("v"), pl.Series([b"a", b"\xff"]), "a", 1),
        (sl.max("v"), pl.Series([[1], [2]]), None, 2),
    ],
    ids=["mean", "sum", "any_true", "bit_or", "string_agg", "max"],
)
def test_elements_that_an_aggregate_cannot_take_become_dead_letters(
    aggregate: Aggregate, values: pl.Series, left: object, refused: int
) -> None:
    """The plan knows numbers, and the batch has another type; in the first batch and in those with a watermark."""
    carrier = Carrier(job(x=aggregate, n=sl.count()))
    dead, panes = 0, []
    for drain in (False, True):
        (output,) = carrier.carry_frames({0: [batch_of(values)]}, 0, drain=drain)
        dead += 0 if output.dead is None else output.dead.height
        panes += [] if output.panes is None else output.panes["x"].to_list()
        assert output.counts.dead == refused
    assert dead == 2 * refused
    assert panes == ([] if left is None else [f"{left},{left}" if left == "a" else left])


def test_a_panic_in_a_key_group_names_key_group_step_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = job(total=sl.sum("v"))
    monkeypatch.setattr(keyed_step, "step", panic)
    batch = Batch(0, stamps=(Stamp("job", 1, 17),))
    with pytest.raises(StateError, match=r"key group 1 of step 0 cannot process batch 17 .*total by key.*out-of-range"):
        play_group(stages.steps[0], 1, {}, [], stages.by_number, batch)


@dataclass(frozen=True, slots=True)
class PanickyDecoder:
    """Decodes numbers of days, and panics at dates outside the calendar."""

    columns: tuple[str, ...] = ("day",)

    def decode(self, raw: pl.DataFrame) -> Decoded:
        days = raw.select(
            "@partition", "@offset", RAW, day=pl.col(RAW).cast(pl.String).cast(pl.Int32).cast(pl.Date).cast(pl.String)
        )
        return Decoded(days, raw.clear().with_columns(pl.lit("").alias(REASON), pl.lit("").alias(DETAIL)))


def test_a_record_on_which_a_decoder_panics_becomes_a_dead_letter() -> None:
    values = [b"1", b"100000000", b"2", b"3"]
    raw = pl.DataFrame({"@partition": ["0"] * 4, "@offset": range(4), RAW: values})
    decoded = decode_or_refuse(raw, PanickyDecoder())  # type: ignore[arg-type]
    assert decoded.rows["day"].to_list() == ["1970-01-02", "1970-01-03", "1970-01-04"]
    assert decoded.dead.select("@offset", REASON).rows() == [(1, "undecodable")]


def test_overflowed_sums_are_counted_and_named_beside_the_pane() -> None:
    panes = (
        sl.read(Typed())
        .event_time("at", sl.bounded(seconds=0))
        .key_by("key")
        .window(sl.tumbling(seconds=10))
        .aggregate(total=sl.sum("v"), n=sl.count())
        .with_columns(reason=pl.col("overflow_in"))
    )
    carrier = Carrier(to_stages(panes.write(PaperSink()).root))
    (output,) = carrier.carry_frames({0: [batch_of(pl.Series([2**63 - 1, 1]))]}, 0, drain=True)
    assert output.panes is not None
    assert output.panes.select("key", "total", "n", "reason").rows() == [("a", None, 2, "total")]
    assert "overflow_in" not in output.panes.columns
    assert output.counts.overflow == 1
    assert output.counts.missing == 0
