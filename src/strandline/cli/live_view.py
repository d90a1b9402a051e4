"""Show a running job in the terminal: watermark and clock, panes as they are emitted, and a count of all events."""

import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from strandline.cli.terminal import cell, printable
from strandline.kernel.blocks.block import END, OWN, START
from strandline.kernel.blocks.python_values import python_rows
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.kernel.window.panes import INDEX, RETRACTION, TIMING
from strandline.observe.number_format import conserved, duration
from strandline.spark.delivery.deliver import Delivered

COLOURS: Final = {"early": "cyan", "on_time": "green", "late": "yellow"}
_SHOWN: Final = 14
_COLUMNS: Final = 6
_MAX_ROWS: Final = 200
"""Rows printed of one batch, at most: a terminal is not a sink."""
_WIDTH: Final = 60


class View(Protocol):
    """Show the batches of a job."""

    def say(self, text: str) -> None: ...

    def delivered(self, batch: Delivered) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """Print lines of text, for logs and pipes."""

    def __init__(self, console: Console, title: str = "strandline") -> None:
        self._console, self._title = console, title
        self._counts = Counts()

    def say(self, text: str) -> None:
        self._console.print(
            printable(text, keep_lines=True), highlight=False, soft_wrap=True, markup=False, emoji=False
        )

    def delivered(self, batch: Delivered) -> None:
        self._counts += batch.output.counts
        progress = batch.output.progress
        times = f"watermark {_at(progress.watermark)}, clock {_at(progress.clock)}"
        self.say(f"batch {batch.batch}: {times}; {conserved(self._counts)}")
        for pane in _panes(batch):
            values = ", ".join(f"{name} {value}" for name, value in _user_columns(pane).items())
            if START not in pane:
                self.say(f"  {printable(values)}")
                continue
            verb = "retracts" if pane[RETRACTION] else "emits"
            window = f"[{_at(pane[START])}, {_at(pane[END])})"
            self.say(f"  {window} {verb} {printable(values)}; {pane[TIMING]}, pane {pane[INDEX]}")

    def close(self) -> None:
        pass


class LiveView:
    """Redraw a panel as the job proceeds."""

    def __init__(self, console: Console, title: str = "strandline") -> None:
        self._title = title
        self._panes: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
        self._counts, self._progress, self._batch = Counts(), Progress(), -1
        self._started: int | None = None
        self._note = ""
        self._live = Live(self._draw(), console=console, refresh_per_second=8, get_renderable=self._draw)
        self._live.start()

    def say(self, text: str) -> None:
        self._note = text

    def delivered(self, batch: Delivered) -> None:
        self._batch, self._progress = batch.batch, batch.output.progress
        self._counts += batch.output.counts
        if self._started is None and batch.output.counts.read:
            self._started = self._progress.clock
        self._panes.extend(_panes(batch))

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> Panel:
        note = Text(printable(self._note, keep_lines=True), style="dim")
        parts = Group(note, self._times(), Text(conserved(self._counts)), self._table())
        return Panel(parts, title=cell(self._title))

    def _times(self) -> Text:
        """Draw the watermark on a line of time that ends at the clock."""
        now, mark = time.time_ns() // 1_000_000, self._progress.watermark
        if self._started is None or mark in (NEVER, FOREVER):
            text = "no watermark yet" if mark == NEVER else "at the end of time: every window is closed"
            return Text(f"clock {_at(now)}   {text}", style="bold")
        span = max(now - self._started, 1)
        done = min(max(round((mark - self._started) / span * _WIDTH), 0), _WIDTH)
        line = (
            Text("━" * done, style="green") + Text("╸", style="bold green") + Text("─" * (_WIDTH - done), style="dim")
        )
        idle = f"   idle: partition {printable(', '.join(self._progress.idle))}" if self._progress.idle else ""
        lag = f"clock {_at(now)}   watermark {_at(mark)}   {duration((now - mark) / 1000)} behind{idle}"
        return Text(lag + "\n", style="bold") + line

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        if not self._panes:
            return table
        names = [*_user_columns(self._panes[-1])][:_COLUMNS]
        windowed = START in self._panes[-1]
        for name in (*(["window", "timing", "pane"] if windowed else []), *names):
            number = isinstance(self._panes[-1].get(name), int | float)
            table.add_column(cell(name), justify="right" if number or name == "pane" else "left")
        for pane in self._panes:
            cells = [str(pane.get(name)) for name in names]
            style = ""
            if windowed:
                style = "red strike" if pane[RETRACTION] else COLOURS[pane[TIMING]]
                cells = [f"{_at(pane[START])} – {_at(pane[END])}", pane[TIMING], str(pane[INDEX]), *cells]
            table.add_row(*(cell(text, style) for text in cells))
        return table


def _panes(batch: Delivered) -> list[dict[str, Any]]:
    """Return the new panes ordered by window, or the new elements in their order."""
    found = batch.output.panes if batch.output.panes is not None else batch.output.some
    if found is None:
        return []
    ordered = found.sort(START, maintain_order=True) if START in found.columns else found
    return python_rows(ordered.tail(_MAX_ROWS))


def _user_columns(pane: dict[str, Any]) -> dict[str, Any]:
    """Return the key and value columns of a pane, without Strandline's own columns."""
    return {name: value for name, value in pane.items() if not name.startswith(OWN)}


def _at(ms: int) -> str:
    if ms in (NEVER, FOREVER):
        return "not known yet" if ms == NEVER else "at the end"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")
