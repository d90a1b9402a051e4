"""Parse the rows that a story expects: panes, changelog rows, late rows and dead letters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from strandline.model.panes import LateReason
from strandline.model.windows import EVERYTHING, Window
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.story_steps import Row

Readers = Mapping[str, Callable[[Written], Any]]


def rows_of(given: Written, readers: Readers, *, only: bool = False, what: str = "a row") -> tuple[Row, ...]:
    """Parse expected rows. A field without a reader is a column, compared as it is; with `only` there is none."""

    def members(row: Written) -> Mapping[str, Written]:
        return row.members_among(readers, what) if only else row.members()

    return tuple(
        Row({name: readers.get(name, Written.plain)(each) for name, each in members(row).items()}, row.place)
        for row in given.items("a list of rows")
    )


def window_bounds(given: Written) -> Window:
    """Parse the bounds of a window, or `global`."""
    if given.value == "global":
        return EVERYTHING
    bounds = given.items("a window: [start, end], or global")
    if len(bounds) != 2:
        raise given.error("a window: [start, end], or global")
    return Window(bounds[0].time(), bounds[1].time())


def word_of(words: Iterable[str]) -> Callable[[Written], str]:
    """Return a reader of one of these words."""
    known = [*words]
    return lambda given: given.one_of(known)


def _optional(read: Callable[[Written], Any]) -> Callable[[Written], Any]:
    return lambda given: None if given.value is None else read(given)


ROW: Final[Readers] = {"at": Written.time, "retraction": Written.boolean}
LATE: Final[Readers] = {
    "at": Written.time,
    "reason": word_of(LateReason),
    "window": _optional(window_bounds),
    "watermark": Written.time,
    "partial": Written.boolean,
}
DEAD: Final[Readers] = {"at": _optional(Written.time), "reason": Written.text}
