"""Two keyed steps in a chain: the code of a job agrees with two chained oracles."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import INDEX, LAST, RETRACTION, TIMESTAMP, TIMING
from strandline.model.elements import END as END_OF_TIME
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Accumulation, Lateness, Pane
from strandline.model.steps import WindowedStep
from strandline.model.triggers import continued
from strandline.model.watermarks import Inputs
from strandline.model.windows import Tumbling, Window
from strandline.plan.compile import to_stages
from strandline.plan.nodes import EventTime, Read, Write, over
from strandline.plan.operators import Accepted
from strandline.plan.stages import Stages
from strandline.reference import watermarks
from strandline.reference.batch import StepState, play
from tests.plan.endpoints import PaperSink, PaperSource
from tests.properties.budget import examples
from tests.properties.histories import ALL_TRIGGERS, FIXED, SESSIONS, seconds, steps
from tests.spark.by_hand import Carrier

EACH: Final = examples(50)
RULE: Final = sl.bounded(seconds=2)
KEYS: Final = ("a", "b", "c", "d")
AGGREGATES: Final = (
    ("n", sl.count()), ("total", sl.sum("total")), ("least", sl.min("total")), ("most", sl.max("total")),
    ("kinds", sl.count_distinct("total")), ("some", sl.any_true("total")), ("average", sl.mean("total")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed(PaperSource):
    """A source with a known schema."""

    partitions: tuple[str, ...] = ("",)
    columns: str = "key string, v long, at timestamp"
    decoder: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Two steps and batches: a clock and elements as key, value and time in milliseconds."""

    first: WindowedStep
    second: WindowedStep
    batches: tuple[tuple[int, tuple[tuple[str, int, int], ...]], ...]


def _chain(first: WindowedStep, window: Tumbling, how: Accumulation, late: int, seed: int) -> Chain:
    chance = Random(seed)
    first = replace(first, aggregates=(("n", sl.count()), ("total", sl.sum("v")), ("top", sl.max("v"))))
    if first.accumulation is Accumulation.ACCUMULATING:
        first = replace(first, accumulation=Accumulation.RETRACTING)
    second = WindowedStep(
        AGGREGATES, window, continued(first.trigger), how, Lateness(seconds(late)),
        signed=first.accumulation is Accumulation.RETRACTING,
    )  # fmt: skip
    clock, at, batches = 0, 0, []
    for _ in range(chance.randrange(3, 9)):
        clock, at = clock + chance.randrange(5_000), at + chance.randrange(12_000)
        many = chance.randrange(12)
        batches.append(
            (
                clock,
                tuple((chance.choice(KEYS), chance.randrange(9), at - chance.randrange(9_000)) for _ in range(many)),
            )
        )
    return Chain(first, second, tuple(batches))


CHAINS = st.builds(
    _chain,
    steps(windows=st.one_of(FIXED, SESSIONS), triggers=ALL_TRIGGERS),
    st.builds(Tumbling, st.integers(4, 20).map(seconds)),
    st.sampled_from([Accumulation.DISCARDING, Accumulation.RETRACTING]),
    st.integers(0, 9),
    st.integers(0, 10**9),
)


def stages_of(chain: Chain) -> Stages:
    meant = frozenset(Accepted)
    first = over(EventTime(Read(Typed()), "at", RULE), ("key",), chain.first, accepted=meant)
    second = over(first, ("key",), replace(chain.second, signed=False), accepted=meant)
    return to_stages(Write(second, PaperSink(), sl.Delivery.EXACTLY_ONCE))


Told = tuple[Any, ...]


def on_the_job(chain: Chain, seed: int) -> list[Counter[Told]]:
    """Return the panes of the second step after each batch, from the code that Spark runs."""
    chance = Random(seed)
    carrier = Carrier(stages_of(chain), combines=seed % 3 != 0)
    told = []
    for number, (clock, rows) in enumerate([*chain.batches, (10**6, ())]):
        frame = pl.DataFrame([*rows], schema={"key": pl.String, "v": pl.Int64, "at": pl.Int64}, orient="row")
        frame = frame.with_columns(
            pl.from_epoch("at", time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        )
        cut = chance.randrange(frame.height + 1)
        last = number == len(chain.batches)
        (output,) = carrier.carry_frames({0: [frame[:cut], frame[cut:]]}, clock, drain=last)
        found = [] if output.panes is None else output.panes.to_dicts()
        told.append(Counter(_of_row(row) for row in found))
    return told


def on_two_oracles(chain: Chain) -> list[Counter[Told]]:
    inputs = Inputs(("step 0",))
    one, other = StepState(progress=watermarks.begin([""])), StepState(progress=watermarks.begin(inputs.names))
    told = []
    for clock, rows in chain.batches:
        now = Timestamp(clock)
        elements = [Element(Timestamp(at), key, {"v": v}, "", place) for place, (key, v, at) in enumerate(rows)]
        heard = watermarks.on_rows(RULE, one.progress, elements, now)
        one, said = play(chain.first, RULE, one, elements, heard, now)
        reached = watermarks.on_watermark(inputs, other.progress, "step 0", one.output_watermark, now)
        other, panes = play(chain.second, inputs, other, _elements(said.panes), reached, now)
        told.append(Counter(map(_of_pane, panes.panes)))
    now = Timestamp(10**6)
    one, said = play(chain.first, RULE, one, [], watermarks.on_drain(one.progress), now)
    other, panes = play(chain.second, inputs, other, _elements(said.panes), watermarks.on_drain(other.progress), now)
    return [*told, Counter(map(_of_pane, panes.panes))]


def _elements(panes: Sequence[Pane]) -> list[Element]:
    return [
        Element(
            min(pane.timestamp, Timestamp(END_OF_TIME.ms - 1)), pane.key, {"total": pane.values["total"]},
            "step 0", place, retraction=pane.retraction,
        )
        for place, pane in enumerate(panes)
    ]  # fmt: skip


def _of_pane(pane: Pane) -> Told:
    values = tuple(pane.values[name] for name, _ in AGGREGATES)
    return (pane.key, pane.window, values, pane.timing.value, pane.index, pane.is_last, pane.timestamp, pane.retraction)


def _of_row(row: dict[str, Any]) -> Told:
    window = Window(Timestamp(row[START]), Timestamp(row[END]))
    values = tuple(row[name] for name, _ in AGGREGATES)
    at = Timestamp(row[TIMESTAMP])
    return (row["key"], window, values, row[TIMING], row[INDEX], row[LAST], at, row[RETRACTION])


@pytest.mark.slow
@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(chain=CHAINS, seed=st.integers(0, 10**9))
def test_a_step_over_the_panes_of_another_says_what_two_oracles_in_a_row_say(chain: Chain, seed: int) -> None:
    assert on_the_job(chain, seed) == on_two_oracles(chain), chain


@pytest.mark.slow
def test_chains_are_worth_their_time() -> None:
    """They contain panes of every timing, and retractions at both steps."""
    seen = set[Any]()

    @settings(max_examples=40, derandomize=True, database=None, phases=[Phase.generate])
    @given(chain=CHAINS)
    def look(chain: Chain) -> None:
        for told in on_two_oracles(chain):
            seen.update(pane[3] for pane in told)
            seen.update("taken back" for pane in told if pane[7])
        seen.add(("signed", chain.second.signed))

    look()
    assert seen >= {"early", "on_time", "late", "taken back", ("signed", True), ("signed", False)}
