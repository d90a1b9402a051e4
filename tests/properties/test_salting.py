"""Salted hot keys agree with the oracle and with an unsalted job, batch by batch."""

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
from strandline.kernel.blocks.block import END, OFFSET, PARTITION, REASON, START, unpack
from strandline.kernel.window.panes import INDEX, LAST, RETRACTION, TIMESTAMP, TIMING
from strandline.model.aggregates import UserAggregate
from strandline.model.elements import Element, Timestamp
from strandline.model.evictors import KeepWithin, Moment
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, AfterCount, AfterWatermark, Repeatedly
from strandline.model.windows import Cumulating, Sliding, Tumbling, Window
from strandline.plan import salting
from strandline.plan.compile import to_stages
from strandline.plan.nodes import EventTime, Read, Write, over
from strandline.plan.operators import Accepted
from strandline.plan.salting import salted
from strandline.plan.stages import Stages
from strandline.reference import watermarks
from strandline.reference.batch import StepState, play
from tests.plan.endpoints import PaperSink
from tests.properties.histories import seconds
from tests.properties.test_chains import EACH, Typed
from tests.spark.by_hand import Carrier

RULE: Final = sl.bounded(seconds=2)
FEWER: Final = -(-EACH // 8)
"""Each example is a job played twice."""
KEYS: Final = ("hot", "hot", "hot", "hot", "b", None)


def _make() -> list[Any]:
    return []


def _add(held: list[Any], value: Any) -> list[Any]:
    if value == 7:
        raise ValueError("seven")
    return [*held, value]


def _add_any(held: list[Any], value: Any) -> list[Any]:
    return [*held, value]


def _told(held: list[Any]) -> str:
    return ",".join(map(str, held))


OWN: Final = UserAggregate("v", _make, _add, _told, name="joined")
AGGREGATES: Final = (("joined", OWN), ("all", sl.collect("v")), ("n", sl.count()), ("total", sl.sum("v")))

Batches = tuple[tuple[int, tuple[tuple[str | None, int, int], ...]], ...]
Told = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Salty:
    """A step that supports salting, and batches: a clock and elements as key, value and time."""

    step: WindowedStep
    batches: Batches


def _salty(step: WindowedStep, seed: int) -> Salty:
    chance = Random(seed)
    clock, at, batches = 0, 0, []
    for _ in range(chance.randrange(3, 9)):
        clock, at = clock + chance.randrange(5_000), at + chance.randrange(12_000)
        rows = [
            (chance.choice(KEYS), chance.randrange(9), at - chance.randrange(25_000))
            for _ in range(chance.randrange(16))
        ]
        batches.append((clock, tuple(rows)))
    return Salty(step, tuple(batches))


STEPS = st.builds(
    WindowedStep,
    aggregates=st.just(AGGREGATES),
    window=st.sampled_from([
        Tumbling(seconds(6)), Tumbling(seconds(7), seconds(3)), Sliding(seconds(8), seconds(4)),
        Sliding(seconds(3), seconds(5)), Cumulating(seconds(8), seconds(4)),
    ]),
    trigger=st.sampled_from([
        DEFAULT, AfterWatermark(None, AfterCount(1)), AfterWatermark(None, AfterCount(3)),
        AfterWatermark(None, Repeatedly(AfterCount(2))),
    ]),
    accumulation=st.sampled_from([*Accumulation]),
    lateness=st.builds(Lateness, st.integers(0, 15).map(seconds), st.sampled_from([*LateRows])),
    on_time_pane=st.sampled_from([*Emit]),
    final_pane=st.sampled_from([*Emit]),
    evictor=st.sampled_from([None, None, KeepWithin(seconds(3)), KeepWithin(seconds(3), Moment.AFTER)]),
)  # fmt: skip
SALTY = st.builds(_salty, STEPS, st.integers(0, 10**9))


@pytest.fixture(autouse=True)
def _every_key_is_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salting, "LEAST", 2)


def stages_of(step: WindowedStep, salt: int | None) -> Stages:
    of = EventTime(Read(Typed()), "at", RULE)
    meant, keys = frozenset(Accepted), ("key",)
    node = over(of, keys, step, accepted=meant) if salt is None else salted(of, keys, step, salt, meant, None)
    return to_stages(Write(node, PaperSink(), sl.Delivery.EXACTLY_ONCE))


def framed(rows: Sequence[tuple[str | None, int, int]], first: int) -> pl.DataFrame:
    """Return rows of one partition as Spark passes them."""
    frame = pl.DataFrame([*rows], schema={"key": pl.String, "v": pl.Int64, "at": pl.Int64}, orient="row")
    at = pl.from_epoch("at", time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    place = pl.int_range(pl.len(), dtype=pl.Int64) + first
    return frame.with_columns(at, pl.lit("").alias(PARTITION), place.alias(OFFSET))


def on_the_job(salty: Salty, seed: int, salt: int | None) -> list[tuple[Counter[Told], Counter[Told], int]]:
    """Return panes, late elements and dead letters after each batch, from the code that Spark runs."""
    chance = Random(seed)
    carrier = Carrier(stages_of(salty.step, salt), combines=seed % 3 != 0)
    told = []
    for number, (clock, rows) in enumerate([*salty.batches, (10**6, ())]):
        frame = framed(rows, 1_000 * number)
        cut = chance.randrange(frame.height + 1)
        last = number == len(salty.batches)
        (output,) = carrier.carry_frames({0: [frame[:cut], frame[cut:]]}, clock, drain=last)
        panes = [] if output.panes is None else output.panes.to_dicts()
        late = [] if output.late is None else output.late.to_dicts()
        dead = 0 if output.dead is None else output.dead.height
        told.append((Counter(map(_of_row, panes)), Counter(map(_of_late, late)), dead))
    return told


def _of_row(row: dict[str, Any]) -> Told:
    window = Window(Timestamp(row[START]), Timestamp(row[END]))
    values = (row["joined"], tuple(row["all"] or ()), row["n"], row["total"])
    at = Timestamp(row[TIMESTAMP])
    return (row["key"], window, values, row[TIMING], row[INDEX], row[LAST], at, row[RETRACTION])


def _of_late(row: dict[str, Any]) -> Told:
    assert not [name for name in row if name in ("@salt", "@held")]
    return (row["key"], row["v"], row["at"], row[REASON], row[START], row[END])


def on_the_oracle(salty: Salty) -> list[tuple[Counter[Told], Counter[Told]]]:
    kept, told = StepState(progress=watermarks.begin([""])), []
    for number, (clock, rows) in enumerate(salty.batches):
        now = Timestamp(clock)
        elements = [
            Element(Timestamp(at), key, {"v": v}, "", 1_000 * number + place) for place, (key, v, at) in enumerate(rows)
        ]
        heard = watermarks.on_rows(RULE, kept.progress, elements, now)
        kept, said = play(salty.step, RULE, kept, elements, heard, now)
        told.append(said)
    kept, said = play(salty.step, RULE, kept, [], watermarks.on_drain(kept.progress), Timestamp(10**6))
    return [
        (
            Counter(
                (
                    pane.key, pane.window,
                    (pane.values["joined"], tuple(pane.values["all"] or ()), pane.values["n"], pane.values["total"]),
                    pane.timing.value, pane.index, pane.is_last, pane.timestamp, pane.retraction,
                )
                for pane in each.panes
            ),
            Counter((late.element.key, late.element.columns["v"], late.element.at.ms) for late in each.late),
        )
        for each in [*told, said]
    ]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=FEWER, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(salty=SALTY, seed=st.integers(0, 10**9), salt=st.sampled_from([2, 3, 8]))
def test_salted_is_what_unsalted_is(salty: Salty, seed: int, salt: int) -> None:
    assert on_the_job(salty, seed, salt) == on_the_job(salty, seed, None), salty


@pytest.mark.slow
@settings(max_examples=2 * FEWER, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(salty=SALTY, seed=st.integers(0, 10**9))
def test_salted_is_what_the_oracle_says(salty: Salty, seed: int) -> None:
    whole = (("joined", replace(OWN, add=_add_any)), *AGGREGATES[1:])
    salty = replace(salty, step=replace(salty.step, aggregates=whole))
    said = on_the_job(salty, seed, 3)
    expected = on_the_oracle(salty)
    assert [panes for panes, _, _ in said] == [panes for panes, _ in expected], salty
    assert [
        Counter((key, v, round(at.timestamp() * 1000)) for key, v, at, *_ in late.elements()) for _, late, _ in said
    ] == [late for _, late in expected]


@pytest.mark.slow
def test_histories_are_worth_their_time() -> None:
    """They contain panes of both timings, retractions, late elements, dead letters and hot keys."""
    seen = set[str]()

    @settings(max_examples=8, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(salty=SALTY, seed=st.integers(0, 10**9))
    def look(salty: Salty, seed: int) -> None:
        for panes, late, dead in on_the_job(salty, seed, 3):
            seen.update(pane[3] for pane in panes)
            seen.update("taken back" for pane in panes if pane[7])
            seen.update("refused" for _ in late)
            seen.update("dead" for _ in range(dead))

    look()
    assert seen == {"on_time", "late", "taken back", "refused", "dead"}


def test_no_key_group_holds_most_of_a_hot_key() -> None:
    step = WindowedStep((("joined", replace(OWN, add=_add_any)),), Tumbling(seconds(60)))
    frame = framed([("hot", value, value * 10) for value in range(400)], 0)
    fullest = {}
    for salt in (None, 32):
        carrier = Carrier(stages_of(step, salt))
        carrier.carry_frames({0: [frame]}, 0)
        fullest[salt] = max(sum(map(elements_in, state.held.items())) for state in carrier.groups.values())
    assert fullest[None] == 400
    assert fullest[32] < 200


def elements_in(kept: tuple[str, bytes]) -> int:
    """Count the single elements of a block."""
    return sum(frame.height for name, frame in unpack(kept[1], kept[0]).frames.items() if name.startswith("items:"))
