"""Look rows up in the newest version of a Delta table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.connectors.delta.table import delta_library
from strandline.errors import LookupFailed, LookupUnavailable
from strandline.formats.lookup_files import found_rows, refuse_other_schema
from strandline.formats.lookup_rows import columns_of
from strandline.formats.secrets import Secret
from strandline.model import ddl
from strandline.model.arguments import checked


@dataclass(frozen=True, slots=True)
class DeltaLookup:
    """A Delta table and the columns that are read."""

    path: str
    columns: str
    options: tuple[tuple[str, str | Secret], ...] = ()

    @property
    def name(self) -> str:
        return f"lookup_delta({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """Leave out storage options."""
        return {"path": self.path, "columns": self.columns}

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - all columns are checked
        refuse_other_schema(f"the Delta table {self.path}", self.dataset().schema, self.table_columns)

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenDeltaLookup":
        return OpenDeltaLookup(self, (*keys, *columns))

    def dataset(self) -> Any:
        """Open the newest version."""
        library = delta_library()
        options = {name: each.reveal() if isinstance(each, Secret) else each for name, each in self.options}
        try:
            return library.DeltaTable(self.path, storage_options=options).to_pyarrow_dataset()
        except library.exceptions.TableNotFoundError:
            raise LookupFailed(f"{self.path} is no Delta table", hint="check the path") from None
        except (library.exceptions.DeltaError, OSError) as problem:
            raise unavailable(self.path, problem) from None


def unavailable(path: str, problem: Exception) -> LookupUnavailable:
    return LookupUnavailable(f"{path} cannot be read now", detail=str(problem).partition("\n")[0][:200])


@checked
def lookup_delta(path: str, columns: str, *, options: Mapping[str, str | Secret] | None = None) -> DeltaLookup:
    """Look rows up in the newest version of a Delta table: `lookup_delta("lake/users", "user_id long, name string")`.

    Secrets in the storage options are references. A request reads the files whose statistics may hold its keys.
    """
    columns_of(columns, "lookup_delta")
    return DeltaLookup(path, columns, tuple(sorted((options or {}).items())))


@dataclass(frozen=True, slots=True)
class OpenDeltaLookup:
    """The table in a worker process."""

    lookup: DeltaLookup
    names: tuple[str, ...]

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        dataset = self.lookup.dataset()
        try:
            return found_rows(dataset, keys, self.names, self.lookup.table_columns)
        except OSError as problem:
            raise unavailable(self.lookup.path, problem) from None

    def close(self) -> None:
        """Do nothing: every request opens the newest version."""
