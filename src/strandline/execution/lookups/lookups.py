"""Enrich the rows of a task: find the answers for their keys, and join them.

The distinct keys of a task's rows are looked up once. An answer comes from the batch's pinned answers, from the cache
of the process, or from the table, in this order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep, LookupUnavailable, RunError
from strandline.execution.batch import Batch
from strandline.execution.lookups.cache import AnswerCache
from strandline.execution.lookups.pins import pin, pinned
from strandline.execution.lookups.requests import Requests
from strandline.kernel.blocks.block import REASON
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.join.lookup_join import (
    answer_schema,
    answers_of,
    failed_answers,
    join_answers,
    key_columns,
    keys_of,
)
from strandline.kernel.stateless_steps import EXCEPTION, LOOKUP_FAILED, PROBLEM, Passed
from strandline.model.lookup_join import LookupJoin, OnFailure
from strandline.plan.nodes import to_plain
from strandline.ports.lookups import CheckedLookup

GivenRows = Sequence[Mapping[str, Any]] | None


@dataclass(slots=True)
class _Open:
    """A table that this process has open, with its cache."""

    requests: Requests
    cache: AnswerCache


_open: Final[dict[str, _Open]] = {}
"""By job, place in its plan, and definition: tasks that follow each other in a worker share a table and its cache."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups of one task on one route."""

    batch: Batch
    task: str
    route: str
    clock: int = 0
    answered: dict[LookupJoin, pl.DataFrame] = field(default_factory=dict)
    """Answers of this task, so that all its routes get the same ones."""
    used: list[_Open] = field(default_factory=list)
    """Tables that are closed with the task, because they belong to no job."""

    def enrich(self, rows: pl.DataFrame, join: LookupJoin, position: int) -> Passed:
        """Run a lookup join on rows; `position` is its number among the operations of the route."""
        if rows.is_empty():
            return join_answers(rows, pl.DataFrame(schema=answer_schema(join)), join)
        try:
            keys = keys_of(rows, join)
        except InvalidStep as problem:
            named = {PROBLEM: str(problem), EXCEPTION: "InvalidStep", REASON: LOOKUP_FAILED}
            failed = rows.with_columns(pl.lit(value).alias(name) for name, value in named.items())
            empty = rows.clear()
            return Passed(join_answers(empty, pl.DataFrame(schema=answer_schema(join)), join).rows, failed)
        columns, known = key_columns(join), self.answered.get(join)
        rest = keys if known is None else keys.join(known, on=columns, how="anti", maintain_order="left")
        if known is None or rest.height:
            answers = self._answers(rest, join, f"{self.route}.{position}")
            known = answers if known is None else pl.concat([known, answers]).unique(columns, maintain_order=True)
            self.answered[join] = known
        return join_answers(rows, known, join)

    def _answers(self, keys: pl.DataFrame, join: LookupJoin, place: str) -> pl.DataFrame:
        if join.table.name in self.batch.tables:
            return _given(keys, self.batch.tables[join.table.name], join)
        lookup = f"{place} {json.dumps(to_plain(join), sort_keys=True)}"
        if not join.pin:
            return self._current(keys, join, lookup)
        if not self.batch.pins or not self.batch.stamps:
            raise RunError("pinned answers need a job's folder", hint="leave pin out, or run the pipeline as a job")
        folder = Path(self.batch.pins) / str(self.batch.stamps[0].batch)
        known = pinned(folder, lookup, self.task, join)
        columns = key_columns(join)
        rest = keys.join(known, on=columns, how="anti", maintain_order="left")
        if rest.is_empty():
            return known
        current = self._current(rest, join, lookup)
        pin(folder, lookup, self.task, current)
        return pl.concat([known, current])

    def _current(self, keys: pl.DataFrame, join: LookupJoin, lookup: str) -> pl.DataFrame:
        """Return answers from the cache, and the others from the table."""
        table = self._table(join, lookup)
        cached = table.cache.get(keys, self.clock)
        rest = keys.join(cached, on=key_columns(join), how="anti", maintain_order="left") if cached.height else keys
        if rest.is_empty():
            return cached
        asked = table.requests.answers(rest)
        table.cache.put(asked, self.clock)
        return pl.concat([cached, asked])

    def _table(self, join: LookupJoin, lookup: str) -> _Open:
        # Without a job there is no name by which two queries of one process differ.
        job = self.batch.stamps[0].lineage if self.batch.stamps else ""
        found = _open.get(f"{job} {lookup}") if job else None
        if found is None:
            if not isinstance(join.table, CheckedLookup):
                raise InvalidStep(f"{join.table.name} cannot be opened", hint="stories give its rows: table: …")
            opened = join.table.open(join.table_keys, join.value_names)
            found = _Open(Requests(join, opened, join.table.most_keys), AnswerCache(join))
            if job:
                _open[f"{job} {lookup}"] = found
            else:
                self.used.append(found)
        return found

    def close(self) -> None:
        """Close the tables that no later task uses."""
        while self.used:
            self.used.pop().requests.close()


def _given(keys: pl.DataFrame, rows: GivenRows, join: LookupJoin) -> pl.DataFrame:
    """Answer from rows that came with the batch, as stories give them."""
    if rows is None:
        if join.on_failure is OnFailure.WAIT:
            raise LookupUnavailable(f"{join.table.name} does not answer")
        return failed_answers(keys, f"{join.table.name} does not answer", join)
    kinds = {name: to_polars(kind) for name, kind in join.table.table_columns.items()}
    try:
        table = pl.DataFrame([[row.get(name) for name in kinds] for row in rows], schema=kinds, orient="row")
    except (TypeError, pl.exceptions.PolarsError) as problem:
        detail = str(problem).partition("\n")[0]
        raise InvalidStep(f"the rows given for {join.table.name} do not fit its columns", detail=detail) from None
    names = dict(zip(join.table_keys, key_columns(join), strict=True))
    wanted = table.join(keys.rename({own: name for name, own in names.items()}), on=[*names], how="semi")
    return answers_of(keys, wanted, join)
