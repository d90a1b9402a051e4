"""Parse the steps of a story: input, time and expectations."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from strandline.errors import InvalidTime
from strandline.model.elements import BEGINNING, Element, Timestamp, instant
from strandline.model.panes import LateReason, Timing
from strandline.model.windows import EVERYTHING, Window
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.story_steps import (
    Drain,
    Expectation,
    ExpectDead,
    ExpectIdle,
    ExpectLate,
    ExpectPanes,
    ExpectState,
    ExpectWatermark,
    FallIdle,
    Feed,
    Finish,
    Ignore,
    Move,
    MoveClock,
    MoveWatermark,
    Restart,
    ReturnActive,
    Row,
    Step,
)

WORDS: Final = (
    "input", "watermark", "idle", "active", "finish", "clock", "expect", "expect_some", "ignore", "expect_late",
    "expect_dead", "expect_watermark", "expect_idle", "expect_state", "expect_output_watermark", "restart", "drain",
)  # fmt: skip

Readers = Mapping[str, Callable[[Written], Any]]


def steps_of(given: Written, aggregates: Collection[str], *, has_windows: bool = True) -> tuple[Step, ...]:
    """Parse the steps of a story, in order. Elements get an offset in their partition."""
    offsets = Counter[str]()
    fields = {**_PANE, **dict.fromkeys(aggregates, Written.plain)} if has_windows else None
    return tuple(_step(each, fields, offsets) for each in given.items("a list of steps"))


def _step(given: Written, fields: Readers | None, offsets: Counter[str]) -> Step:
    word, of, _ = given.variant(dict.fromkeys(WORDS, ()), "a step")
    if word == "input":
        elements = [_element(each, offsets) for each in of.items("a list of elements")]
        return Step(Feed(tuple(elements)), given.place)
    if word in ("expect", "expect_some"):
        if fields is None:
            rows = _rows(of, Written.members, _ROW)
        else:
            rows = _rows(of, lambda row: row.members_among(fields, "a pane"), fields)
        return Step(ExpectPanes(rows, some=word == "expect_some"), given.place)
    return Step(_expectation(word, of) if word.startswith("expect") else _move(word, of), given.place)


def _element(given: Written, offsets: Counter[str]) -> Element:
    """Parse an element. A missing or unreadable time is the beginning of time, which makes it a dead letter."""
    columns = {name: each.plain() for name, each in given.members("an element, as a mapping").items()}
    partition = columns.pop("partition", "")
    if not isinstance(partition, str):
        raise given.error("the name of a partition as a string")
    offsets[partition] += 1
    return Element(
        at=_at(columns.pop("at", None)),
        key=columns.pop("key", "k"),
        columns=columns,
        partition=partition,
        offset=offsets[partition] - 1,
    )


def _at(given: Any) -> Timestamp:
    try:
        return instant(given)
    except InvalidTime:
        return BEGINNING


def _move(word: str, of: Written) -> Move | Ignore:
    match word:
        case "watermark" if isinstance(of.value, dict):
            named = of.members_among(("of", "to"), "a watermark of one partition")
            return MoveWatermark(of.required(named, "to").time(), of.required(named, "of").text())
        case "watermark":
            return MoveWatermark(of.time())
        case "clock":
            return MoveClock(of.time())
        case "idle":
            return FallIdle(of.text("the name of a partition or input"))
        case "active":
            return ReturnActive(of.text("the name of a partition or input"))
        case "finish":
            return Finish(of.text("the name of a partition or input"))
    if of.value is not None:
        raise of.error(f"nothing after {word!r}")
    bare: dict[str, Move | Ignore] = {"restart": Restart(), "drain": Drain(), "ignore": Ignore()}
    return bare[word]


def _expectation(word: str, of: Written) -> Expectation:
    match word:
        case "expect_late":
            return ExpectLate(_rows(of, Written.members, _LATE))
        case "expect_dead":
            return ExpectDead(_rows(of, Written.members, _DEAD))
        case "expect_idle":
            return ExpectIdle(of.boolean())
        case "expect_state":
            return ExpectState(0 if of.value == "empty" else _state_rows(of))
        case _:
            at = BEGINNING if of.value == "none" else of.time()
            return ExpectWatermark(at, of_output=word == "expect_output_watermark")


def _state_rows(of: Written) -> int:
    if not isinstance(of.value, dict):
        raise of.error("'empty', or {rows: the number of windows held}")
    return of.required(of.members_among(("rows",), "a state"), "rows").integer()


def _rows(given: Written, members: Callable[[Written], Mapping[str, Written]], readers: Readers) -> tuple[Row, ...]:
    """Parse expected rows. A field without a reader is a column and is compared as it is."""
    return tuple(
        Row({name: readers.get(name, Written.plain)(each) for name, each in members(row).items()}, row.place)
        for row in given.items("a list of rows")
    )


def _window(given: Written) -> Window:
    if given.value == "global":
        return EVERYTHING
    bounds = given.items("a window: [start, end], or global")
    if len(bounds) != 2:
        raise given.error("a window: [start, end], or global")
    return Window(bounds[0].time(), bounds[1].time())


def _optional(read: Callable[[Written], Any]) -> Callable[[Written], Any]:
    return lambda given: None if given.value is None else read(given)


def _word(words: Iterable[str]) -> Callable[[Written], str]:
    known = [*words]
    return lambda given: given.one_of(known)


_PANE: Final[Readers] = {
    "key": Written.plain,
    "window": _window,
    "timing": _word(Timing),
    "index": Written.integer,
    "nonspeculative_index": Written.integer,
    "first": Written.boolean,
    "last": Written.boolean,
    "timestamp": Written.time,
    "retraction": Written.boolean,
}
_ROW: Final[Readers] = {"at": Written.time, "retraction": Written.boolean}
_LATE: Final[Readers] = {
    "at": Written.time,
    "reason": _word(LateReason),
    "window": _optional(_window),
    "watermark": Written.time,
    "partial": Written.boolean,
}
_DEAD: Final[Readers] = {"at": _optional(Written.time), "reason": Written.text}
