"""Parse the steps of a story: input, time and expectations."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.errors import InvalidStory, InvalidTime
from strandline.model.elements import BEGINNING, Element, Timestamp, instant
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.parse_lookups import tables_of
from strandline.plan.stories.parse_rows import DEAD, LATE, Readers, rows_of
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
    SetTables,
    Step,
)

WORDS: Final = (
    "input", "watermark", "idle", "active", "finish", "clock", "expect", "expect_some", "ignore", "expect_late",
    "expect_dead", "expect_watermark", "expect_idle", "expect_state", "expect_output_watermark", "restart", "drain",
    "table",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an output's rows; with `only` it has no others."""

    readers: Readers
    only: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the steps of a story can name: inputs, operators, and outputs with the fields of their rows."""

    inputs: tuple[str, ...]
    operators: tuple[str, ...]
    outputs: Mapping[str, Fields]
    element: Callable[[str, Written], Element]
    """Parses an element of an input."""
    names_inputs: bool = False
    """Whether a story writes the input of its elements."""


def steps_of(given: Written, known: Known) -> tuple[Step, ...]:
    """Parse the steps of a story, in order. Elements get an offset in their partition."""
    offsets = Counter[tuple[str, str]]()
    return tuple(_step(each, known, offsets) for each in given.items("a list of steps"))


def _step(given: Written, known: Known, offsets: Counter[tuple[str, str]]) -> Step:
    word, of, _ = given.variant(dict.fromkeys(WORDS, ()), "a step")
    if word == "input":
        return Step(Feed(tuple(_elements(of, known, offsets))), given.place)
    if word.startswith("expect"):
        return Step(_expectation(word, of, known), given.place)
    return Step(_move(word, of, known), given.place)


def _elements(of: Written, known: Known, offsets: Counter[tuple[str, str]]) -> Iterator[Element]:
    """Parse a batch: a list of elements, or a list for each input by name."""
    if isinstance(of.value, dict) and known.names_inputs:
        lists = of.members_among(known.inputs, "the elements of each input")
    elif len(known.inputs) == 1:
        lists = {known.inputs[0]: of}
    else:
        raise of.error(f"a list of elements for each input: {', '.join(known.inputs)}")
    for name, elements in lists.items():
        for each in elements.items("a list of elements"):
            element = known.element(name, each)
            offsets[name, element.partition] += 1
            yield replace(
                element, input=name if known.names_inputs else "", offset=offsets[name, element.partition] - 1
            )


def keyed_element(given: Written) -> Element:
    """Parse an element with `at` and `key`. An unreadable time is the beginning of time, which makes a dead letter."""
    columns = {name: each.plain() for name, each in given.members("an element, as a mapping").items()}
    partition = partition_of(given, columns)
    return Element(at=_at(columns.pop("at", None)), key=columns.pop("key", "k"), columns=columns, partition=partition)


def partition_of(given: Written, columns: dict[str, Any]) -> str:
    """Take the partition out of the columns of an element."""
    partition = columns.pop("partition", "")
    if not isinstance(partition, str):
        raise given.error("the name of a partition as a string")
    return partition


def _at(given: Any) -> Timestamp:
    try:
        return instant(given)
    except InvalidTime:
        return BEGINNING


def _move(word: str, of: Written, known: Known) -> Move | Ignore:
    match word:
        case "watermark":
            return _watermark(of, known)
        case "clock":
            return MoveClock(of.time())
        case "table":
            return SetTables(tables_of(of))
        case "idle":
            return FallIdle(*_place(of, known))
        case "active":
            return ReturnActive(*_place(of, known))
        case "finish":
            return Finish(*_place(of, known))
    if of.value is not None:
        raise of.error(f"nothing after {word!r}")
    bare: dict[str, Move | Ignore] = {"restart": Restart(), "drain": Drain(), "ignore": Ignore()}
    return bare[word]


def _watermark(of: Written, known: Known) -> MoveWatermark:
    if not isinstance(of.value, dict):
        return MoveWatermark(of.time())
    named = of.members_among(("of", "partition", "to"), "a watermark of one input or partition")
    to = of.required(named, "to").time()
    if "partition" not in named:
        name, source = _named(of.required(named, "of"), known)
        return MoveWatermark(to, name, source)
    source = None if "of" not in named else _named(named["of"], known)[1]
    return MoveWatermark(to, named["partition"].text("the name of a partition"), source)


def _place(of: Written, known: Known) -> tuple[str | None, str | None]:
    """Parse the partition and the input that a step names: `p0`, `orders` or `{of: orders, partition: p0}`."""
    if not isinstance(of.value, dict):
        return _named(of, known)
    named = of.members_among(("of", "partition"), "a partition of an input")
    source = _named(of.required(named, "of"), known)[1]
    return (named["partition"].text("the name of a partition") if "partition" in named else None), source


def _named(of: Written, known: Known) -> tuple[str | None, str | None]:
    """Return a name as that of an input, if the story names its inputs, else of a partition."""
    name = of.text("the name of a partition or input")
    if not known.names_inputs or (len(known.inputs) == 1 and name not in known.inputs):
        return name, None
    if name not in known.inputs:
        names = ", ".join(known.inputs)
        raise InvalidStory(f"{of.place}: no input is called {name!r}", detail=f"there are {names}")
    return None, name


def _expectation(word: str, of: Written, known: Known) -> Expectation:
    match word:
        case "expect" | "expect_some":
            output, rows = _of_output(of, known)
            fields = known.outputs[output]
            found = rows_of(rows, fields.readers, only=fields.only, what="a pane")
            return ExpectPanes(found, word == "expect_some", output)
        case "expect_late":
            output, rows = _of_output(of, known)
            return ExpectLate(rows_of(rows, LATE), output)
        case "expect_dead":
            output, rows = _of_output(of, known)
            return ExpectDead(rows_of(rows, DEAD), output)
        case "expect_idle":
            return ExpectIdle(of.boolean())
        case "expect_state":
            return _state(of, known)
        case _:
            name, at = None, of
            if isinstance(of.value, dict):
                named = of.members_among(("of", "at"), "the watermark of one operator")
                name, at = _operator(of.required(named, "of"), known), of.required(named, "at")
            reached = BEGINNING if at.value == "none" else at.time()
            return ExpectWatermark(reached, word == "expect_output_watermark", name)


def _of_output(of: Written, known: Known) -> tuple[str, Written]:
    """Return the output that an expectation names, and its rows; the only output needs no name."""
    first = next(iter(known.outputs))
    if not isinstance(of.value, dict):
        if len(known.outputs) > 1:
            raise of.error(f"the rows of one output by its name: {', '.join(known.outputs)}")
        return first, of
    named = of.members_among([*known.outputs], "an expectation")
    if len(named) != 1:
        raise of.error("the rows of one output; write one step for each")
    ((output, rows),) = named.items()
    return output, rows


def _state(of: Written, known: Known) -> ExpectState:
    if of.value == "empty":
        return ExpectState(0)
    if not isinstance(of.value, dict):
        raise of.error("'empty', or {rows: the number of windows held}")
    named = of.members_among(("rows", "of"), "a state")
    name = _operator(named["of"], known) if "of" in named else None
    return ExpectState(of.required(named, "rows").integer(), name)


def _operator(of: Written, known: Known) -> str:
    return of.one_of(known.operators)
