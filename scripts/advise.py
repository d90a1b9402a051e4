"""Draw docs/pictures/lateness.svg: the lateness curve of a generated stream. `--check` only compares.

usage: .venv/bin/python scripts/advise.py [--check]
"""

import sys
from pathlib import Path
from typing import Final

import polars as pl

import strandline as sl
from strandline.advise.plot import plot
from strandline.advise.report import Requirements, advise
from strandline.advise.sample import Columns, Origin, sample_of
from strandline.connectors.generated.draw_events import EMITTED, due, events

PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "lateness.svg"
START: Final = 1_700_000_000_000


def picture() -> str:
    """Plot ten minutes of a stream: a third of it out of order, one in fifty more than half a minute late."""
    source = sl.generator(seed=7, rate=80, keys=200, disorder=0.3, distance="8s", late=0.02, late_by="30s")
    parts = [
        events(source, number, 0, due(source, number, 600_000), START).with_columns(pl.lit(number).alias("part"))
        for number in range(4)
    ]
    frame = pl.concat(parts)
    columns = Columns("at", ("key",), EMITTED, "part")
    found = advise(sample_of(frame, columns, Origin("events/", "")), Requirements(window=60_000), now=START, cores=2)
    return plot(found)


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        PICTURE.write_text(picture(), encoding="utf-8")
        return 0
    if PICTURE.read_text(encoding="utf-8") != picture():
        print(f"{PICTURE.name} is not up to date: run .venv/bin/python scripts/advise.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
