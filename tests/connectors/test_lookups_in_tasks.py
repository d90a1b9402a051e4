"""How a task asks a lookup table: distinct keys once, in bounded requests, cached, pinned, again after a failure."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import LookupFailed, LookupUnavailable, RunError
from strandline.execution.batch import Batch
from strandline.execution.lookups import lookups
from strandline.execution.lookups.cache import AnswerCache
from strandline.execution.lookups.lookups import Lookups
from strandline.execution.lookups.pins import forget
from strandline.execution.lookups.requests import RateLimit, Requests
from strandline.formats.lookup_rows import typed_rows
from strandline.kernel.blocks.block import OFFSET, PARTITION, REASON
from strandline.kernel.join.lookup_join import FOUND, failed_answers
from strandline.kernel.stateless_steps import PROBLEM, Passed
from strandline.model.elements import Duration
from strandline.model.lookup_join import LookupJoin, LookupLimits, Missing, OnFailure
from strandline.ports.sinks import Stamp

COLUMNS = "user long, city string"
CITIES = {1: "Rome", 2: "Oslo", 3: "Bern", 4: None}


@dataclass
class Table:
    """A table that counts what it is asked, and fails as often as it is told to."""

    cities: dict[int, str | None] = field(default_factory=lambda: dict(CITIES))
    asked: list[list[int]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        self.asked.append(keys["user"].to_list())
        self.meanwhile()
        if self.failures:
            raise self.failures.pop(0)
        rows = [(key, self.cities[key]) for key in keys["user"] if key in self.cities]
        return pl.DataFrame(rows, schema={"user": pl.Int64, "city": pl.String}, orient="row")


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def _no_open_tables() -> Iterator[None]:
    lookups._open.clear()
    yield
    for each in lookups._open.values():
        each.requests.close()
    lookups._open.clear()


def join_with(table: Table, missing: Missing = Missing.PAD, *, limits: Any = None, **options: Any) -> LookupJoin:
    found = sl.lookup_function(table.find, COLUMNS)
    return LookupJoin(
        found,
        (("user", "user"),),
        (("city", "city", "string"),),
        missing,
        limits=LookupLimits(**limits or {}),
        **options,
    )


def rows(*users: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {PARTITION: "p", OFFSET: range(len(users)), "user": users},
        schema={PARTITION: pl.String, OFFSET: pl.Int64, "user": pl.Int64},
    )


def task(clock: int = 0, *, batch: int = 0, pins: Path | None = None, name: str = "0.0") -> Lookups:
    facts = Batch(clock, stamps=(Stamp("job", 1, batch),), pins=str(pins or ""))
    return Lookups(facts, name, "route", clock)


def enriched(join: LookupJoin, *users: int | None, at: Lookups | None = None) -> Passed:
    return (at or task()).enrich(rows(*users), join, 0)


def cities(passed: Passed) -> list[tuple[int | None, str | None]]:
    return passed.rows.select("user", "city").rows()


def test_distinct_keys_are_asked_once_and_rows_keep_their_order(table: Table) -> None:
    passed = enriched(join_with(table), 2, 1, 2, None, 9, 4, 1)
    assert table.asked == [[2, 1, 9, 4]]
    assert cities(passed) == [
        (2, "Oslo"), (1, "Rome"), (2, "Oslo"), (None, None), (9, None), (4, None), (1, "Rome"),
    ]  # fmt: skip
    assert (passed.unmatched, passed.filtered, passed.failed) == (2, 0, None)
    assert passed.rows.columns == [PARTITION, OFFSET, "user", "city"]


def test_rows_in_are_joined_padded_dropped_or_dead(table: Table) -> None:
    table.failures = [LookupFailed("no")]
    limits = {"keys_per_request": 1, "attempts": 1, "concurrency": 1}
    passed = enriched(join_with(table, Missing.DROP, on_failure=OnFailure.DEAD_LETTER, limits=limits), None, 1, 2)
    assert passed.failed is not None
    assert passed.rows.height + passed.filtered + passed.failed.height == 3
    assert passed.failed[REASON].to_list() == ["lookup_failed"] * 2
    # The second request was not sent: the table has just failed.
    assert table.asked == [[1]]


def test_requests_are_bounded_in_keys_and_in_number_at_a_time(table: Table) -> None:
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2, timeout=10)

    def meanwhile() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()
        with lock:
            running -= 1

    table.meanwhile = meanwhile
    enriched(join_with(table, limits={"keys_per_request": 5, "concurrency": 2}), *range(20))
    assert sorted(len(each) for each in table.asked) == [5, 5, 5, 5]
    assert most == 2


def test_answers_are_cached_as_long_as_asked_and_missing_keys_as_long_as_those(table: Table) -> None:
    limits = {"cache_for": Duration(1000), "cache_missing_for": Duration(100)}
    join = join_with(table, limits=limits)
    enriched(join, 1, 9, at=task(0))
    table.cities[1] = "Paris"
    assert cities(enriched(join, 1, 9, at=task(99))) == [(1, "Rome"), (9, None)]
    assert table.asked == [[1, 9]]
    enriched(join, 1, 9, at=task(100))
    assert table.asked[1:] == [[9]]
    assert cities(enriched(join, 1, at=task(1000))) == [(1, "Paris")]


def test_without_a_cache_every_batch_asks(table: Table) -> None:
    join = join_with(table)
    for _ in range(2):
        enriched(join, 1)
    assert table.asked == [[1], [1]]


def test_all_routes_of_a_task_get_the_same_answers(table: Table) -> None:
    join, at = join_with(table), task()
    first = enriched(join, 1, at=at)
    table.cities[1] = "Paris"
    assert cities(enriched(join, 1, 2, at=replace(at, route="another"))) == [*cities(first), (2, "Oslo")]
    assert table.asked == [[1], [2]]


def test_the_oldest_answers_leave_a_full_cache(table: Table) -> None:
    join = join_with(table, limits={"cache_for": Duration(1000), "cache_rows": 2})
    cache = AnswerCache(join)
    for clock, key in enumerate((1, 2, 3)):
        keys = pl.DataFrame({"@k0": [key]})
        cache.put(
            failed_answers(keys, "", join).with_columns(
                pl.lit(None, pl.String).alias(PROBLEM), pl.lit(True).alias(FOUND)
            ),
            clock,
        )
    assert cache.rows == 2
    assert cache.get(pl.DataFrame({"@k0": [1, 2, 3]}), 3)["@k0"].to_list() == [2, 3]


def test_a_request_is_tried_again_with_growing_pauses_and_then_waits_or_fails(table: Table) -> None:
    pauses: list[float] = []
    keys = pl.DataFrame({"@k0": [1]})

    def requests(join: LookupJoin) -> Requests:
        return Requests(join, join.table.open(("user",), ("city",)), None, lambda: 0.0, pauses.append)  # type: ignore[attr-defined]

    table.failures = [TimeoutError("late"), ConnectionError("away")]
    assert requests(join_with(table)).answers(keys)["@v0"].to_list() == ["Rome"]
    assert pauses == [0.2, 0.4]
    table.failures = [ConnectionError("away")] * 3
    with pytest.raises(LookupUnavailable, match="away"):
        requests(join_with(table)).answers(keys)
    table.failures = [ConnectionError("away")] * 3
    (problem,) = requests(join_with(table, on_failure=OnFailure.DEAD_LETTER)).answers(keys)[PROBLEM]
    assert "away" in problem


def test_a_function_that_raises_is_not_tried_again_and_its_error_is_shown(table: Table) -> None:
    table.failures = [ValueError("no such thing")]
    with pytest.raises(LookupUnavailable, match="ValueError: no such thing"):
        enriched(join_with(table), 1)
    assert table.asked == [[1]]


def test_requests_begin_at_most_so_often() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limit = RateLimit(4, lambda: now[0], sleep)
    for _ in range(3):
        limit.wait()
    now[0] += 10
    limit.wait()
    assert slept == [0.25, 0.25]


def test_a_repeated_batch_gets_the_pinned_answers_from_any_task(table: Table, tmp_path: Path) -> None:
    join = join_with(table, pin=True)
    enriched(join, 1, 9, at=task(batch=7, pins=tmp_path))
    table.cities |= {1: "Paris", 9: "Lima"}
    lookups._open.clear()
    assert cities(enriched(join, 9, 1, at=task(batch=7, pins=tmp_path))) == [(9, None), (1, "Rome")]
    assert cities(enriched(join, 1, 2, at=task(batch=7, pins=tmp_path, name="0.1"))) == [(1, "Rome"), (2, "Oslo")]
    table.cities[2] = "Kyiv"
    assert cities(enriched(join, 2, at=task(batch=7, pins=tmp_path, name="0.1"))) == [(2, "Oslo")]
    assert cities(enriched(join, 1, at=task(batch=8, pins=tmp_path))) == [(1, "Paris")]
    forget(tmp_path, 8)
    assert [each.name for each in tmp_path.iterdir()] == ["8"]


def test_pinned_failures_are_repeated_too(table: Table, tmp_path: Path) -> None:
    join = join_with(table, pin=True, on_failure=OnFailure.DEAD_LETTER, limits={"attempts": 1})
    table.failures = [ConnectionError("away")]
    first = enriched(join, 1, at=task(pins=tmp_path))
    second = enriched(join, 1, at=task(pins=tmp_path))
    assert first.failed is not None
    assert second.failed is not None
    assert first.failed.equals(second.failed)


def test_pinned_answers_need_a_job(table: Table) -> None:
    with pytest.raises(RunError, match="need a job's folder"):
        enriched(join_with(table, pin=True), 1)


def test_several_rows_for_a_key_are_no_answer(table: Table) -> None:
    def twice(keys: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([table.find(keys), table.find(keys)])

    join = replace(join_with(table), table=sl.lookup_function(twice, COLUMNS))
    passed = enriched(join, 1, 9)
    assert cities(passed) == [(9, None)]
    assert passed.failed is not None
    assert passed.failed[PROBLEM].to_list() == ["the table has several rows for this key"]


def test_keys_of_another_type_are_set_aside_with_both_types(table: Table) -> None:
    given = rows(1).with_columns(pl.col("user").cast(pl.String))
    passed = task().enrich(given, join_with(table), 0)
    assert passed.rows.is_empty()
    assert passed.rows.columns == [*given.columns, "city"]
    assert passed.failed is not None
    assert "the keys 'user' and 'user' have different types" in passed.failed[PROBLEM][0]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("long", 5, "five"), ("int", 7, 2**40), ("string", "a", 5), ("double", "1.5", "x"), ("boolean", 1, "maybe"),
        ("date", "2026-05-01", "May"), ("timestamp", "2026-05-01 10:00:00", 7), ("decimal(5, 2)", "1.25", "1.234"),
        ("binary", b"x", 5), ("timestamp_ntz", "2026-05-01T10:00:00", "2026-05-01T10:00:00Z"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named_and_the_other_rows_stay(kind: str, good: object, bad: object) -> None:
    made = typed_rows({"a": kind}, [(good,), (bad,), (None,)])
    assert made["a"].null_count() == 2
    assert made[PROBLEM].to_list() == [
        None,
        f"the table's column 'a' has a {type(bad).__name__} that is no {kind}",
        None,
    ]
