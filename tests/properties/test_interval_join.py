"""Interval joins as the job's own code plays them agree with the oracle, on generated histories."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.execution.block_addresses import place
from strandline.kernel.blocks.block import AT
from strandline.kernel.operators import operator_of
from strandline.kernel.state import slice_deltas
from strandline.kernel.state_export import distribute, export
from strandline.model.counts import InputCounts
from strandline.model.elements import Element, Timestamp
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.plan.compile import to_stages
from strandline.reference.interval_join import Joined, JoinState, interval_join
from tests.plan.endpoints import PaperSink
from tests.properties.budget import examples
from tests.spark.by_hand import Carrier, MapState
from tests.spark.test_flows import rows, typed

EACH: Final = examples(50, least=4)
DELAY: Final = 3
SIDES: Final = {LEFT: LEFT, RIGHT: RIGHT}

Given = tuple[str | None, int, int]
Batches = Sequence[tuple[Sequence[Given], Sequence[Given]]]


def stages(
    how: How, before: int, after: int, *, lateness: int = 0, where: str | None = None, inclusive: bool = True
) -> Any:
    left, right = (typed(name).event_time("at", sl.bounded(seconds=DELAY)) for name in ("left", "right"))
    joined = left.join(right).on("team").within(
        before=f"{before}s", after=f"{after}s", how=how, allowed_lateness=f"{lateness}s", where=where,
        inclusive=inclusive,
    )  # fmt: skip
    return to_stages(joined.write(PaperSink()).root)


def emitted(frame: pl.DataFrame | None) -> Counter[tuple[Any, ...]]:
    if frame is None:
        return Counter()
    score = "score" if "score" in frame.columns else "score_right"
    other = frame["score_right"] if "score_right" in frame.columns else [None] * frame.height
    return Counter(zip(frame["team"], frame[score], other, frame[AT], strict=True))


def oracle(
    operator: IntervalJoin,
    state: dict[str | None, JoinState],
    batch: Sequence[Sequence[Given]],
    before: int,
    after: int,
) -> tuple[Counter[tuple[Any, ...]], Counter[int], int]:
    """The rows, late scores and number of filtered rows of one batch; state changes in place."""
    elements: dict[str | None, list[Element]] = {key: [] for key in state}
    for role, side in zip((LEFT, RIGHT), batch, strict=True):
        for offset, (team, score, at) in enumerate(side):
            one = Element(Timestamp(at * 1_000), team, {"score": score}, "", offset, input=role)
            elements.setdefault(team, []).append(one)
    found: Counter[tuple[Any, ...]] = Counter()
    late: Counter[int] = Counter()
    filtered = 0
    for key, mine in elements.items():
        done: Joined = interval_join(
            operator, key, state.get(key, JoinState()), mine, Timestamp(before), Timestamp(after), SIDES
        )
        state[key] = done.state
        found.update((row.key, row.values.get("score"), row.values.get("score_right"), row.at.ms) for row in done.rows)
        late.update(each.element.columns["score"] for each in done.late)
        filtered += done.filtered
    return found, late, filtered


def moved(carrier: Carrier) -> None:
    """Put the state through an export and through another number of key groups."""
    step = carrier.stages.steps[0]
    mine = operator_of(step.operator, step.keys, step.operator_inputs)
    groups = {to: state for to, state in carrier.groups.items() if place(to)[0] == step.number}
    if not groups:
        return
    spread = distribute(export(state.held for state in groups.values()), mine, 3)
    back = distribute(export(spread.values()), mine, step.groups)
    for to in groups:
        carrier.groups[to] = MapState()
        carrier.groups[to].held = dict(back[place(to)[1]])


def agree(compiled: Any, batches: Batches, *, moves: bool = False) -> Counter[tuple[Any, ...]]:
    """Play a history on both; return all rows."""
    carrier = Carrier(compiled)
    operator = compiled.steps[0].operator
    state: dict[str | None, JoinState] = {}
    before, total = -(2**63), Counter[tuple[Any, ...]]()
    for left, right in [*batches, ([], [])]:
        is_end = not left and not right
        frames = {number: [rows(*side)] for number, side in enumerate((left, right)) if side}
        output = carrier.carry_frames(frames, 0, drain=is_end)[0]
        after = output.progress.watermark
        meant, late, filtered = oracle(operator, state, (left, right), before, after)
        found = emitted(output.panes)
        assert found == meant
        scores = [] if output.late is None else [
            *(each for name in ("score", "score_right") if name in output.late.columns for each in output.late[name])
        ]  # fmt: skip
        assert Counter(each for each in scores if each is not None) == late
        assert output.counts.filtered == filtered
        holds = [each.hold.ms for each in state.values() if each.hold is not None]
        (step,) = carrier.steps.values()
        assert step.output_watermark == min([after, *(hold - 1 for hold in holds)])
        check_inputs(operator, step.inputs, found, len(left) + len(right) - sum(late.values()), holds)
        total += found
        before = after
        if moves and not is_end:
            moved(carrier)
        if is_end:
            assert output.rows == 0
    return total


def check_inputs(
    operator: IntervalJoin,
    inputs: Mapping[str, InputCounts],
    rows: Counter[tuple[Any, ...]],
    accepted: int,
    holds: Sequence[int],
) -> None:
    """The counts of both sides are those of the rows: a row without a partner has no score of the other side."""
    assert sum(each.accepted for each in inputs.values()) == accepted
    for role, other in ((LEFT, 2), (RIGHT, 1)):
        alone = sum(many for row, many in rows.items() if row[other] is None)
        assert inputs[role].unmatched == (alone if operator.pads(role) else None)
    oldest = [each.oldest_unmatched for each in inputs.values() if each.oldest_unmatched is not None]
    assert min(oldest, default=None) == min(holds, default=None)


def history(seed: int, keys: int, spread: int, *, nulls: bool = True) -> list[tuple[list[Given], list[Given]]]:
    chance, at, score = Random(seed), 0, 0
    batches = []
    for _ in range(chance.randrange(1, 9)):
        at += chance.randrange(12)
        sides: tuple[list[Given], list[Given]] = ([], [])
        for side in sides:
            for _ in range(chance.randrange(18)):
                score += 1
                key = chance.randrange(keys + nulls)
                team = f"team {key}" if key < keys else None
                side.append((team, score, at + chance.randrange(-spread, spread + 1)))
        if any(sides):
            batches.append(sides)
    return batches


@pytest.fixture(autouse=True, params=["deltas", "merged deltas"])
def _deltas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge deltas as in a job, or as soon as there are two."""
    monkeypatch.setattr(slice_deltas, "MERGE_FACTOR", 4 if request.param == "deltas" else 2)


@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, suppress_health_check=[])
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 3, 40]),
    spread=st.sampled_from([1, 6, 20]),
    how=st.sampled_from(list(How)),
    bounds=st.sampled_from([(0, 0), (5, 0), (0, 5), (60, 60), (-2, 8), (9, -3)]),
    lateness=st.sampled_from([0, 4]),
    where=st.sampled_from([None, "score < score_right", "score_right % 2 == 0"]),
    inclusive=st.sampled_from([True, True, False]),
    moves=st.booleans(),
)
def test_the_jobs_own_code_agrees_with_the_oracle(  # noqa: PLR0917 - a history has so many settings
    seed: int,
    keys: int,
    spread: int,
    how: How,
    bounds: tuple[int, int],
    lateness: int,
    where: str | None,
    inclusive: bool,
    moves: bool,
) -> None:
    if bounds == (0, 0) and not inclusive:
        inclusive = True
    compiled = stages(how, *bounds, lateness=lateness, where=where, inclusive=inclusive)
    agree(compiled, history(seed, keys, spread), moves=moves)


@pytest.mark.slow
def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key has one hash here."""
    import numpy as np  # noqa: PLC0415 - for this test alone

    from strandline.kernel.join import interval_join as kernel  # noqa: PLC0415

    monkeypatch.setattr(kernel, "hashed", lambda frame: np.zeros(frame.height, np.uint64))
    for how in How:
        for seed in range(5):
            agree(stages(how, 4, 4), history(seed, 5, 6))


@pytest.mark.slow
@pytest.mark.parametrize("how", list(How))
def test_the_split_into_batches_does_not_change_pairs_and_padded_rows(how: How) -> None:
    """With enough allowed lateness no row is late, however the history is split."""
    for seed in range(5):
        batches = history(seed, 3, 6)
        together = ([each for left, _ in batches for each in left], [each for _, right in batches for each in right])
        timeless = [
            Counter({row[:3]: many for row, many in agree(stages(how, 4, 4, lateness=1_000), each).items()})
            for each in (batches, [together])
        ]
        assert timeless[0] == timeless[1]
