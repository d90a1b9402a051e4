"""A trigger in columns: its state is columns of the open windows, its verdict an expression over them.

Each node of the tree keeps its columns under a path of its own. The functions below turn expressions for those columns
into expressions for what they become, so that one batch plays the whole tree for all windows in one pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import Unsupported
from strandline.model.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Never,
    Repeatedly,
    Trigger,
)

State = Mapping[str, pl.Expr]
"""For each of a trigger's columns, the expression that gives its value at some moment of the batch."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger can see of a batch, window by window: new elements, the clock, whether the end is reached."""

    new: pl.Expr
    clock: int
    end_reached: pl.Expr


@dataclass(frozen=True, slots=True)
class Kept:
    """A column a trigger keeps: its type, and its value when nothing has happened."""

    kind: pl.DataType
    initial: Any


def columns(trigger: Trigger, path: str = "@trigger") -> dict[str, Kept]:
    """The columns that a trigger keeps."""
    match trigger:
        case AfterWatermark(early, late):
            parts = [(part, f"{path}.{name}") for name, part in (("early", early), ("late", late)) if part]
            inner = {name: kept for part, where in parts for name, kept in columns(part, where).items()}
            return {f"{path}.ended": Kept(pl.Boolean(), False)} | inner
        case AfterCount():
            return {f"{path}.count": Kept(pl.Int64(), 0), f"{path}.finished": Kept(pl.Boolean(), False)}
        case AfterProcessingTime():
            return {f"{path}.target": Kept(pl.Int64(), None), f"{path}.finished": Kept(pl.Boolean(), False)}
        case Never():
            return {}
        case Repeatedly(of):
            return columns(of, path)
    raise Unsupported(f"the kernel does not play {type(trigger).__name__} yet", hint="use after_watermark(…)")


def add(trigger: Trigger, state: State, moment: Moment, path: str = "@trigger") -> State:
    """The columns after the batch's elements have reached the parts that listen."""
    match trigger:
        case AfterWatermark(early, late):
            early_on = add(early, state, moment, f"{path}.early") if early else state
            late_on = add(late, state, moment, f"{path}.late") if late else state
            return _choose(state[f"{path}.ended"], late_on, early_on)
        case AfterCount():
            return {**state, f"{path}.count": state[f"{path}.count"] + moment.new}
        case AfterProcessingTime():
            target = state[f"{path}.target"]
            fresh = pl.when(target.is_null() & (moment.new > 0)).then(pl.lit(_target(trigger, moment.clock), pl.Int64))
            return {**state, f"{path}.target": fresh.otherwise(target)}
        case Repeatedly(of):
            return add(of, state, moment, path)
        case _:
            return state


def should(trigger: Trigger, state: State, moment: Moment, path: str = "@trigger") -> pl.Expr:
    """Whether a window's trigger fires, if it is tested now."""
    match trigger:
        case AfterWatermark(early, late):
            before = should(early, state, moment, f"{path}.early") if early else pl.lit(False)
            after = should(late, state, moment, f"{path}.late") if late else pl.lit(False)
            return pl.when(state[f"{path}.ended"]).then(after).otherwise(before | moment.end_reached)
        case AfterCount(n):
            return ~state[f"{path}.finished"] & (state[f"{path}.count"] >= n)
        case AfterProcessingTime():
            due = (state[f"{path}.target"] < moment.clock).fill_null(False)
            return ~state[f"{path}.finished"] & due
        case Repeatedly(of):
            return should(of, state, moment, path)
        case _:
            return pl.lit(False)


def fire(trigger: Trigger, state: State, moment: Moment, path: str = "@trigger") -> State:
    """The columns after the trigger has fired."""
    match trigger:
        case AfterWatermark(early, late):
            before = _again(early, state, moment, f"{path}.early")
            # The early part is over: a target left in it would make the window due in every batch from here on.
            over = _clear(late, _clear(early, state, f"{path}.early"), f"{path}.late")
            at_end = {**over, f"{path}.ended": pl.lit(True)}
            after = _again(late, state, moment, f"{path}.late")
            return _choose(state[f"{path}.ended"], after, _choose(moment.end_reached, at_end, before))
        case AfterCount():
            return {**state, f"{path}.count": pl.lit(0, pl.Int64), f"{path}.finished": pl.lit(True)}
        case AfterProcessingTime():
            return {**state, f"{path}.target": pl.lit(None, pl.Int64), f"{path}.finished": pl.lit(True)}
        case Repeatedly(of):
            fired = fire(of, state, moment, path)
            return _choose(finished(of, fired, path), _clear(of, fired, path), fired)
        case _:
            return state


def finished(trigger: Trigger, state: State, path: str = "@trigger") -> pl.Expr:
    """Whether the trigger will never speak again."""
    match trigger:
        case AfterWatermark(_, late):
            return state[f"{path}.ended"] if late is None else pl.lit(False)
        case AfterCount() | AfterProcessingTime():
            return state[f"{path}.finished"]
        case _:
            return pl.lit(False)


def clock_deadline(trigger: Trigger, path: str = "@trigger") -> pl.Expr:
    """The earliest clock at which a window's trigger could fire without a new element; null if there is none."""
    targets = [pl.col(name) for name in columns(trigger, path) if name.endswith(".target")]
    return pl.min_horizontal(targets) if targets else pl.lit(None, pl.Int64)


def _again(trigger: Trigger | None, state: State, moment: Moment, path: str) -> State:
    return state if trigger is None else _clear(trigger, fire(trigger, state, moment, path), path)


def _clear(trigger: Trigger | None, state: State, path: str) -> State:
    if trigger is None:
        return state
    return {**state, **{name: pl.lit(kept.initial, kept.kind) for name, kept in columns(trigger, path).items()}}


def _choose(condition: pl.Expr, yes: State, no: State) -> State:
    """Column by column one of two states; what is the same in both costs nothing."""
    return {
        name: yes[name] if yes[name] is no[name] else pl.when(condition).then(yes[name]).otherwise(no[name])
        for name in yes
    }


def _target(trigger: AfterProcessingTime, clock: int) -> int:
    target = clock + trigger.delay.ms
    if trigger.aligned is None:
        return target
    return target + (trigger.offset.ms - target) % trigger.aligned.ms
