"""Deduplication as the job's own code plays it agrees with the oracle, on generated histories."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.execution.block_addresses import place
from strandline.kernel.blocks.block import AT
from strandline.kernel.operators import operator_of
from strandline.kernel.state import slice_deltas
from strandline.kernel.state_export import distribute, export
from strandline.kernel.window.panes import RETRACTION
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.watermarks import bounded
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery
from strandline.plan.nodes import EventTime, Read, Union, Write, over
from strandline.plan.operators import Accepted
from strandline.reference.deduplicate import Deduplicated, DeduplicateState, deduplicate
from tests.plan.endpoints import PaperSink
from tests.properties.budget import examples
from tests.spark.by_hand import Carrier, MapState
from tests.spark.test_flows import Typed, rows

EACH: Final = examples(50, least=4)
DELAY: Final = 3_000
NEVER: Final = Timestamp(-(2**62))

Given = tuple[str | None, int, int]


def stages(operator: Deduplicate, inputs: int = 1) -> Any:
    streams = [EventTime(Read(Typed(f"source {number}")), "at", bounded(Duration(DELAY))) for number in range(inputs)]
    of = streams[0] if inputs == 1 else Union(tuple(streams))
    node = over(of, ("team",), operator, accepted=frozenset(Accepted))
    return to_stages(Write(node, PaperSink(), Delivery.EXACTLY_ONCE))


def changed(frame: pl.DataFrame | None) -> Counter[tuple[Any, ...]]:
    if frame is None:
        return Counter()
    signs = [-1 if gone else 1 for gone in frame[RETRACTION]] if RETRACTION in frame.columns else [1] * frame.height
    return Counter(zip(frame["team"], frame["score"], frame[AT], signs, strict=True))


def oracle(
    operator: Deduplicate, state: dict[str | None, DeduplicateState], batch: Sequence[Given], before: int, after: int
) -> tuple[Counter[tuple[Any, ...]], Counter[int], int]:
    """The rows, late scores and number of duplicates of one batch; state changes in place."""
    elements: dict[str | None, list[Element]] = {key: [] for key in state}
    for offset, (team, score, at) in enumerate(batch):
        elements.setdefault(team, []).append(Element(Timestamp(at * 1_000), team, {"score": score}, "", offset))
    found: Counter[tuple[Any, ...]] = Counter()
    late: Counter[int] = Counter()
    duplicates = 0
    for key, mine in elements.items():
        done: Deduplicated = deduplicate(
            operator, key, state.get(key, DeduplicateState()), mine, Timestamp(before), Timestamp(after)
        )
        state[key] = done.state
        found.update((row.key, row.values["score"], row.at.ms, -1 if row.retraction else 1) for row in done.rows)
        late.update(each.element.columns["score"] for each in done.late)
        duplicates += done.duplicates
    return found, late, duplicates


def moved(carrier: Carrier, operator: Deduplicate) -> None:
    """Put the state through an export and through another number of key groups."""
    step = carrier.stages.steps[0]
    mine = operator_of(step.operator, step.keys)
    groups = {to: state for to, state in carrier.groups.items() if place(to)[0] == step.number}
    if not groups:
        return
    spread = distribute(export(state.held for state in groups.values()), mine, 3)
    back = distribute(export(spread.values()), mine, step.groups)
    for to in groups:
        carrier.groups[to] = MapState()
        carrier.groups[to].held = dict(back[place(to)[1]])


def agree(operator: Deduplicate, batches: Sequence[Sequence[Given]], *, moves: bool) -> None:
    carrier = Carrier(stages(operator))
    state: dict[str | None, DeduplicateState] = {}
    before, highest, offset = NEVER.ms, None, 0
    for batch in batches:
        if batch:
            top = max(at for *_, at in batch) * 1_000
            highest = top if highest is None else max(highest, top)
        after = before if highest is None else max(before, highest - DELAY - 1)
        frame = rows(*batch)
        output = carrier.carry_frames({0: [frame]} if batch else {}, 0)[0]
        meant, late, duplicates = oracle(operator, state, batch, before, after)
        assert changed(output.panes) == meant
        assert Counter([] if output.late is None else output.late["score"]) == late
        assert output.counts.filtered == duplicates
        before, offset = after, offset + len(batch)
        if moves:
            moved(carrier, operator)
    drained = carrier.carry_frames({}, 0, drain=True)[0]
    assert drained.panes is None
    if operator.within is not None:
        assert drained.rows == 0


def history(seed: int, keys: int, spread: int) -> list[list[Given]]:
    chance, at, score = Random(seed), 0, 0
    batches = []
    for _ in range(chance.randrange(1, 8)):
        at += chance.randrange(12)
        batch: list[Given] = []
        for _ in range(chance.randrange(25)):
            score += 1
            key = chance.randrange(keys)
            batch.append((None if not key else f"team {key}", score, at + chance.randrange(-spread, spread + 1)))
        batches.append(batch)
    return batches


@pytest.fixture(autouse=True, params=["deltas", "whole slices"])
def _deltas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_deltas, "LARGE", 2 if request.param == "deltas" else 2_000)


@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, suppress_health_check=[])
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 3, 40]),
    spread=st.sampled_from([1, 6, 20]),
    keep=st.sampled_from(list(Keep)),
    within=st.sampled_from([None, 1, 4_000, 7_500, 60_000]),
    lateness=st.sampled_from([0, 5_000]),
    moves=st.booleans(),
)
def test_the_jobs_own_code_agrees_with_the_oracle(
    seed: int, keys: int, spread: int, keep: Keep, within: int | None, lateness: int, moves: bool
) -> None:
    operator = Deduplicate(keep, None if within is None else Duration(within), Duration(lateness))
    agree(operator, history(seed, keys, spread), moves=moves)


@pytest.mark.slow
def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key has one hash here."""
    import numpy as np  # noqa: PLC0415 - for this test alone

    from strandline.kernel.deduplicate import stores  # noqa: PLC0415

    monkeypatch.setattr(stores, "hashed", lambda frame: np.zeros(frame.height, np.uint64))
    for keep in Keep:
        for seed in range(10):
            agree(Deduplicate(keep, Duration(4_000)), history(seed, 5, 6), moves=False)


def test_duplicates_of_two_inputs_are_found() -> None:
    carrier = Carrier(stages(Deduplicate(Keep.FIRST, Duration(10_000)), inputs=2))
    both = {0: [rows(("red", 1, 5), ("blue", 2, 5))], 1: [rows(("red", 3, 5), ("green", 4, 6))]}
    output = carrier.carry_frames(both, 0)[0]
    assert output.panes is not None
    assert "@input" not in output.panes.columns
    assert sorted(zip(output.panes["team"], output.panes["score"], strict=True)) == [
        ("blue", 2), ("green", 4), ("red", 1),
    ]  # fmt: skip
    assert output.counts.filtered == 1
