"""Who fires in a batch, and the panes that come of it: timing, numbering, corrections."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from strandline.kernel import triggers
from strandline.kernel.blocks import END, NEW, START
from strandline.kernel.prepare import expires
from strandline.kernel.state import (
    ADDED,
    CLOSED,
    HOLD,
    SETTLED,
    SPOKEN,
    TOLD,
    TOLD_TIMING,
    keeps_told,
    parts_of,
    values_of,
)
from strandline.model.panes import Accumulation, Emit, Timing
from strandline.model.steps import WindowedStep

TIMING = "@timing"
INDEX = "@index"
NONSPECULATIVE = "@nonspeculative_index"
FIRST = "@first"
LAST = "@last"
TIMESTAMP = "@timestamp"
RETRACTION = "@retraction"

_FIRES, _EMITTED, _WAS_HELD = "@fires", "@emitted", "@was_held"


@dataclass(frozen=True, slots=True)
class Instant:
    """The two clocks of a batch: the watermark before and after it, and the processing time."""

    before: int
    after: int
    clock: int


def fire(
    windows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The panes of a batch, in order, and the windows that stay open after it."""
    tested = _verdicts(_listen(windows, ask, now), ask, now)
    return _panes(tested, keys, ask), _settle(tested, ask, now)


def deadlines(ask: WindowedStep, now: int) -> tuple[pl.Expr, pl.Expr]:
    """The earliest watermark and the earliest clock at which a window must be looked at again."""
    end = pl.col(END) - 1
    watermark = pl.when(end > now).then(end).otherwise(expires(ask))
    return watermark, pl.when(~pl.col(CLOSED)).then(triggers.clock_deadline(ask.trigger))


def _listen(windows: pl.DataFrame, ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """New elements reach the count, the hold and the trigger."""
    kept = {name: pl.col(name) for name in triggers.columns(ask.trigger)}
    heard = triggers.add(ask.trigger, kept, _moment(now))
    counted = (pl.col(NEW) > 0) & (pl.col(END) - 1 > now.before)
    return windows.with_columns(
        (pl.col(ADDED) + pl.col(NEW)).alias(ADDED),
        pl.col(HOLD).alias(_WAS_HELD),
        (pl.col(HOLD) | counted).alias(HOLD),
        *(expression.alias(name) for name, expression in heard.items()),
    )


def _verdicts(windows: pl.DataFrame, ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """Each window is tested at most once; the end of its life is not the trigger's to decide."""
    end, kept = pl.col(END) - 1, {name: pl.col(name) for name in triggers.columns(ask.trigger)}
    moment, expired = _moment(now), expires(ask) <= now.after
    crossed = (end > now.before) & (end <= now.after)
    ticked = (triggers.clock_deadline(ask.trigger) < now.clock).fill_null(False)
    tested = ~pl.col(CLOSED) & ((pl.col(NEW) > 0) | crossed | ticked | expired)
    fires = tested & (expired | triggers.should(ask.trigger, kept, moment))
    done = triggers.finished(ask.trigger, triggers.fire(ask.trigger, kept, moment))
    late = (pl.col(SETTLED) > 0) | (~pl.col(_WAS_HELD) & (end <= now.before))
    early = end > now.after
    timing = (
        pl.when(late).then(_said(Timing.LATE)).when(early).then(_said(Timing.EARLY)).otherwise(_said(Timing.ON_TIME))
    )
    judged = windows.with_columns(fires.alias(_FIRES), timing.alias(TIMING), (expired | done).alias(LAST))
    return judged.with_columns(_emitted(ask).alias(_EMITTED))


def _emitted(ask: WindowedStep) -> pl.Expr:
    speaks = pl.col(ADDED) > 0
    if ask.on_time_pane is Emit.ALWAYS:
        speaks = speaks | (pl.col(TIMING) == Timing.ON_TIME.value)
    if ask.final_pane is Emit.ALWAYS:
        speaks = speaks | pl.col(LAST)
    return pl.col(_FIRES) & speaks


def _panes(windows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The new panes, and before each of them the one it takes back."""
    spoke = windows.filter(pl.col(_EMITTED))
    settled = pl.when(pl.col(TIMING) == Timing.EARLY.value).then(-1).otherwise(pl.col(SETTLED))
    panes = spoke.select(
        *keys, START, END, *values_of(ask).values(), TIMING,
        pl.col(SPOKEN).alias(INDEX), settled.cast(pl.Int64).alias(NONSPECULATIVE),
        (pl.col(SPOKEN) == 0).alias(FIRST), LAST, (pl.col(END) - 1).alias(TIMESTAMP),
        pl.lit(False).alias(RETRACTION),
    )  # fmt: skip
    if keeps_told(ask):
        panes = pl.concat([_retractions(spoke, keys, ask), panes], how="vertical_relaxed")
    return panes.sort(*keys, START, END, INDEX, maintain_order=True)


def _retractions(spoke: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The last pane of each window that had spoken, as it was told."""
    again = spoke.filter(pl.col(SPOKEN) > 0)
    was_early = pl.col(TOLD_TIMING) == Timing.EARLY.value
    return again.select(
        *keys, START, END, *(pl.col(TOLD + name).alias(name) for name, _ in ask.aggregates),
        pl.col(TOLD_TIMING).alias(TIMING), (pl.col(SPOKEN) - 1).alias(INDEX),
        pl.when(was_early).then(-1).otherwise(pl.col(SETTLED) - 1).cast(pl.Int64).alias(NONSPECULATIVE),
        (pl.col(SPOKEN) == 1).alias(FIRST), pl.lit(False).alias(LAST), (pl.col(END) - 1).alias(TIMESTAMP),
        pl.lit(True).alias(RETRACTION),
    )  # fmt: skip


def _settle(windows: pl.DataFrame, ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """What firing leaves behind; windows at the end of their life are forgotten."""
    fires, emitted = pl.col(_FIRES), pl.col(_EMITTED)
    kept = {name: pl.col(name) for name in triggers.columns(ask.trigger)}
    fired = triggers.fire(ask.trigger, kept, _moment(now))
    after: dict[str, pl.Expr] = {
        ADDED: pl.when(fires).then(0).otherwise(pl.col(ADDED)),
        HOLD: pl.col(HOLD) & ~fires,
        SPOKEN: pl.col(SPOKEN) + emitted.cast(pl.Int64),
        SETTLED: pl.col(SETTLED) + (emitted & (pl.col(TIMING) != Timing.EARLY.value)).cast(pl.Int64),
        CLOSED: pl.col(CLOSED) | (fires & pl.col(LAST)),
    }
    after |= {name: pl.when(fires).then(fired[name]).otherwise(pl.col(name)) for name in kept}
    if ask.accumulation is Accumulation.DISCARDING:
        after |= {part.name: pl.when(fires).then(part.empty).otherwise(pl.col(part.name)) for part in parts_of(ask)}
    if keeps_told(ask):
        told = {TOLD + name: value for name, value in values_of(ask).items()} | {TOLD_TIMING: pl.col(TIMING)}
        after |= {name: pl.when(emitted).then(new).otherwise(pl.col(name)) for name, new in told.items()}
    alive = windows.filter(expires(ask) > now.after)
    return alive.with_columns(**after).drop(_FIRES, _EMITTED, _WAS_HELD, TIMING, LAST, NEW)


def _moment(now: Instant) -> triggers.Moment:
    return triggers.Moment(pl.col(NEW), now.clock, pl.col(END) - 1 <= now.after)


def _said(timing: Timing) -> pl.Expr:
    return pl.lit(timing.value)
