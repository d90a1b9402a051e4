"""Every aggregate over every type agrees with Python's own arithmetic, in every kind of window, and never wraps.

The reference player adds Python's integers and exact decimals. The kernel gets the same elements in typed columns, in
batches, with retractions, and its state is bytes between batches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final

import duckdb
import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, SIGN, START, Block, pack, unpack
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.operators import operator_of
from strandline.kernel.step import StepSpec
from strandline.kernel.step import step as run_step
from strandline.kernel.watermarks import NEVER, Control, Seen
from strandline.kernel.window.panes import TIMING
from strandline.model.aggregates import Aggregate
from strandline.model.elements import EPOCH, Element, Timestamp
from strandline.model.evictors import KeepLast
from strandline.model.panes import Accumulation, Emitted, Lateness, Pane, Timing
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import Count as CountWindow
from strandline.model.windows import Global, Window, WindowKind
from strandline.plan.operators.window import WindowPlan
from strandline.reference.player import ReferencePlayer
from tests.properties.budget import examples

MOST: Final = "9" * 38

VALUES: Final[Mapping[str, list[Any]]] = {
    "byte": [-128, 127, 0, 1],
    "short": [-(2**15), 2**15 - 1, 3],
    "int": [-(2**31), 2**31 - 1, 5],
    "long": [-(2**63), 2**63 - 1, 2**62, -(2**62), 2**62 - 1, 0, 7],
    "float": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 2.0**127],
    "double": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e300, -1e300, 5e-324],
    "decimal(10, 2)": [Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.01")],
    "decimal(38, 0)": [Decimal(MOST), Decimal("-" + MOST), Decimal(1), Decimal("1" + "0" * 37)],
    "decimal(38, 18)": [Decimal(f"{MOST[:20]}.{MOST[20:]}"), Decimal(f"-{MOST[:20]}.{MOST[20:]}"), Decimal("1E-18")],
    "decimal(38, 38)": [Decimal(f"0.{MOST}"), Decimal(f"-0.{MOST}"), Decimal("1E-38")],
    "boolean": [True, False],
    "date": [date.min, date.max, date(1970, 1, 1)],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001 - without a zone
    "string": ["", "a", "b\0", "€"],
    "binary": [b"", b"\xff", b"a"],
    "array<long>": [[1], [], [2, 3]],
}
"""Values at the limits of each type that a pipeline can have."""
AGGREGATES: Final[Mapping[str, Aggregate]] = {
    "count": sl.count("v"), "sum": sl.sum("v"), "min": sl.min("v"), "max": sl.max("v"), "mean": sl.mean("v"),
    "variance": sl.variance("v"), "stddev": sl.stddev("v", population=True), "first": sl.first("v"),
    "last": sl.last("v"), "argmin": sl.argmin("v", by="v"), "argmax": sl.argmax("v", by="v"),
    "collect": sl.collect("v"), "count_distinct": sl.count_distinct("v"),
    "approx_count_distinct": sl.approx_count_distinct("v"), "quantile": sl.quantile("v", 0.5),
    "top_k": sl.top_k("v", 2), "any_true": sl.any_true("v"), "all_true": sl.all_true("v"), "bit_and": sl.bit_and("v"),
    "bit_or": sl.bit_or("v"), "bit_xor": sl.bit_xor("v"),
}  # fmt: skip
WINDOWS: Final[Mapping[str, WindowKind]] = {
    "tumbling": sl.tumbling("1m"), "sliding": sl.sliding("1m", every="10s"), "session": sl.session("1m"),
    "cumulating": sl.cumulating("1m", step="20s"), "global": Global(), "count": CountWindow(3),
}  # fmt: skip
ROUNDED: Final = {"mean", "variance", "stddev"}


@dataclass(frozen=True)
class Change:
    """A value that is added at a time, or retracted."""

    value: Any
    at: int
    retraction: bool = False


Batches = list[list[Change]]


class TypedKernel:
    """Play a windowed step on one key group of the kernel. The column v has a type, and elements may carry a sign."""

    def __init__(self, step: WindowedStep, kind: pl.DataType) -> None:
        self._kind, self._held = kind, dict[str, bytes]()
        self._spec = StepSpec(("key",), step, BY_HAND, ("",))
        self._watermark = NEVER

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Play one batch of elements."""
        columns = [
            pl.Series("key", [each.key for each in elements], pl.String),
            pl.Series(AT, [each.at.ms for each in elements], pl.Int64),
            pl.Series(PARTITION, [each.partition for each in elements], pl.String),
            pl.Series(OFFSET, [each.offset for each in elements], pl.Int64),
            pl.Series("v", [each.columns.get("v") for each in elements], self._kind),
        ]
        operator = operator_of(self._spec.operator, self._spec.keys)
        if operator.takes_signs:
            columns.append(pl.Series(SIGN, [-1 if each.retraction else 1 for each in elements], pl.Int64))
        prepared = operator.prepare(pl.DataFrame(columns), 1, self._watermark)
        return self._play([unpack(pack(block), "input") for block in prepared.blocks.values()])

    def drain(self) -> Emitted:
        return self._play([], drain=True)

    def _play(self, blocks: Sequence[Block], *, drain: bool = False) -> Emitted:
        stepped = run_step(self._held, blocks, [Control(0, (Seen(""),), drain=drain)], self._spec)
        for place, data in stepped.writes.items():
            if data is None:
                self._held.pop(place, None)
            else:
                self._held[place] = data
        self._watermark = stepped.progress.watermark
        rows = () if stepped.rows is None else stepped.rows.iter_rows(named=True)
        return Emitted(tuple(_pane(row) for row in rows))


def _pane(row: Mapping[str, Any]) -> Pane:
    window = Window(Timestamp(row[START]), Timestamp(row[END]))
    return Pane(row["key"], window, {"x": row["x"]}, Timing(row[TIMING]), 0, 0, False, False, EPOCH)


def takes(aggregate: Aggregate, kind: str) -> bool:
    """Tell whether the plan accepts the aggregate over a column of the type."""
    plan = WindowPlan(WindowedStep((("x", aggregate),), sl.tumbling("1m")))
    try:
        plan.check_columns(lambda _: kind, ())
    except InvalidStep:
        return False
    return True


def drawn(chance: Random, values: list[Any], *, signed: bool) -> Batches:
    """Draw batches of values; a retraction takes back a value that was added before."""
    batches: Batches = []
    live: list[Change] = []
    for _ in range(chance.randint(1, 3)):
        batch: list[Change] = []
        for _ in range(chance.randint(1, 5)):
            if signed and live and chance.random() < 0.3:
                gone = live.pop(chance.randrange(len(live)))
                batch.append(Change(gone.value, gone.at, retraction=True))
            else:
                live.append(Change(chance.choice([*values, None]), chance.randrange(6_000)))
                batch.append(live[-1])
        batches.append(batch)
    return batches


def emitted(player: Any, batches: Batches) -> list[Any]:
    """Return the values of the last pane of every window."""
    offset, panes = 0, []
    for batch in batches:
        elements = []
        for each in batch:
            columns = {} if each.value is None else {"v": each.value}
            elements.append(Element(Timestamp(1_000 + each.at), "k", columns, "", offset, each.retraction))
            offset += 1
        panes += player.feed(elements).panes
    panes += player.drain().panes
    return [pane.values["x"] for pane in panes]


def is_same(found: Any, wanted: Any, near: float) -> bool:
    """Compare values; floats up to a rounding error, and NaN equals NaN."""
    if isinstance(found, float) and isinstance(wanted, float):
        both_nan = math.isnan(found) and math.isnan(wanted)
        return both_nan or found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=near)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(
            is_same(one, other, near) for one, other in zip(found, wanted, strict=True)
        )
    # The sum of no decimals is the integer 0 in the oracle.
    alike = type(found) is type(wanted) or isinstance(found, Decimal | bool) or isinstance(wanted, bool)
    return alike and bool(found == wanted)


def tolerance(name: str, batches: Batches) -> float:
    """Return the error that arithmetic in doubles may have: relative to the greatest value, not to the result."""
    if name not in ROUNDED:
        return 0.0
    greatest = max((abs(float(each.value)) for batch in batches for each in batch if _is_finite(each.value)), default=0)
    return 1e-9 * (greatest**2 if name == "variance" else greatest) + (1e-6 * greatest if name == "stddev" else 0)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and math.isfinite(value)


def _is_defined_in_doubles(name: str, kind: str, batches: Batches) -> bool:
    """Leave out what doubles cannot do in any order: squares beyond 1e308, and a retracted NaN or infinity."""
    values = [each for batch in batches for each in batch]
    odd = any(each.retraction and isinstance(each.value, float) and not _is_finite(each.value) for each in values)
    large = any(_is_finite(each.value) and abs(float(each.value)) > 1e150 for each in values)
    is_float = kind in ("float", "double")
    if name in ("variance", "stddev"):
        return not (is_float and large)
    return not (is_float and odd and name in ("sum", "mean"))


CASES: Final = [
    pytest.param(kind, name, id=f"{name} of {kind}")
    for kind in VALUES
    for name, aggregate in AGGREGATES.items()
    if takes(aggregate, kind)
]


def check(kind: str, name: str, seed: int) -> None:
    chance = Random(seed)
    window, aggregate = chance.choice([*WINDOWS]), AGGREGATES[name]
    signed = chance.random() < 0.5 and name != "approx_count_distinct" and window != "count"
    evictor = KeepLast(4) if chance.random() < 0.2 and not signed and window != "count" else None
    how = chance.choice([Accumulation.ACCUMULATING, Accumulation.DISCARDING])
    batches = drawn(chance, VALUES[kind], signed=signed)
    if not _is_defined_in_doubles(name, kind, batches):
        return
    step = WindowedStep(
        (("x", aggregate),), WINDOWS[window], accumulation=how, lateness=Lateness(), signed=signed, evictor=evictor
    )
    wanted = emitted(ReferencePlayer(step, BY_HAND, partitions=("",)), batches)
    found = emitted(TypedKernel(step, to_polars(kind)), batches)
    near = tolerance(name, batches)
    case = f"seed {seed}, {window}, {how}, signed {signed}: {found} instead of {wanted} of {batches}"
    assert len(found) == len(wanted), case
    assert all(is_same(one, other, near) for one, other in zip(found, wanted, strict=True)), case


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_an_aggregate_over_a_type_agrees_with_pythons_arithmetic(kind: str, name: str) -> None:
    for seed in range(examples(3)):
        check(kind, name, seed)


@pytest.mark.parametrize("kind", [kind for kind in VALUES if takes(sl.sum("v"), kind)])
def test_a_sum_agrees_with_pythons_arithmetic_in_many_histories(kind: str) -> None:
    for seed in range(100, 110 + examples(10)):
        check(kind, "sum", seed)


@pytest.mark.campaign
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_aggregates_agree_with_pythons_arithmetic_in_a_campaign(kind: str, name: str) -> None:
    for seed in range(1_000, 1_300):
        check(kind, name, seed)


DUCK: Final = {
    "sum": "sum(v)", "min": "min(v)", "max": "max(v)", "count": "count(v)", "count_distinct": "count(DISTINCT v)",
    "mean": "avg(v)", "bit_and": "bit_and(v)", "bit_or": "bit_or(v)", "bit_xor": "bit_xor(v)",
}  # fmt: skip
EXACT_IN_DUCK: Final = ("byte", "short", "int", "long", "decimal(10, 2)", "boolean", "date", "timestamp_ntz", "string")


@pytest.mark.parametrize("kind", EXACT_IN_DUCK)
@pytest.mark.parametrize("name", DUCK)
def test_an_aggregate_over_one_batch_agrees_with_duckdb(kind: str, name: str) -> None:
    if not takes(AGGREGATES[name], kind) or (kind == "boolean" and name not in ("min", "max", "count")):
        pytest.skip("the plan refuses it, or DuckDB has no such aggregate")
    chance = Random(f"{kind} {name}")
    values = [chance.choice([*VALUES[kind], None]) for _ in range(200)]
    column = pl.DataFrame({"v": pl.Series(values, dtype=to_polars(kind))})
    connection = duckdb.connect()
    connection.register("rows", column.to_arrow())
    (wanted,) = connection.execute(f"SELECT {DUCK[name]} FROM rows").fetchone() or (None,)
    batches = [[Change(value, at) for at, value in enumerate(values)]]
    step = WindowedStep((("x", AGGREGATES[name]),), sl.tumbling("1m"), lateness=Lateness())
    (found,) = emitted(TypedKernel(step, to_polars(kind)), batches)
    if name == "sum" and isinstance(wanted, int) and not -(2**63) <= wanted < 2**63:
        wanted = None
    assert is_same(found, wanted, tolerance(name, batches)), f"{found} instead of {wanted}"
