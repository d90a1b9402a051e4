"""Push SQL operations down to Spark, before rows cross to Python.

Spark runs the SQL operations that all paths of a source begin with. After the paths branch, Spark computes a SQL
condition as a boolean column, and Python filters on it. Filters after the event time work the same way, because rows
that they drop still advance the watermark. A selection of columns by name runs in Spark or in Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.plan.lineage import LineagePath
from strandline.plan.stages import Flagged, KeepFlagged
from strandline.plan.stateless_operations import (
    Operation,
    Select,
    Sql,
    Where,
    describe,
    in_polars,
    is_native,
    names_only,
)

_Ops = tuple[Operation | KeepFlagged, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Operations in Spark, and for each path the operations in Python before and after its event time."""

    native: tuple[Operation | Flagged, ...]
    before: tuple[_Ops, ...]
    after: tuple[_Ops, ...]


def cross(paths: Sequence[LineagePath]) -> Crossing:
    """Divide the operations on the paths of one source between Spark and Python."""
    shared = _shared(paths)
    flags = _Flags()
    native: list[Operation | Flagged] = []
    kept: list[tuple[int, Operation | KeepFlagged]] = []
    for place, operation in enumerate(paths[0].operations[:shared]):
        if isinstance(operation, Where) and any(_after_time(path, place) for path in paths):
            kept.append((place, flags.of(operation)))
            native.append(flags.made[-1])
        else:
            native.append(_with_times(operation, paths, place))
    before, after = [], []
    for path in paths:
        cut = len(path.before)
        numbered = [*kept, *_rest(path, shared, flags)]
        before.append(tuple(each for place, each in numbered if place < cut))
        after.append(tuple(each for place, each in numbered if place >= cut))
    # Flags of operations after the shared part are computed on its result.
    late = [flag for flag in flags.made if flag not in native]
    return Crossing((*native, *late), tuple(before), tuple(after))


def in_python(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return operations on the rows of a keyed step, which Python runs; raise if one is Spark SQL."""
    found: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Select) and names_only(operation):
            found.append(replace(operation, columns=in_polars(operation.columns)))
        elif is_native(operation):
            raise InvalidStep(
                f"the SQL of «{describe(operation)}» would run on the rows of a keyed step, and these are in Python",
                hint='write it in Polars, as in where(pl.col("total") > 3)',
            )
        else:
            found.append(operation)
    return tuple(found)


class _Flags:
    """Number the conditions that Spark computes as boolean columns."""

    def __init__(self) -> None:
        self.made: list[Flagged] = []

    def of(self, operation: Where) -> KeepFlagged:
        name = f"@flag{len(self.made)}"
        self.made.append(Flagged(name, operation.condition.text))
        return KeepFlagged(name)


def _shared(paths: Sequence[LineagePath]) -> int:
    """Count the native operations that all paths begin with."""
    count = 0
    for each in zip(*(path.operations for path in paths), strict=False):
        if not is_native(each[0]) or any(other != each[0] for other in each):
            break
        count += 1
    return count


def _after_time(path: LineagePath, place: int) -> bool:
    return path.time is not None and place >= len(path.before)


def _with_times(operation: Operation, paths: Sequence[LineagePath], place: int) -> Operation:
    """Add the event time column to a selection after the event time; Python still reads it."""
    if not isinstance(operation, Select) or operation.beside:
        return operation
    named = {name for name, _ in operation.columns}
    times = {s.time.column for s in paths if s.time is not None and s.time.column and _after_time(s, place)}
    return Select((*operation.columns, *((name, Sql(f"`{name}`")) for name in sorted(times - named))), beside=False)


def _rest(path: LineagePath, shared: int, flags: _Flags) -> Iterator[tuple[int, Operation | KeepFlagged]]:
    in_python: Operation | None = None
    for place, operation in enumerate(path.operations[shared:], shared):
        if not is_native(operation):
            in_python = in_python or (None if isinstance(operation, Where) else operation)
            yield place, operation
        elif isinstance(operation, Where) and in_python is None:
            yield place, flags.of(operation)
        elif isinstance(operation, Select) and names_only(operation):
            in_python = in_python or operation
            yield place, replace(operation, columns=in_polars(operation.columns))
        else:
            raise InvalidStep(
                f"the SQL of «{describe(operation)}» would run after the rows have crossed to Python",
                detail=f"it follows «{describe(in_python)}»" if in_python else "the stream branches before it",
                hint="write SQL before Polars expressions, functions and branches; or write it in Polars",
            )
