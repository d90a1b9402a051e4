"""What Spark does itself, and what is left for Python: SQL runs before the crossing, on rows that all routes share.

Where the ways of a source's rows part, a condition in SQL is still computed natively, as a column beside the row, and
the row is kept or not in Python. So it is after the event time too: what a filter drops there still moves time on.
Columns picked by their names alone are picked wherever the rows are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.plan.lineage import Strand
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
    """What runs natively for all, and for each strand what is done in Python before and after its time is known."""

    native: tuple[Operation | Flagged, ...]
    before: tuple[_Ops, ...]
    after: tuple[_Ops, ...]


def cross(strands: Sequence[Strand]) -> Crossing:
    """Divides the operations of the strands of one source."""
    shared = _shared(strands)
    flags = _Flags()
    native: list[Operation | Flagged] = []
    kept: list[tuple[int, KeepFlagged]] = []
    for place, operation in enumerate(strands[0].operations[:shared]):
        if isinstance(operation, Where) and any(_after_time(strand, place) for strand in strands):
            kept.append((place, flags.of(operation)))
            native.append(flags.made[-1])
        else:
            native.append(_with_times(operation, strands, place))
    before, after = [], []
    for strand in strands:
        cut = len(strand.before)
        mine = [(place, each) for place, each in kept] + [*_rest(strand, shared, flags)]
        before.append(tuple(each for place, each in mine if place < cut))
        after.append(tuple(each for place, each in mine if place >= cut))
    # Flags made for what comes after the shared part are computed on its result.
    late = [flag for flag in flags.made if flag not in native]
    return Crossing((*native, *late), tuple(before), tuple(after))


class _Flags:
    """The conditions computed as columns; the same condition at the same point is one column."""

    def __init__(self) -> None:
        self.made: list[Flagged] = []

    def of(self, operation: Where) -> KeepFlagged:
        name = f"@flag{len(self.made)}"
        self.made.append(Flagged(name, operation.condition.text))
        return KeepFlagged(name)


def _shared(strands: Sequence[Strand]) -> int:
    """How many operations all strands begin with that Spark can run."""
    count = 0
    for each in zip(*(strand.operations for strand in strands), strict=False):
        if not is_native(each[0]) or any(other != each[0] for other in each):
            break
        count += 1
    return count


def _after_time(strand: Strand, place: int) -> bool:
    return strand.time is not None and place >= len(strand.before)


def _with_times(operation: Operation, strands: Sequence[Strand], place: int) -> Operation:
    """A selection after the event time leaves the column that time is read from."""
    if not isinstance(operation, Select) or operation.beside:
        return operation
    named = {name for name, _ in operation.columns}
    times = {s.time.column for s in strands if s.time is not None and s.time.column and _after_time(s, place)}
    return Select((*operation.columns, *((name, Sql(f"`{name}`")) for name in sorted(times - named))), beside=False)


def _rest(strand: Strand, shared: int, flags: _Flags) -> Iterator[tuple[int, Operation | KeepFlagged]]:
    changed: Operation | None = None
    for place, operation in enumerate(strand.operations[shared:], shared):
        if not is_native(operation):
            changed = changed or (None if isinstance(operation, Where) else operation)
            yield place, operation
        elif isinstance(operation, Where) and changed is None:
            yield place, flags.of(operation)
        elif isinstance(operation, Select) and names_only(operation):
            changed = changed or operation
            yield place, replace(operation, columns=in_polars(operation.columns))
        else:
            raise InvalidStep(
                f"the SQL of «{describe(operation)}» would run after the rows have crossed to Python",
                detail=f"before it stands «{describe(changed)}»" if changed else "the stream has branched before it",
                hint="write SQL before Polars expressions, functions and branches; or write it in Polars",
            )
