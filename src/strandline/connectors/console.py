"""Print batches to the console: a table per batch on a terminal, a line per row elsewhere."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

import polars as pl
from rich.console import Console as Screen
from rich.table import Table
from rich.text import Text

from strandline.errors import InvalidStep, SinkError
from strandline.formats.row_files import as_texts, encode_file, to_public_columns
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Output
from strandline.kernel.window.panes import RETRACTION
from strandline.model.arguments import checked
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.unledgered_sink import Unledgered
from strandline.redaction import escaped

_STYLES: Final = {"panes": "", "late": "yellow", "dead": "red"}


@dataclass(frozen=True, slots=True)
class Console:
    """The console as a sink, and how many rows of a batch it shows."""

    rows: int = 20

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InvalidStep(f"rows is {self.rows}", hint="use 1 or more")

    @property
    def name(self) -> str:
        return "console()"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset({Delivery.AT_LEAST_ONCE})

    @property
    def takes_retractions(self) -> bool:
        return True

    @property
    def definition(self) -> Mapping[str, Any]:
        """Empty: how many rows are shown does not matter to a checkpoint."""
        return {}

    def open(self, output: Deliver) -> "OpenConsole":  # noqa: ARG002 - the console treats all outputs alike
        return OpenConsole(self.rows, sys.stdout)


@checked
def console(*, rows: int = 20) -> Console:
    """Print the output: `write(console(), delivery="at_least_once")`.

    On a terminal it prints a table per batch with the first `rows` of each; elsewhere every row as a line of JSON after
    the word panes, late or dead.
    """
    return Console(rows)


class OpenConsole(Unledgered):
    """An open console."""

    name = "console()"

    def __init__(self, rows: int, out: IO[str]) -> None:
        self._rows, self._out = rows, out

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        frames = {"panes": output.panes, "late": output.late, "dead": output.dead}
        try:
            for part, frame in frames.items():
                if frame is not None and frame.height:
                    self._show(part, frame, entry.batch)
            self._out.flush()
        except OSError as problem:
            raise SinkError("the console's output cannot be written", detail=str(problem)) from None
        return Written()

    def _show(self, part: str, frame: pl.DataFrame, batch: int) -> None:
        if not self._out.isatty():
            for line in encode_file(to_public_columns(frame, batch), "jsonl").decode().splitlines():
                self._out.write(f"{part} {line}\n")
            return
        order = [name for name in (START, END) if name in frame.columns]
        head = frame.sort(order, maintain_order=True).head(self._rows) if order else frame.head(self._rows)
        shown = to_public_columns(head, batch)
        table = Table(title=_title(part, frame, batch, shown.height), title_justify="left", header_style="dim")
        for name, kind in shown.schema.items():
            table.add_column(Text(escaped(name)), justify="right" if kind.is_numeric() else "left")
        taken = head[RETRACTION] if RETRACTION in head.columns else [False] * head.height
        for row, taken_back in zip(as_texts(shown).iter_rows(), taken, strict=True):
            # Text objects, not markup: an event's values may look like markup.
            cells = [Text("" if cell is None else escaped(str(cell))) for cell in row]
            table.add_row(*cells, style="dim strike" if taken_back else _STYLES[part])
        Screen(file=self._out).print(table)


def _title(part: str, frame: pl.DataFrame, batch: int, shown: int) -> str:
    more = f", the first {shown}" if shown < frame.height else ""
    return f"batch {batch}: {frame.height} {part}{more}"
