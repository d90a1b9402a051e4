"""Compare the rows that reach an upsert sink with its key: which rows replace each other there."""

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.plan.endpoints import UpsertKey, upsert_key_of
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode, Root, Write, outputs_of
from strandline.plan.refinement.row_trace import WINDOW, RowTrace, trace


@dataclass(frozen=True, slots=True)
class Upserted:
    """Rows of one keyed operator that a sink writes by key."""

    write: Write
    upsert: UpsertKey
    origin: KeyedNode
    rows: RowTrace

    @property
    def has_windows(self) -> bool:
        return bool(self.origin.plan.declared)

    @property
    def has_default_key(self) -> bool:
        return not self.upsert.columns

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns of the sink's key, by public names."""
        if self.upsert.columns:
            return self.upsert.columns
        keys = tuple(name for name in self.origin.keys if (name, name) in self.rows.copies)
        return (*keys, *(WINDOW if self.has_windows else ()))

    @property
    def missing_keys(self) -> tuple[str, ...]:
        """Return the operator's key columns that the sink's key does not contain."""
        return tuple(key for key in self.origin.keys if not set(self.rows.names_of(key)) & set(self.key))

    @property
    def window_columns(self) -> tuple[str, ...]:
        """Return the bounds of the window that the sink's key contains: the start, the end, both or none."""
        own = {name for key in self.origin.keys for name in self.rows.names_of(key)}
        # A bound has a trailing _ at the sink if a column of the user has its name.
        found = {name.rstrip("_") for name in self.key if name not in own}
        copied = {of for name, of in self.rows.copies if name in self.key}
        return tuple(name for name in WINDOW if name in found | copied) if self.has_windows else ()

    @property
    def changing_columns(self) -> tuple[str, ...]:
        """Return the columns of the sink's key that may differ between rows of one key and window."""
        bounds = {name for name in self.key if name.rstrip("_") in WINDOW} if self.has_windows else set[str]()
        return tuple(name for name in self.key if name not in self.rows.fixed | bounds)


def upserted(root: Root) -> Iterator[Upserted]:
    """Yield the rows of every keyed operator that a sink writes by key."""
    for write in outputs_of(root):
        upsert = upsert_key_of(write.sink)
        if upsert is None:
            continue
        for path in paths_to(write.of):
            if isinstance(path.origin, KeyedNode):
                yield Upserted(write, upsert, path.origin, trace(path, path.origin))
