"""Joins of tables as the job's own code plays them agree with the oracle and DuckDB, on generated changelogs."""

from collections import Counter
from collections.abc import Mapping, Sequence
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
from strandline.kernel.blocks.block import AT, REASON, SIGN
from strandline.kernel.join import hash_slices, table_rows
from strandline.kernel.operators import operator_of
from strandline.kernel.state import slice_deltas
from strandline.kernel.state_export import distribute, export
from strandline.model.elements import Element, Timestamp
from strandline.model.joins import How
from strandline.model.table_join import TableJoin, table_role
from strandline.plan.compile import to_stages
from strandline.reference.table_join import TableJoinState, Times, table_join
from tests.plan.endpoints import PaperSink
from tests.properties.budget import examples
from tests.spark.by_hand import Carrier, MapState
from tests.spark.test_flows import rows, typed

EACH: Final = max(examples(100), 8)
DELAY: Final = 3

Change = tuple[str | None, int, int, int]
"""Team, score, time and sign."""
Batch = Sequence[Sequence[Change]]
Row = tuple[Any, ...]


def stages(joins: Sequence[How], **options: Any) -> Any:
    """A join whose rows do not show their time, so that equal rows may have different times."""
    tables = [
        typed(f"table {number}").event_time("at", sl.bounded(seconds=DELAY)).select("team", score=pl.col("score"))
        for number in range(len(joins) + 1)
    ]
    kept = options or {"forever": True}
    joined = sl.join_tables(*tables, how=[*joins], **kept).on("team")
    return to_stages(joined.write(PaperSink()).root, 3)


def signed(changes: Sequence[Change]) -> pl.DataFrame:
    """Rows of a source with a sign, as those of an operator have one."""
    return rows(*(each[:3] for each in changes)).with_columns(pl.Series(SIGN, [each[3] for each in changes], pl.Int64))


def scores(operator: TableJoin) -> list[str]:
    return ["score", *(f"score_{number}" for number in range(2, operator.tables + 1))]


def emitted(frame: pl.DataFrame | None, operator: TableJoin) -> Counter[Row]:
    """The rows of a batch with their retractions, none of which is of a row inserted in the same batch."""
    if frame is None:
        return Counter()
    shown = [frame[name] if name in frame.columns else [None] * frame.height for name in scores(operator)]
    found = Counter(zip(frame["retraction" if "retraction" in frame.columns else "@retraction"], frame["team"], *shown,
                        frame[AT], strict=True))  # fmt: skip
    assert not {each[1:] for each in found if each[0]} & {each[1:] for each in found if not each[0]}
    return found


def oracle(
    operator: TableJoin, state: dict[str | None, TableJoinState], batch: Batch, times: Times
) -> tuple[Counter[Row], Counter[Row], int]:
    """The rows, late rows and number of filtered rows of one batch; state changes in place."""
    elements: dict[str | None, list[Element]] = {key: [] for key in state}
    for number, changes in enumerate(batch):
        for offset, (team, score, at, sign) in enumerate(changes):
            columns = {"team": team, "score": score}
            one = Element(Timestamp(at * 1_000), team, columns, "", offset, sign < 0, input=table_role(number))
            elements.setdefault(team, []).append(one)
    found: Counter[Row] = Counter()
    late: Counter[Row] = Counter()
    filtered = 0
    roles = {role: role for role in operator.roles}
    for key, mine in elements.items():
        done = table_join(operator, key, state.get(key, TableJoinState()), mine, times, roles)
        state[key] = done.state
        found.update(
            (row.retraction, row.key, *(row.values.get(name) for name in scores(operator)), row.at.ms)
            for row in done.rows
        )
        late.update((each.element.columns["score"], str(each.reason)) for each in done.late)
        filtered += done.filtered
    return found, late, filtered


def late_rows(frame: pl.DataFrame | None) -> Counter[Row]:
    if frame is None:
        return Counter()
    names = [name for name in frame.columns if name.startswith("score")]
    return Counter(
        (next(each for each in found if each is not None), reason)
        for *found, reason in frame.select(*names, REASON).iter_rows()
    )


def moved(carrier: Carrier) -> None:
    """Put the state through an export and through another number of key groups."""
    step = carrier.stages.steps[0]
    mine = operator_of(step.operator, step.keys, step.operator_inputs)
    groups = {to: state for to, state in carrier.groups.items() if place(to)[0] == step.number}
    if not groups:
        return
    spread = distribute(export(state.held for state in groups.values()), mine, 2)
    back = distribute(export(spread.values()), mine, step.groups)
    for to in groups:
        carrier.groups[to] = MapState()
        carrier.groups[to].held = dict(back[place(to)[1]])


def agree(compiled: Any, batches: Sequence[Batch], *, moves: bool = False, seconds: int = 0) -> Counter[Row]:
    """Play a history on both; return the result after it, as the changes make it."""
    carrier = Carrier(compiled)
    operator = compiled.steps[0].operator
    state: dict[str | None, TableJoinState] = {}
    before, table = -(2**63), Counter[Row]()
    for number, batch in enumerate([*batches, [[] for _ in range(operator.tables)]]):
        clock, is_end = number * seconds * 1_000, number == len(batches)
        frames = {scan: [signed(changes)] for scan, changes in enumerate(batch) if changes}
        output = carrier.carry_frames(frames, clock, drain=is_end)[0]
        after = output.progress.watermark
        meant, late, filtered = oracle(
            operator, state, batch, Times(Timestamp(before), Timestamp(after), Timestamp(clock))
        )  # fmt: skip
        found = emitted(output.panes, operator)
        assert found == meant
        assert late_rows(output.late) == late
        assert output.counts.filtered == filtered
        (step,) = carrier.steps.values()
        assert step.output_watermark == after
        accepted = sum(len(changes) for changes in batch) - sum(late.values())
        assert sum(each.accepted for each in step.inputs.values()) == accepted
        assert sum(each.late for each in step.inputs.values()) == sum(late.values())
        for (is_retraction, *row), many in found.items():
            table[tuple(row)] += -many if is_retraction else many
        assert min(table.values(), default=0) >= 0
        before = after
        if moves and not is_end:
            moved(carrier)
        if operator.ttl is None:
            assert output.rows == sum(len(each) for known in state.values() for each in known.tables)
        elif is_end and operator.ttl_time == "event":
            assert output.rows == 0
    return +table


def history(seed: int, tables: int, keys: int, spread: int) -> list[list[list[Change]]]:
    """Insertions and retractions: of rows that exist, also at another time, of rows of the batch, and of no row."""
    chance, at = Random(seed), 0
    known: list[list[Change]] = [[] for _ in range(tables)]
    batches = []
    for _ in range(chance.randrange(1, 8)):
        at += chance.randrange(9)
        batch: list[list[Change]] = [[] for _ in range(tables)]
        for changes, rows_ in zip(batch, known, strict=True):
            for _ in range(chance.randrange(9)):
                key = chance.randrange(keys + 1)
                team = f"team {key}" if key < keys else None
                time = at + chance.randrange(-spread, spread + 1)
                if rows_ and chance.random() < 0.45:
                    row = rows_[chance.randrange(len(rows_))]
                    if chance.random() < 0.9:
                        rows_.remove(row)
                    changes.append((*row[:2], row[2] if chance.random() < 0.7 else time, -1))
                else:
                    row = (team, chance.randrange(4), time, 1)
                    rows_.append(row)
                    changes.append(row)
            chance.shuffle(changes)
        if any(batch):
            batches.append(batch)
    return batches


def final_tables(batches: Sequence[Batch], tables: int) -> list[Counter[tuple[str | None, int]]]:
    """The rows of each table after all batches; in a batch insertions come first."""
    found: list[Counter[tuple[str | None, int]]] = [Counter() for _ in range(tables)]
    for batch in batches:
        for table, changes in zip(found, batch, strict=True):
            table.update(each[:2] for each in changes if each[3] > 0)
            for each in changes:
                if each[3] < 0 and table[each[:2]] > 0:
                    table[each[:2]] -= 1
    return found


def by_duckdb(joins: Sequence[How], tables: Sequence[Mapping[tuple[str | None, int], int]]) -> Counter[Row]:
    """The join of tables as DuckDB computes it, table by table."""
    database = duckdb.connect()
    for number, table in enumerate(tables):
        database.execute(f"CREATE TABLE t{number} (team VARCHAR, s{number} BIGINT)")
        given_rows = [[*row] for row, many in table.items() for _ in range(many)]
        if given_rows:
            database.executemany(f"INSERT INTO t{number} VALUES (?, ?)", given_rows)
    query, shown = "SELECT team, s0 FROM t0", ["s0"]
    for number, how in enumerate(joins, 1):
        if how in (How.SEMI, How.ANTI):
            word = "EXISTS" if how is How.SEMI else "NOT EXISTS"
            query = f"SELECT * FROM ({query}) l WHERE {word} (FROM t{number} r WHERE r.team = l.team)"
            query = query.replace("SELECT * FROM", f"SELECT team, {', '.join(shown)} FROM", 1)
            continue
        columns = ", ".join([*(f"l.{name}" for name in shown), f"r.s{number}"])
        shown.append(f"s{number}")
        query = (
            f"SELECT coalesce(l.team, r.team) AS team, {columns} "
            f"FROM ({query}) l {how} JOIN t{number} r ON l.team = r.team"
        )
    names = [f"s{number}" if f"s{number}" in shown else "NULL" for number in range(len(tables))]
    return Counter(database.execute(f"SELECT team, {', '.join(names)} FROM ({query}) f").fetchall())


@pytest.fixture(autouse=True, params=["whole slices", "deltas"])
def _deltas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write small slices whole, as in a job, or as deltas, and split slices of more than three rows."""
    if request.param == "deltas":
        monkeypatch.setattr(hash_slices, "MOST_ROWS", 3)
        monkeypatch.setattr(table_rows, "LARGE", 1)
        monkeypatch.setattr(slice_deltas, "MERGE_FACTOR", 2)


@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, suppress_health_check=[])
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 3, 20]),
    spread=st.sampled_from([1, 8]),
    joins=st.lists(st.sampled_from(list(How)), min_size=1, max_size=3),
    moves=st.booleans(),
)
def test_the_jobs_own_code_agrees_with_the_oracle_and_the_result_with_duckdb(
    seed: int, keys: int, spread: int, joins: list[How], moves: bool
) -> None:
    batches = history(seed, len(joins) + 1, keys, spread)
    found = agree(stages(joins), batches, moves=moves)
    timeless: Counter[Row] = Counter()
    for row, many in found.items():
        timeless[row[:-1]] += many
    assert timeless == by_duckdb(joins, final_tables(batches, len(joins) + 1))


@settings(max_examples=EACH, derandomize=True, database=None, deadline=None, suppress_health_check=[])
@given(
    seed=st.integers(0, 10**9),
    keys=st.sampled_from([1, 4, 20]),
    joins=st.lists(st.sampled_from(list(How)), min_size=1, max_size=3),
    options=st.sampled_from([{"expire_after": "6s"}, {"expire_after": "15s"}, {"time_to_live": "9s"}]),
    moves=st.booleans(),
)
def test_keys_are_forgotten_as_by_the_oracle(
    seed: int, keys: int, joins: list[How], options: dict[str, str], moves: bool
) -> None:
    agree(stages(joins, **options), history(seed, len(joins) + 1, keys, 6), moves=moves, seconds=4)


def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key has one hash here."""
    monkeypatch.setattr(table_rows, "hashed", lambda frame: np.zeros(frame.height, np.uint64))
    for seed, how in enumerate((How.INNER, How.FULL, How.ANTI)):
        batches = history(seed, 3, 5, 4)
        agree(stages([how, How.FULL]), batches)
        agree(stages([How.LEFT, how], expire_after="8s"), batches)


def test_the_split_into_batches_does_not_change_the_result() -> None:
    for seed in range(3):
        insertions = [
            [[each for each in changes if each[3] > 0] for changes in batch] for batch in history(seed, 3, 3, 6)
        ]
        together = [[each for batch in insertions for each in batch[number]] for number in range(3)]
        joins = [How.LEFT, How.FULL]
        assert agree(stages(joins), insertions) == agree(stages(joins), [together])


def test_the_changelog_of_the_last_elements_keeps_the_result_current() -> None:
    """Two tables of last elements by id, joined by another column: updates move rows between keys."""
    for seed, how in enumerate(How):
        chance = Random(seed)
        tables = [
            typed(name).event_time("at", sl.monotone()).deduplicate(by="score", keep="last", forever=True)
            for name in ("left", "right")
        ]
        pipeline = tables[0].join(tables[1]).on("team").as_tables(how=how, forever=True)
        compiled = to_stages(pipeline.write(PaperSink()).root, 3)
        join = next(each.operator for each in compiled.steps if isinstance(each.operator, TableJoin))
        carrier, table = Carrier(compiled), Counter[Row]()
        latest: list[dict[int, str | None]] = [{}, {}]
        for at in range(1, 5):
            given_rows = [[(chance.choice(["a", "b", None]), chance.randrange(5), at) for _ in range(4)] for _ in "lr"]
            for known, mine in zip(latest, given_rows, strict=True):
                known |= {score: team for team, score, _ in mine}
            (output,) = carrier.carry_frames({n: [rows(*mine)] for n, mine in enumerate(given_rows)}, 0)
            assert output.late is None
            for row in [] if output.panes is None else output.panes.iter_rows(named=True):
                shown = (row["team"], row["score"], row.get("score_right"))
                table[shown] += -1 if row["@retraction"] else 1
        finals = [Counter({(team, score): 1 for score, team in known.items()}) for known in latest]
        assert +table == by_duckdb([how], finals)
        assert join.one_row is False


def test_a_restored_join_may_begin_to_forget_keys() -> None:
    """Keys that were kept forever have changed last when their latest row did."""
    forever, forgetting = stages([How.LEFT]), stages([How.LEFT], expire_after="10s")
    carrier = Carrier(forever)
    first = [("a", 1, 100, 1), ("b", 2, 105, 1), (None, 3, 101, 1)]
    carrier.carry_frames({0: [signed(first)], 1: [signed([("a", 4, 103, 1)])]}, 0)
    step = forgetting.steps[0]
    now = operator_of(step.operator, step.keys, step.operator_inputs)
    held = distribute(export(state.held for state in carrier.groups.values()), now, step.groups)
    again = Carrier(forgetting, combines=False)
    for to, state in carrier.groups.items():
        again.groups[to] = MapState()
        again.groups[to].held = dict(held[place(to)[1]])
        assert state.held
    # The watermark passes 113s: key a and the null key are forgotten, key b is not.
    again.carry_frames({0: [signed([("c", 5, 117, 1)])], 1: [signed([("c", 6, 117, 1)])]}, 0)
    (output,) = again.carry_frames({1: [signed([("a", 7, 120, 1), ("b", 8, 120, 1)])]}, 0)
    found = emitted(output.panes, step.operator)
    assert sorted((row[0], row[1], row[2], row[3]) for row in found) == [(False, "b", 2, 8), (True, "b", 2, None)]


def test_a_table_is_joined_with_itself() -> None:
    scores_ = typed("scores").event_time("at", sl.bounded(seconds=DELAY))
    joined = scores_.join(scores_).on("team").as_tables(forever=True)
    carrier = Carrier(to_stages(joined.write(PaperSink()).root, 3))
    (output,) = carrier.carry_frames({0: [rows(("a", 1, 1), ("a", 2, 2), ("b", 3, 3))]}, 0)
    assert output.panes is not None
    found = sorted(output.panes.select("team", "score", "score_right").rows())
    assert found == [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 2, 2), ("b", 3, 3)]
