"""Temporal joins as the job's own code plays them agree with the oracle, and in the end with DuckDB's ASOF JOIN."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.execution.block_addresses import place
from strandline.kernel.blocks.block import AT, SIGN
from strandline.kernel.join import temporal_join as kernel
from strandline.kernel.join import time_slices, version_store
from strandline.kernel.operators import operator_of
from strandline.kernel.state import slice_deltas
from strandline.kernel.state_export import distribute, export
from strandline.kernel.window.panes import RETRACTION
from strandline.model.elements import Element, Timestamp
from strandline.model.joins import LEFT, RIGHT
from strandline.model.temporal_join import Direction, TemporalJoin
from strandline.plan.compile import to_stages
from strandline.reference.temporal_join import TemporalState, temporal_join
from tests.plan.endpoints import PaperSink
from tests.properties.budget import examples
from tests.spark.by_hand import Carrier, MapState
from tests.spark.test_flows import rows, typed

EACH: Final = examples(50, least=4)
DELAY: Final = 3
SIDES: Final = {LEFT: LEFT, RIGHT: RIGHT}
FOREVER: Final = 2**63 - 1

Given = tuple[str | None, int, int]
Batch = tuple[list[Given], list[Given]]
Emitted = Counter[tuple[Any, ...]]


def stages(**options: Any) -> Any:
    left, right = (typed(name).event_time("at", sl.bounded(seconds=DELAY)) for name in ("left", "right"))
    return to_stages(left.as_of(right, **options).on("team").write(PaperSink()).root)


def emitted(frame: pl.DataFrame | None) -> Emitted:
    if frame is None:
        return Counter()
    taken_back = frame[RETRACTION] if RETRACTION in frame.columns else [False] * frame.height
    return Counter(zip(frame["team"], frame["score"], frame["score_right"], frame[AT], taken_back, strict=True))


def oracle(
    operator: TemporalJoin, state: dict[str | None, TemporalState], batch: Batch, before: int, after: int
) -> tuple[Emitted, Counter[int], int]:
    """The rows, late scores and number of filtered rows of one batch; state changes in place."""
    elements: dict[str | None, list[Element]] = {key: [] for key in state}
    for role, side in zip((LEFT, RIGHT), batch, strict=True):
        for offset, (team, score, at) in enumerate(side):
            one = Element(Timestamp(at * 1_000), team, {"score": score}, "", offset, input=role)
            elements.setdefault(team, []).append(one)
    found: Emitted = Counter()
    late: Counter[int] = Counter()
    filtered = 0
    for key, mine in elements.items():
        known = state.get(key, TemporalState())
        done = temporal_join(operator, key, known, mine, Timestamp(before), Timestamp(after), SIDES)
        state[key] = done.state
        found.update(
            (row.key, row.values["score"], row.values.get("score_right"), row.at.ms, row.retraction)
            for row in done.rows
        )
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


def agree(compiled: Any, batches: Sequence[Batch], *, moves: bool = False) -> tuple[Emitted, Counter[int]]:
    """Play a history on both; return all rows and all late rows."""
    carrier = Carrier(compiled)
    operator = compiled.steps[0].operator
    state: dict[str | None, TemporalState] = {}
    before, total, late_rows = -(2**63), Counter[tuple[Any, ...]](), Counter[int]()
    for left, right in [*batches, ([], [])]:
        is_end = not left and not right
        frames = {number: [rows(*side)] for number, side in enumerate((left, right)) if side}
        output = carrier.carry_frames(frames, 0, drain=is_end)[0]
        after = output.progress.watermark
        meant, late, filtered = oracle(operator, state, (left, right), before, after)
        assert emitted(output.panes) == meant
        scores: list[Any] = [] if output.late is None else [
            *(each for name in ("score", "score_right") if name in output.late.columns for each in output.late[name])
        ]  # fmt: skip
        assert Counter(each for each in scores if each is not None) == late
        assert output.counts.filtered == filtered
        holds = [each.hold.ms for each in state.values() if each.hold is not None]
        (step,) = carrier.steps.values()
        assert step.output_watermark == min([after, *(hold - 1 for hold in holds)])
        total += meant
        late_rows += late
        before = after
        if moves and not is_end:
            moved(carrier)
        if is_end:
            assert output.rows == 0
    return total, late_rows


def history(seed: int, keys: int, spread: int, *, stretch: int = 1) -> list[Batch]:
    """Batches of both sides; with a stretch the versions are far apart, and far ahead."""
    chance, at, score = Random(seed), 0, 0
    batches = []
    for _ in range(chance.randrange(1, 9)):
        at += chance.randrange(12)
        sides: Batch = ([], [])
        for number, side in enumerate(sides):
            for _ in range(chance.randrange(18)):
                score += 1
                key = chance.randrange(keys + 1)
                team = f"team {key}" if key < keys else None
                far = stretch if number and chance.random() < 0.5 else 1
                side.append((team, score, (at + chance.randrange(-spread, spread + 1)) * far))
        if any(sides):
            batches.append(sides)
    return batches


@contextmanager
def slices(*, small: bool) -> Iterator[None]:
    """Slices and deltas as in a job, or so few and small that they move and merge all the time."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(slice_deltas, "MERGE_FACTOR", 2)
            patch.setattr(time_slices, "SHORTEST", 1_000)
            patch.setattr(time_slices, "MOST", 8)
            patch.setattr(version_store, "MOST_WHOLE", 3)
        yield


@settings(max_examples=EACH, derandomize=True, database=None, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 3, 40]),
    spread=st.sampled_from([1, 6, 20]),
    stretch=st.sampled_from([1, 1, 3, 10_000]),
    how=st.sampled_from(["inner", "left"]),
    direction=st.sampled_from(["backward", "backward", "forward", "nearest"]),
    tolerance=st.sampled_from([None, 0, 2, 15]),
    corrections=st.sampled_from([0, 0, 4, 30]),
    has_deletions=st.booleans(),
    moves=st.booleans(),
    small=st.booleans(),
)
def test_the_jobs_own_code_agrees_with_the_oracle(  # noqa: PLR0917 - a history has so many settings
    seed: int,
    keys: int,
    spread: int,
    stretch: int,
    how: str,
    direction: str,
    tolerance: int | None,
    corrections: int,
    has_deletions: bool,
    moves: bool,
    small: bool,
) -> None:
    if direction != "backward":
        tolerance, has_deletions = tolerance or 0, False
    compiled = stages(
        how=how,
        direction=direction,
        tolerance=None if tolerance is None else f"{tolerance}s",
        corrections=f"{corrections}s",
        deleted="score % 4 == 0" if has_deletions else None,
    )
    with slices(small=small):
        agree(compiled, history(seed, keys, spread, stretch=stretch), moves=moves)


@pytest.mark.parametrize("direction", list(Direction))
def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch, direction: Direction) -> None:
    """Every key has one hash here."""
    monkeypatch.setattr(kernel, "hashed", lambda frame: np.zeros(frame.height, np.uint64))
    for seed in range(3):
        compiled = stages(how="left", direction=direction, tolerance="9s", corrections="6s")
        agree(compiled, history(seed, 5, 6))
        if direction is Direction.BACKWARD:
            agree(stages(how="left", corrections="6s", deleted="score % 5 == 0"), history(seed, 5, 6))


def asof(batches: Iterable[Batch], late: Counter[int], *, deletions: bool) -> Emitted:
    """The left join over the whole history, by DuckDB; of one key and time the last version counts."""
    history = [*batches]
    probes = [each for left, _ in history for each in left if each[1] not in late]
    found = {(team, at): score for _, right in history for team, score, at in right if team is not None}
    frames = {
        "probes": pl.DataFrame(probes, schema=["team", "score", "at"], orient="row"),
        "versions": pl.DataFrame(
            [(team, at, score) for (team, at), score in found.items()], schema=["team", "at", "score"], orient="row"
        ),
    }
    with duckdb.connect() as database:
        for name, frame in frames.items():
            database.register(name, frame.to_arrow())
        answered = database.execute(
            "SELECT p.team, p.score, v.score, p.at FROM probes p "
            "ASOF LEFT JOIN versions v ON p.team = v.team AND p.at >= v.at"
        ).fetchall()
    return Counter(
        (team, score, None if deletions and version is not None and version % 4 == 0 else version, at * 1_000)
        for team, score, version, at in answered
    )


@pytest.mark.parametrize("deletions", [False, True])
def test_after_a_drain_corrected_rows_are_those_of_duckdb(deletions: bool) -> None:
    """With corrections over the whole history every late version corrects what it changes."""
    compared = 0
    for seed in range(4):
        batches = [*history(seed, 4, 8, stretch=3), *history(seed + 100, 4, 8)]
        # Scores identify rows.
        batches = [
            ([(team, number * 1_000 + score, at) for team, score, at in left],
             [(team, number * 1_000 + score, at) for team, score, at in right])
            for number, (left, right) in enumerate(batches)
        ]  # fmt: skip
        compiled = stages(how="left", corrections="1000000s", deleted="score % 4 == 0" if deletions else None)
        with slices(small=seed % 2 == 0):
            total, late = agree(compiled, batches)
        net: Emitted = Counter()
        for (*row, retraction), many in total.items():
            net[tuple(row)] += -many if retraction else many
        assert {row: many for row, many in net.items() if many} == dict(asof(batches, late, deletions=deletions))
        compared += len(net)
    assert compared > 100


def test_a_hot_key_with_many_versions_in_many_batches() -> None:
    chance, at = Random(3), 0
    batches: list[Batch] = []
    for number in range(12):
        at += 5
        sides: Batch = ([], [])
        for side in sides:
            for each in range(80):
                key = 0 if chance.random() < 0.9 else chance.randrange(1, 20)
                side.append((f"team {key}", number * 1_000 + each, at + chance.randrange(-12, 2)))
        batches.append(sides)
    for options in ({}, {"corrections": "6s"}, {"direction": "nearest", "tolerance": "4s"}):
        with slices(small=True):
            total, late = agree(stages(how="left", **options), batches)
        assert sum(total.values()) > 500
        assert late


def test_a_batch_reads_only_slices_that_its_rows_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions far ahead stay unread while left rows are far behind."""
    carrier = Carrier(stages())
    far = [(f"team {number}", number, number * 10_000) for number in range(200)]
    carrier.carry_frames({0: [rows(("team 0", 1, 0))], 1: [rows(*far)]}, 0)
    stored = {name for state in carrier.groups.values() for name in state.held if name.startswith("versions_")}
    assert len(stored) > 5
    read: set[str] = set()
    read_runs = slice_deltas.read_runs

    def recorded(held: Any, store: Any, number: int, *others: Any) -> Any:
        read.add(store.place(number))
        return read_runs(held, store, number, *others)

    monkeypatch.setattr(slice_deltas, "read_runs", recorded)
    carrier.carry_frames({0: [rows(*((f"team {number}", 2, 150) for number in range(40)))]}, 0)
    assert read
    assert len({name for name in read if name.startswith("versions_")}) == 1


def test_the_result_names_retractions_only_if_there_are_corrections() -> None:
    carrier = Carrier(stages())
    output = carrier.carry_frames({0: [rows(("a", 1, 5))], 1: [rows(("a", 2, 4))]}, 0, drain=True)[0]
    assert output.panes is not None
    assert not {SIGN, RETRACTION} & {*output.panes.columns}
