"""Compare the output of a player with the rows that a story expects, and describe the difference."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import InvalidTime
from strandline.model.elements import Timestamp, instant
from strandline.model.panes import DeadLetter, Late, Pane
from strandline.model.panes import Row as ChangelogRow
from strandline.model.windows import EVERYTHING, Window
from strandline.plan.stories.story_steps import Row
from strandline.reference.values import Rank, rank

Fields = Mapping[str, Any]

_SEARCHED: Final = 10_000
"""Dead ends after which the search for a matching order gives up. Rows that name key and window cause none."""
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference: a summary, the expected and the actual rows with unmatched ones marked, and remarks."""

    summary: str
    expected: tuple[str, ...]
    got: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def pane_fields(pane: Pane) -> Fields:
    """Return the fields of a pane as a story writes them."""
    return {
        "key": pane.key,
        "window": pane.window,
        **pane.values,
        "timing": str(pane.timing),
        "index": pane.index,
        "nonspeculative_index": pane.nonspeculative_index,
        "first": pane.is_first,
        "last": pane.is_last,
        "timestamp": pane.timestamp,
        "retraction": pane.retraction,
    }


def row_fields(row: ChangelogRow) -> Fields:
    """Return the fields of a changelog row as a story writes them."""
    return {"at": row.at, "key": row.key, **row.values, "retraction": row.retraction}


def late_fields(late: Late) -> Fields:
    """Return the fields of a late row as a story writes them."""
    element = late.element
    fields = {
        "at": element.at,
        "key": element.key,
        **element.columns,
        "reason": str(late.reason),
        "window": late.window,
    }
    return {**fields, "watermark": late.watermark, "partial": late.partial, "partition": element.partition}


def dead_fields(letter: DeadLetter) -> Fields:
    """Return the fields of a dead letter as a story writes them."""
    return {**letter.columns, "reason": str(letter.reason)}


def panes_differ(
    rows: Sequence[Row], panes: Sequence[Pane], multisets: Collection[str], *, some: bool
) -> Difference | None:
    """Compare expected and actual panes; None if they match. Order counts only within one key and window."""
    got = [pane_fields(pane) for pane in panes]
    queues: dict[tuple[Rank, Window], list[int]] = {}
    for place, pane in enumerate(panes):
        queues.setdefault((rank(pane.key), pane.window), []).append(place)
    fits = _fitting(rows, got, multisets)
    if (some or len(rows) == len(got)) and _can_pair(fits) and _Search(fits, [*queues.values()], some=some).succeeds():
        return None
    return _difference("pane", rows, got, multisets, some=some)


def rows_differ(what: str, rows: Sequence[Row], got: Sequence[Fields], *, some: bool = False) -> Difference | None:
    """Compare expected and actual rows in any order; None if they match. `some` allows other rows."""
    fits = _fitting(rows, got, ())
    if (some or len(rows) == len(got)) and _can_pair(fits):
        return None
    return _difference(what, rows, got, (), some=some)


def _fitting(rows: Sequence[Row], got: Sequence[Fields], multisets: Collection[str]) -> list[list[int]]:
    """Return, for each expected row, the positions of actual rows that match it."""
    by_key: dict[Rank, list[int]] = {}
    for place, one in enumerate(got):
        by_key.setdefault(rank(one.get("key")), []).append(place)
    candidates = [by_key.get(rank(row.fields["key"]), []) if "key" in row.fields else range(len(got)) for row in rows]
    return [
        [place for place in places if _fits(row, got[place], multisets)]
        for row, places in zip(rows, candidates, strict=True)
    ]


def _can_pair(fits: Sequence[Sequence[int]]) -> bool:
    """Tell whether every expected row can be paired with its own actual row (bipartite matching)."""
    owner: dict[int, int] = {}

    def finds(row: int, tried: set[int]) -> bool:
        for one in fits[row]:
            if one not in tried:
                tried.add(one)
                if one not in owner or finds(owner[one], tried):
                    owner[one] = row
                    return True
        return False

    return all(finds(row, set()) for row in range(len(fits)))


class _Search:
    """Search for an order: each expected row takes the next pane of a key and window; `some` may skip panes."""

    def __init__(self, fits: Sequence[Sequence[int]], queues: Sequence[Sequence[int]], *, some: bool) -> None:
        self._fits = fits
        self._some = some
        self._spot = {one: (queue, place) for queue, ones in enumerate(queues) for place, one in enumerate(ones)}
        self._wanted = Counter(one for row in fits for one in row)
        self._hopeless = set[tuple[int, ...]]()

    def succeeds(self) -> bool:
        return self._match((0,) * len({queue for queue, _ in self._spot.values()}), 0)

    def _match(self, taken: tuple[int, ...], row: int) -> bool:
        while row < len(self._fits):
            # Panes that few other rows match are tried first, so that rows with few fields rarely take the wrong one.
            choices = sorted(self._choices(taken, row), key=lambda choice: self._wanted[choice])
            if len(choices) != 1:
                return any(self._reaches_end(self._taking(taken, choice), row + 1) for choice in choices)
            taken, row = self._taking(taken, choices[0]), row + 1
        return True

    def _reaches_end(self, taken: tuple[int, ...], row: int) -> bool:
        if taken in self._hopeless or len(self._hopeless) > _SEARCHED:
            return False
        if self._match(taken, row):
            return True
        self._hopeless.add(taken)
        return False

    def _choices(self, taken: tuple[int, ...], row: int) -> Iterator[int]:
        for one in self._fits[row]:
            queue, place = self._spot[one]
            if place == taken[queue] or (self._some and place > taken[queue]):
                yield one

    def _taking(self, taken: tuple[int, ...], one: int) -> tuple[int, ...]:
        queue, place = self._spot[one]
        return (*taken[:queue], place + 1, *taken[queue + 1 :])


def _fits(row: Row, got: Fields, multisets: Collection[str]) -> bool:
    """Tell whether an actual row matches an expected row; only the fields that it names are compared."""
    return next(_misfits(row, got, multisets), None) is None


def _misfits(row: Row, got: Fields, multisets: Collection[str]) -> Iterator[str]:
    """Yield the fields in which an actual row differs from an expected row."""
    for name, value in row.fields.items():
        if name not in got or not _same(value, got[name], as_multiset=name in multisets):
            yield name


def _same(expected: Any, got: Any, *, as_multiset: bool = False) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(got, Timestamp) and isinstance(expected, str | int):
        return _is_time(expected, got)
    if isinstance(expected, int | float) and isinstance(got, int | float):
        both_nan = math.isnan(expected) and math.isnan(got)
        return both_nan or expected == got or math.isclose(expected, got, rel_tol=_TOLERANCE)
    if isinstance(expected, list) and isinstance(got, list | tuple):
        if len(expected) != len(got):
            return False
        return _same_multiset(expected, got) if as_multiset else all(map(_same, expected, got))
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(_same(value, got[name]) for name, value in expected.items())
    return bool(expected == got)


def _is_time(expected: str | int, got: Timestamp) -> bool:
    """Tell whether a story's notation of a time, such as 26s, means this time."""
    try:
        return instant(expected) == got
    except InvalidTime:
        return False


def _same_multiset(expected: Sequence[Any], got: Sequence[Any]) -> bool:
    left = list(got)
    for value in expected:
        place = next((i for i, other in enumerate(left) if _same(value, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _difference(
    what: str, rows: Sequence[Row], got: Sequence[Fields], multisets: Collection[str], *, some: bool
) -> Difference:
    """Mark unmatched rows on both sides, and compare each with the most similar one, field by field."""
    missing, extra = list(range(len(rows))), list(range(len(got)))
    for row in range(len(rows)):
        found = next((one for one in extra if _fits(rows[row], got[one], multisets)), None)
        if found is not None:
            missing.remove(row)
            extra.remove(found)
    remarks = list(_remarks(rows, got, missing, extra, multisets))
    unwanted = [] if some else extra
    if not missing and not unwanted:
        remarks = ["all rows match, but in another order within one key and window"]
    return Difference(
        f"expected {_many(len(rows), what)}{' among others' if some else ''}, got {_many(len(got), what)}",
        tuple(("- " if i in missing else "  ") + shown(row.fields) for i, row in enumerate(rows)),
        tuple(("+ " if i in unwanted else "  ") + shown(_brief(one)) for i, one in enumerate(got)),
        tuple(remarks),
    )


def _remarks(
    rows: Sequence[Row], got: Sequence[Fields], missing: list[int], extra: list[int], multisets: Collection[str]
) -> Iterator[str]:
    left = list(extra)
    for row in missing:
        if not left:
            return
        nearest = min(left, key=lambda one: len([*_misfits(rows[row], got[one], multisets)]))
        left.remove(nearest)
        for name in _misfits(rows[row], got[nearest], multisets):
            actual = text_of(got[nearest][name]) if name in got[nearest] else "missing"
            yield f"{shown(rows[row].fields)}: {name} is {actual}, expected {text_of(rows[row].fields[name])}"


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


_NOT_SHOWN: Final = ("nonspeculative_index", "first", "timestamp", "watermark")
_DEFAULTS: Final = {"last": False, "retraction": False, "partial": False, "partition": ""}


def _brief(fields: Fields) -> Fields:
    """Return the fields of an actual row without defaults and details."""
    return {
        name: value
        for name, value in fields.items()
        if name not in _NOT_SHOWN and not (name in _DEFAULTS and value == _DEFAULTS[name])
    }


def shown(fields: Fields) -> str:
    """Write fields as a story does."""
    return "{" + ", ".join(f"{name}: {text_of(value)}" for name, value in fields.items()) + "}"


def text_of(value: Any) -> str:
    """Write a value as a story does."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return value if value and value.replace("_", "").isalnum() and not value[0].isdigit() else repr(value)
        case Timestamp():
            return str(value)
        case Window():
            return "global" if value == EVERYTHING else f"[{value.start}, {value.end}]"
        case list() | tuple():
            return f"[{', '.join(map(text_of, value))}]"
        case Mapping():
            return shown(value)
    return repr(value)
