"""Define a peer program's order and report: windows by key, counted, summed, and kept if they are checked.

Standard library only: it runs in the peers' environments.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

FLUSH_KEY: Final = -1
"""Key of the flush event, excluded from results."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to read, window length and watermark delay in milliseconds, and where to report."""

    home: Path
    events: str
    length: int
    delay: int
    keep: bool
    servers: str = ""
    count: int = 0
    """Events without the flush."""

    @property
    def panes(self) -> Path:
        """Path of the kept windows, as JSON lines."""
        return self.home / "panes"


def read_order() -> Order:
    """Read the order from the file named last on the command line."""
    path = Path(sys.argv[-1])
    order = Order(path.parent, **json.loads(path.read_text()))
    order.panes.mkdir(exist_ok=True)
    return order


class Heard:
    """Collected output: number of windows, their totals, and all windows if they are kept."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.panes = self.total = self.plays = 0
        self._kept: TextIO | None = (order.panes / "heard.jsonl").open("w") if order.keep else None

    def hear(self, key: int, start: int, total: int, plays: int) -> None:
        """Record one window of a key."""
        if key == FLUSH_KEY:
            return
        self.panes += 1
        self.total += total
        self.plays += plays
        if self._kept is not None:
            end = start + self._order.length
            row = {"key": key, "start_ms": start, "end_ms": end, "total": total, "plays": plays}
            self._kept.write(json.dumps(row) + "\n")

    def tell(self, **facts: Any) -> None:
        """Write the report at the end."""
        if self._kept is not None:
            self._kept.close()
        told = {"panes": self.panes, "total": self.total, "plays": self.plays, **facts}
        (self._order.home / "run.json").write_text(json.dumps(told))
