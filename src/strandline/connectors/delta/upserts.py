"""Upsert rows by key in a Delta table: write current rows over earlier ones, and delete retracted rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

_GONE: Final = "@gone"


@dataclass(frozen=True, slots=True)
class Merge:
    """The key columns, and the window's start and end if rows have a window."""

    key: tuple[str, ...]
    window: tuple[str, str] | None = None

    def of(self, rows: pl.DataFrame, gone: pl.DataFrame) -> Callable[[Any, Any], None]:
        """Return one commit that upserts rows and deletes the retracted ones."""
        source = pl.concat(
            [rows.with_columns(pl.lit(False).alias(_GONE)), gone.with_columns(pl.lit(True).alias(_GONE))],
            how="diagonal_relaxed",
        )
        columns = [name for name in source.columns if name != _GONE]

        def act(table: Any, properties: Any) -> None:
            merge = table.merge(
                source, _same(self.key), source_alias="s", target_alias="t", commit_properties=properties
            )
            gone, values = f"s.{_quoted(_GONE)}", {_quoted(name): f"s.{_quoted(name)}" for name in columns}
            (
                merge.when_matched_delete(f"{gone}{self._of_the_same_window()}")
                .when_matched_update(values, f"NOT {gone}{self._unless_later()}")
                .when_not_matched_insert(values, f"NOT {gone}")
                .execute()
            )

        return act

    def _of_the_same_window(self) -> str:
        return "" if self.window is None or set(self.window) <= set(self.key) else f" AND {_same(self.window)}"

    def _unless_later(self) -> str:
        """If the key lacks the end of the window, do not replace the row of a later window."""
        if self.window is None or self.window[1] in self.key:
            return ""
        end = _quoted(self.window[1])
        return f" AND s.{end} >= t.{end}"


def _same(names: Sequence[str]) -> str:
    """Compare columns, nulls included. The brackets are needed: else the parser adds what follows to the right side."""
    return " AND ".join(f"(t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)})" for name in names)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
