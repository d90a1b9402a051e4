"""Cache answers of a lookup table in columns, by key. Age is measured by the clock of the batches."""

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from strandline.kernel.join.lookup_join import FOUND, answer_schema, key_columns
from strandline.kernel.stateless_steps import PROBLEM
from strandline.model.lookup_join import LookupJoin

_AT: Final = "@at"


@dataclass(slots=True)
class AnswerCache:
    """The answers of one table in one process. The oldest are removed when there are too many."""

    join: LookupJoin
    _answers: pl.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self._answers = pl.DataFrame(schema={**answer_schema(self.join), _AT: pl.Int64})

    @property
    def rows(self) -> int:
        return self._answers.height

    def get(self, keys: pl.DataFrame, clock: int) -> pl.DataFrame:
        """Return the cached answers for keys that are young enough at this clock."""
        limits = self.join.limits
        if self._answers.is_empty():
            return self._answers.drop(_AT)
        age = pl.lit(clock) - pl.col(_AT)
        most = pl.when(pl.col(FOUND)).then(limits.cache_for.ms).otherwise(limits.cache_missing_for.ms)
        known = keys.join(self._answers, on=key_columns(self.join), how="inner", maintain_order="left")
        return known.filter((age >= 0) & (age < most)).drop(_AT)

    def put(self, answers: pl.DataFrame, clock: int) -> None:
        """Cache answers, in place of older ones for the same keys. Problems are not cached."""
        limits, keys = self.join.limits, key_columns(self.join)
        kept = pl.col(FOUND) if limits.cache_missing_for.ms == 0 else pl.lit(value=True)
        new = answers.filter(pl.col(PROBLEM).is_null() & kept).with_columns(pl.lit(clock, pl.Int64).alias(_AT))
        if new.is_empty():
            return
        old = self._answers.join(new, on=keys, how="anti", maintain_order="left")
        # New answers are at the end, so the oldest are at the beginning.
        self._answers = pl.concat([old, new]).tail(limits.cache_rows)
