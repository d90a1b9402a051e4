"""Call a user function with each batch as a frame, and with the batch's identity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import SinkError, SinkUnavailable
from strandline.formats.row_files import to_public_columns
from strandline.kernel.output import Output
from strandline.model.arguments import checked
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.unledgered_sink import Unledgered


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Identity of the rows; a batch that is repeated after a crash has the same identity."""

    lineage: str
    batch: int
    part: str
    """panes, late or dead"""
    digest: str
    """The digest of the source range that the batch was made from."""

    @property
    def key(self) -> str:
        """The identity as one text, by which a repeated call is recognized."""
        return f"{self.lineage}/{self.batch}/{self.part}"


BatchFunction = Callable[[pl.DataFrame, BatchPart], object]


@dataclass(frozen=True, slots=True)
class Call:
    """A user function as a sink, and its name."""

    function: BatchFunction
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

    def open(self, output: Deliver) -> "OpenCall":  # noqa: ARG002 - it treats all outputs alike
        return OpenCall(self)


@checked
def call(function: BatchFunction, *, name: str | None = None) -> Call:
    """Call a function on the driver with each batch: `write(call(send), delivery="at_least_once")`.

    `send(rows, batch)` gets a Polars frame and the batch's identity: `batch.part` is panes, late or dead, and
    `batch.key` is the same when a batch is repeated. The batch is delivered when the function returns. After a
    ConnectionError or a TimeoutError the batch is retried; any other exception ends the job.
    """
    return Call(function, name or f"call({getattr(function, '__qualname__', type(function).__qualname__)})")


class OpenCall(Unledgered):
    """An open function sink."""

    def __init__(self, definition: Call) -> None:
        self.name, self._function = definition.name, definition.function

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        for part, frame in (("panes", output.panes), ("late", output.late), ("dead", output.dead)):
            if frame is not None and frame.height:
                self._call(
                    to_public_columns(frame, entry.batch), BatchPart(entry.lineage, entry.batch, part, entry.digest)
                )
                crash_point("C9")
        crash_point("C10")
        return Written()

    def _call(self, rows: pl.DataFrame, batch: BatchPart) -> None:
        try:
            self._function(rows, batch)
        except (ConnectionError, TimeoutError) as problem:
            raise SinkUnavailable(f"{self.name} could not take a batch", detail=_error_text(problem)) from problem
        except SinkError:
            raise
        except Exception as problem:
            raise SinkError(
                f"{self.name} raised on {batch.part} of batch {batch.batch}",
                detail=_error_text(problem),
                hint="fix the function; the next start retries the batch",
            ) from problem


def _error_text(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:400]
