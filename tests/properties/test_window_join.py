"""Window joins as the job's own code plays them agree with the oracle, and with DuckDB over the whole history."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks.block import END, START
from strandline.kernel.join import firings
from strandline.kernel.state import slice_deltas
from strandline.kernel.window.panes import FIRST, INDEX, LAST, RETRACTION, TIMESTAMP, TIMING
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.window_join import WindowJoin
from strandline.model.windows import Cumulating, Session, Sliding, Tumbling
from strandline.plan.compile import to_stages
from strandline.reference.state import KeyState
from strandline.reference.step import Passage
from strandline.reference.window_join import window_join
from tests.plan.endpoints import PaperSink
from tests.properties.budget import examples
from tests.properties.test_interval_join import Batches, Given, history, moved
from tests.spark.by_hand import Carrier
from tests.spark.test_flows import rows, typed

EACH: Final = examples(50, least=4)
DELAY: Final = 3
SIDES: Final = {LEFT: LEFT, RIGHT: RIGHT}
WINDOWS: Final = {
    "tumbling": sl.tumbling("7s"),
    "with an offset": sl.tumbling("7s", offset="3s"),
    "sliding": sl.sliding("9s", every="2s"),
    "long sliding": sl.sliding("40s", every="2s", offset="1s"),
    "uneven sliding": sl.sliding("7s", every="3s"),
    "with gaps": sl.sliding("4s", every="6s", offset="1s"),
    "cumulating": sl.cumulating("12s", step="4s"),
    "session": sl.session("3s"),
    "separate sessions": sl.session("4s", touching="separate"),
}
EARLY: Final = sl.after_watermark(early=sl.after_count(2), late=sl.after_count(1))
TRIGGERS: Final = {
    "default": None,
    "early": EARLY,
    "late in pairs": sl.after_watermark(late=sl.after_count(2)),
    "by the clock": sl.after_watermark(early=sl.after_processing_time(seconds=5), late=sl.after_count(1)),
    "repeatedly": sl.repeatedly(sl.after_count(3)),
    "never": sl.never(),
}
PANE: Final = (START, END, TIMING, INDEX, FIRST, LAST, TIMESTAMP, RETRACTION)

Rows = Counter[tuple[Any, ...]]


def stages(window: Any, **options: Any) -> Any:
    left, right = (typed(name).event_time("at", sl.bounded(seconds=DELAY)) for name in ("left", "right"))
    return to_stages(left.join(right).on("team").window(window, **options).write(PaperSink()).root)


def emitted(frame: pl.DataFrame | None) -> Rows:
    if frame is None:
        return Counter()
    other = frame["score_right"] if "score_right" in frame.columns else [None] * frame.height
    return Counter(zip(frame["team"], frame["score"], other, *(frame[name] for name in PANE), strict=True))


def oracle(
    operator: WindowJoin, state: dict[str | None, KeyState], batch: Sequence[Sequence[Given]], time: Passage, first: int
) -> tuple[Rows, Counter[int], int]:
    """The rows, late scores and number of filtered rows of one batch; state changes in place."""
    elements: dict[str | None, list[Element]] = {key: [] for key in state}
    for role, side in zip((LEFT, RIGHT), batch, strict=True):
        for offset, (team, score, at) in enumerate(side, first):
            one = Element(Timestamp(at * 1_000), team, {"score": score}, "", offset, input=role)
            elements.setdefault(team, []).append(one)
    found: Rows = Counter()
    late: Counter[int] = Counter()
    filtered = 0
    for key, mine in elements.items():
        done = window_join(operator, key, state.get(key, KeyState()), mine, time, SIDES)
        assert isinstance(done.state, KeyState)
        state[key] = done.state
        found.update(
            (
                pane.key, pane.values.get("score"), pane.values.get("score_right"), pane.window.start.ms,
                pane.window.end.ms, str(pane.timing), pane.index, pane.is_first, pane.is_last, pane.timestamp.ms,
                pane.retraction,
            )
            for pane in done.panes
        )  # fmt: skip
        late.update(each.element.columns["score"] for each in done.judged.late)
        filtered += done.judged.filtered
    return found, late, filtered


def agree(
    compiled: Any, batches: Batches, *, moves: bool = False, clocks: Iterable[int] = ()
) -> tuple[list[Rows], Counter[int]]:
    """Play a history on both; return the rows of each batch, and the late scores."""
    carrier = Carrier(compiled)
    operator = compiled.steps[0].operator
    state: dict[str | None, KeyState] = {}
    before, clock, offset = Timestamp(-(2**63)), 0, 0
    ticks = iter(clocks)
    total: list[Rows] = []
    all_late: Counter[int] = Counter()
    for left, right in [*batches, ([], [])]:
        is_end = not left and not right
        now = max(clock, next(ticks, clock))
        frames = {number: [rows(*side)] for number, side in enumerate((left, right)) if side}
        output = carrier.carry_frames(frames, now, drain=is_end)[0]
        after = Timestamp(output.progress.watermark)
        time = Passage(before, after, Timestamp(clock), Timestamp(now))
        meant, late, filtered = oracle(operator, state, (left, right), time, offset)
        found = emitted(output.panes)
        assert found == meant
        scores = [] if output.late is None else [
            *(each for name in ("score", "score_right") if name in output.late.columns for each in output.late[name])
        ]  # fmt: skip
        assert Counter(each for each in scores if each is not None) == late
        assert output.counts.filtered == filtered
        held = [window.hold.ms for each in state.values() for window in each.windows.values() if window.hold]
        (step,) = carrier.steps.values()
        assert step.output_watermark == min([after.ms, *(hold - 1 for hold in held)])
        assert sum(each.accepted for each in step.inputs.values()) == len(left) + len(right) - sum(late.values())
        assert {role: each.late for role, each in step.inputs.items()} == {
            role: sum(late[row[1]] for row in side) for role, side in zip((LEFT, RIGHT), (left, right), strict=True)
        }
        if not any(not each.is_empty for each in state.values()):
            assert output.rows == 0
        total.append(found)
        all_late += late
        before, clock, offset = after, now, offset + len(left) + len(right)
        if moves and not is_end:
            moved(carrier)
    return total, all_late


@pytest.fixture(params=["as in a job", "small"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge deltas and form pairs as in a job, or merge deltas as soon as there are two, and few pairs at once."""
    if request.param == "small":
        monkeypatch.setattr(slice_deltas, "MERGE_FACTOR", 2)
        monkeypatch.setattr(firings, "_MOST", 3)


@pytest.mark.usefixtures("sizes")
@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, suppress_health_check=[])
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 3, 40]),
    spread=st.sampled_from([1, 6, 20]),
    window=st.sampled_from(list(WINDOWS)),
    how=st.sampled_from(list(How)),
    trigger=st.sampled_from(list(TRIGGERS)),
    accumulate=st.sampled_from(["discarding", "accumulating", "retracting"]),
    lateness=st.sampled_from([0, 4, 30]),
    where=st.sampled_from([None, None, "score < score_right", "score_right % 2 == 0"]),
    moves=st.booleans(),
)
def test_the_jobs_own_code_agrees_with_the_oracle(  # noqa: PLR0917 - a history has so many settings
    seed: int,
    keys: int,
    spread: int,
    window: str,
    how: How,
    trigger: str,
    accumulate: str,
    lateness: int,
    where: str | None,
    moves: bool,
) -> None:
    compiled = stages(
        WINDOWS[window], how=how, trigger=TRIGGERS[trigger], accumulate=accumulate, where=where,
        allowed_lateness=f"{lateness}s",
    )  # fmt: skip
    chance = Random(seed)
    clocks = [chance.randrange(200_000) for _ in range(9)]
    agree(compiled, history(seed, keys, spread), moves=moves, clocks=clocks)


def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key has one hash here."""
    import numpy as np  # noqa: PLC0415 - for this test alone

    from strandline.kernel.join import window_join as kernel  # noqa: PLC0415
    from strandline.kernel.join import window_rows  # noqa: PLC0415

    for module in (kernel, window_rows):
        monkeypatch.setattr(module, "hashed", lambda frame: np.zeros(frame.height, np.uint64))
    for how, window in ((How.FULL, "tumbling"), (How.ANTI, "sliding"), (How.LEFT, "session")):
        options = {"how": how, "accumulate": "retracting", "allowed_lateness": "4s"}
        agree(stages(WINDOWS[window], **options), history(1, 5, 6))


SPANS: Final = """
    SELECT team, score, t, start, start + {size} AS stop
    FROM {side}, unnest(generate_series(t - {size} + 1, t)) AS every_start(start)
    WHERE (start - {offset}) % {every} = 0
"""
CUMULATING: Final = """
    SELECT team, score, t, t - t % {size} AS start, t - t % {size} + {step} * n AS stop
    FROM {side}, unnest(generate_series(1, {size} // {step})) AS part(n)
    WHERE t < t - t % {size} + {step} * n
"""
SESSIONS: Final = """
    SELECT one.team, one.score, one.t, session.start, session.stop FROM {side} AS one JOIN (
        SELECT team, number, min(t) AS start, max(t) + {gap} AS stop FROM (
            SELECT team, t, sum(CASE WHEN t {over} before + {gap} THEN 1 ELSE 0 END)
                OVER (PARTITION BY team ORDER BY t ROWS UNBOUNDED PRECEDING) AS number
            FROM (
                SELECT team, t, lag(t) OVER (PARTITION BY team ORDER BY t) AS before
                FROM (SELECT team, t FROM lefts UNION ALL SELECT team, t FROM rights)
            )
        ) GROUP BY team, number
    ) AS session ON one.team = session.team AND one.t >= session.start AND one.t < session.stop
"""
PAIRS: Final = {
    How.INNER: "SELECT l.team, l.score, r.score, l.start, l.stop FROM ls l JOIN rs r ON {on}",
    How.LEFT: "SELECT l.team, l.score, r.score, l.start, l.stop FROM ls l LEFT JOIN rs r ON {on}",
    How.RIGHT: "SELECT r.team, l.score, r.score, r.start, r.stop FROM ls l RIGHT JOIN rs r ON {on}",
    How.FULL: "SELECT coalesce(l.team, r.team), l.score, r.score, coalesce(l.start, r.start), coalesce(l.stop, r.stop)"
    " FROM ls l FULL JOIN rs r ON {on}",
    How.SEMI: "SELECT l.team, l.score, NULL, l.start, l.stop FROM ls l SEMI JOIN rs r ON {on}",
    How.ANTI: "SELECT l.team, l.score, NULL, l.start, l.stop FROM ls l ANTI JOIN rs r ON {on}",
}
ON: Final = "l.team = r.team AND l.start = r.start AND l.stop = r.stop AND (l.score + r.score) % 3 > 0"
WHERE: Final = "(score + score_right) % 3 > 0"


def assigned(window: Any, side: str) -> str:
    """SQL that gives each row its windows."""
    match window:
        case Tumbling(size, offset):
            return SPANS.format(side=side, size=size.ms, every=size.ms, offset=offset.ms)
        case Sliding(size, every, offset):
            return SPANS.format(side=side, size=size.ms, every=every.ms, offset=offset.ms)
        case Cumulating(size, step, _):
            return CUMULATING.format(side=side, size=size.ms, step=step.ms)
        case Session(Duration() as gap, touching):
            return SESSIONS.format(side=side, gap=gap.ms, over=">" if touching == "merge" else ">=")
    raise AssertionError(window)


def in_seconds(window: Any) -> Any:
    """The same window, with seconds for milliseconds, so that SQL can list its starts."""
    match window:
        case Tumbling(size, offset):
            return Tumbling(Duration(size.ms // 1_000), Duration(offset.ms // 1_000))
        case Sliding(size, every, offset):
            return Sliding(Duration(size.ms // 1_000), Duration(every.ms // 1_000), Duration(offset.ms // 1_000))
        case Cumulating(size, step, _):
            return Cumulating(Duration(size.ms // 1_000), Duration(step.ms // 1_000))
        case Session(Duration() as gap, touching):
            return Session(Duration(gap.ms // 1_000), touching)
    raise AssertionError(window)


def recomputed(window: Any, how: How, batches: Batches, late: Counter[int]) -> Rows:
    """What DuckDB joins over the whole history without late rows."""
    scaled = in_seconds(window)
    with duckdb.connect() as database:
        for number, name in enumerate(("lefts", "rights")):
            kept = [row for batch in batches for row in batch[number] if row[1] not in late]
            database.execute(f"CREATE TABLE {name} (team VARCHAR, score BIGINT, t BIGINT)")
            if kept:
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", kept)
        parts = [f"{side} AS ({assigned(scaled, name)})" for side, name in (("ls", "lefts"), ("rs", "rights"))]
        found = database.execute(f"WITH {', '.join(parts)} {PAIRS[how].format(on=ON)}").fetchall()
    return Counter((team, score, other, start * 1_000, stop * 1_000) for team, score, other, start, stop in found)


def early_history(seed: int) -> list[tuple[list[Given], list[Given]]]:
    """A history without null keys, and with times above zero, as DuckDB's modulo needs."""
    shifted = history(seed, 3, 12, nulls=False)
    return [
        ([(team, score, at + 100) for team, score, at in left], [(team, score, at + 100) for team, score, at in right])
        for left, right in shifted
    ]


@pytest.mark.parametrize(("window", "how"), [*zip(WINDOWS, [*How, *How], strict=False)])
def test_the_retracted_table_is_what_duckdb_joins(window: str, how: How) -> None:
    """With enough allowed lateness no row is late."""
    for seed, trigger in ((4, None), (5, EARLY)):
        batches = early_history(seed)
        options = {"how": how, "trigger": trigger, "accumulate": "retracting", "allowed_lateness": "1h"}
        found, late = agree(stages(WINDOWS[window], where=WHERE, **options), batches)
        assert not late
        table: Rows = Counter()
        for batch in found:
            for row, many in batch.items():
                table[row[:5]] += -many if row[-1] else many
        assert min(table.values(), default=0) >= 0
        assert +table == recomputed(WINDOWS[window], how, batches, late)


@pytest.mark.parametrize(("window", "how"), [("tumbling", How.INNER), ("sliding", How.SEMI)])
def test_discarded_firings_add_up_to_what_duckdb_joins(window: str, how: How) -> None:
    for seed in (4, 5):
        batches = early_history(seed)
        options = {"how": how, "trigger": EARLY, "allowed_lateness": "1h"}
        found, late = agree(stages(WINDOWS[window], where=WHERE, **options), batches)
        table = Counter(row[:5] for batch in found for row in batch.elements())
        assert table == recomputed(WINDOWS[window], how, batches, late)


@pytest.mark.parametrize("how", [How.INNER, How.FULL, How.ANTI])
def test_the_last_accumulating_firing_is_what_duckdb_joins(how: How) -> None:
    """Late rows of this history are in the late output, and the others in the result."""
    any_late = False
    for seed in (4, 5):
        batches = early_history(seed)
        options = {"how": how, "accumulate": "accumulating", "allowed_lateness": "4s"}
        found, late = agree(stages(WINDOWS["tumbling"], where=WHERE, **options), batches)
        any_late |= bool(late)
        place = PANE.index(INDEX) + 3
        newest: dict[tuple[Any, ...], int] = {}
        for batch in found:
            for row in batch:
                window = (row[0], row[3])
                newest[window] = max(newest.get(window, 0), row[place])
        table = Counter(row[:5] for batch in found for row in batch.elements() if row[place] == newest[row[0], row[3]])
        # A firing without any row leaves what an earlier one has emitted: rows without a partner that now have one.
        meant = recomputed(WINDOWS["tumbling"], how, batches, late)
        windows = {(row[0], row[3]) for row in meant}
        assert Counter({row: many for row, many in table.items() if (row[0], row[3]) in windows}) == meant
    assert any_late
