"""What a program of a peer is told, and what it tells: windows of keys, counted, summed, and kept if they are checked.

Standard library only: it runs in the environments of others.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

FLUSH_KEY: Final = -1
"""Whose the last event is, far ahead of all others; what it says is nobody's."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to read, how long windows are and how far the watermark stays behind, in milliseconds; where to tell."""

    home: Path
    events: str
    length: int
    delay: int
    keep: bool
    servers: str = ""
    count: int = 0
    """Events that are not the flush."""

    @property
    def panes(self) -> Path:
        """Where windows are kept, as lines of JSON."""
        return self.home / "panes"


def read_order() -> Order:
    """The order that stands in the file named last on the command line."""
    path = Path(sys.argv[-1])
    order = Order(path.parent, **json.loads(path.read_text()))
    order.panes.mkdir(exist_ok=True)
    return order


class Heard:
    """What came out: how many windows, what they hold, and all of them if they are to be kept."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.panes = self.total = self.plays = 0
        self._kept: TextIO | None = (order.panes / "heard.jsonl").open("w") if order.keep else None

    def hear(self, key: int, start: int, total: int, plays: int) -> None:
        """One window of a key."""
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
        """That it is over."""
        if self._kept is not None:
            self._kept.close()
        told = {"panes": self.panes, "total": self.total, "plays": self.plays, **facts}
        (self._order.home / "run.json").write_text(json.dumps(told))
