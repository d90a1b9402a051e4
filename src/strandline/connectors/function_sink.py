"""A function of yours as a sink: it gets each batch as a frame, with the batch's identity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import InvalidStep, SinkError, SinkUnavailable
from strandline.formats.row_files import laid_out
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.unledgered_sink import Unledgered


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Which rows these are. The same batch may come again, after a crash, and then has the same identity."""

    lineage: str
    batch: int
    part: str
    """panes, late or dead"""
    digest: str
    """Of the range that the batch was made from."""

    @property
    def key(self) -> str:
        """One text for all of it, by which a call that comes again can be known."""
        return f"{self.lineage}/{self.batch}/{self.part}"


Taker = Callable[[pl.DataFrame, BatchPart], object]


@dataclass(frozen=True, slots=True)
class Call:
    """A function, and what it is called."""

    function: Taker
    name: str

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset({Delivery.AT_LEAST_ONCE})

    @property
    def takes_retractions(self) -> bool:
        return True

    @property
    def definition(self) -> Mapping[str, Any]:
        return {"name": self.name}

    def open(self, output: Deliver) -> "OpenCall":  # noqa: ARG002 - all are alike to it
        return OpenCall(self)


def call(function: Taker, *, name: str | None = None) -> Call:
    """Calls a function on the driver with each batch: `write(call(send), delivery="at_least_once")`.

    `send(rows, batch)` gets a Polars frame, and who the rows are: `batch.part` is panes, late or dead, and `batch.key`
    is the same when a batch comes again. It has taken them when it returns. If it raises a ConnectionError or a
    TimeoutError, the batch waits and is tried again; any other exception ends the job.
    """
    if not callable(function):
        raise InvalidStep(f"{function!r} cannot be called", hint="give a function of a frame and a batch")
    return Call(function, name or f"call({getattr(function, '__qualname__', type(function).__qualname__)})")


class OpenCall(Unledgered):
    """A function at work."""

    def __init__(self, ask: Call) -> None:
        self.name, self._function = ask.name, ask.function

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        for part, frame in (("panes", output.panes), ("late", output.late), ("dead", output.dead)):
            if frame is not None and frame.height:
                self._tell(laid_out(frame, entry.batch), BatchPart(entry.lineage, entry.batch, part, entry.digest))
                crash_point("C9")
        crash_point("C10")
        return Written()

    def _tell(self, rows: pl.DataFrame, batch: BatchPart) -> None:
        try:
            self._function(rows, batch)
        except (ConnectionError, TimeoutError) as problem:
            raise SinkUnavailable(f"{self.name} could not take a batch", detail=_said(problem)) from problem
        except SinkError:
            raise
        except Exception as problem:
            raise SinkError(
                f"{self.name} raised on {batch.part} of batch {batch.batch}",
                detail=_said(problem),
                hint="mend the function; the next start tries the batch again",
            ) from problem


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:400]
