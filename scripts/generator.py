"""Measures every knob of the generator: the table in docs/reference/generator.md, and the picture beside it.

usage: .venv/bin/python scripts/generator.py [--check]

With --check nothing is written: the table must be up to date.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

import strandline as sl
from strandline.connectors.generated.draw_events import EMITTED, POISON, due, events

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "generator.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "generator.svg"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
MANY: Final = 20_000
INK: Final = "#33383f"
COLOURS: Final = ("#3b82c4", "#2e9e6b", "#d98a1f", "#b4437a")

Measure = Callable[[pl.DataFrame], str]


def behind(frame: pl.DataFrame) -> Any:
    """By how many milliseconds an event's time is before the moment it came."""
    return (frame[EMITTED] - frame["at"].dt.epoch("ms")).to_numpy()


def share(found: Any) -> str:
    return f"{100 * np.asarray(found).mean():.1f} %"


def mean(values: pl.Series) -> str:
    return f"{values.to_numpy().mean():.2f}"


KNOBS: Final[tuple[tuple[str, dict[str, Any], str, Measure], ...]] = (
    ("keys=10", {"keys": 10}, "events of the most frequent key", lambda f: share(f["key"] == f["key"].mode()[0])),
    ("keys=1000, skew=1.0", {"keys": 1_000, "skew": 1.0}, "the same", lambda f: share(f["key"] == f["key"].mode()[0])),
    ("disorder=0.2, distance='2s'", {"disorder": 0.2}, "events up to 2 s behind", lambda f: share(behind(f) > 0)),
    ("late=0.01, late_by='1m'", {"late": 0.01}, "events 1 to 2 minutes behind", lambda f: share(behind(f) > 60_000)),
    ("future=0.001, future_by='1d'", {"future": 0.001}, "events a day ahead or more",
     lambda f: share(behind(f) <= -86_400_000)),
    ("duplicates=0.05", {"duplicates": 0.05}, "records that repeat another", lambda f: share(f["id"].is_duplicated() &
     ~f["id"].is_first_distinct())),
    ("poison=0.02", {"poison": 0.02}, "records that are broken", lambda f: share(f[POISON].is_not_null())),
    ("mean=10, spread=3", {}, "mean and deviation of the values",
     lambda f: f"{mean(f['value'])} and {f['value'].to_numpy().std():.2f}"),
    ("mean_per_hour=3600", {"mean_per_hour": 3_600}, "mean of the first and of the last second",
     lambda f: f"{mean(f['value'][:250])} and {mean(f['value'][-250:])}"),
    ("clock_drift={0: 0.01}", {"clock_drift": {0: 0.01}}, "ahead after 80 seconds",
     lambda f: f"{-behind(f)[-1]} ms"),
)  # fmt: skip


def table() -> str:
    """One line a knob: what was asked, what came."""
    lines = ["| setting | measured on partition 0 | result |", "|---|---|---|"]
    for asked, knobs, what, measure in KNOBS:
        frame = events(sl.generator(seed=7, **knobs), 0, 0, MANY, 0)
        lines.append(f"| `{asked}` | {what} | {measure(frame)} |")
    bursts = sl.generator(rate=1_000, bursts=("1m", "5s", 10))
    quiet = sl.generator(rate=1_000, idle={2: ("20s", "40s")})
    counted = [due(bursts, 0, at + 5_000) - due(bursts, 0, at) for at in (0, 5_000)]
    lines.append(
        f"| `bursts=('1m', '5s', 10)` | events of the first 5 s, and of the next | {counted[0]}, {counted[1]} |"
    )
    silent = due(quiet, 2, 39_999) - due(quiet, 2, 19_999)
    lines.append(f"| `idle={{2: ('20s', '40s')}}` | events of partition 2 from 20 s to 40 s | {silent} |")
    return "\n".join(lines) + "\n"


def draw() -> None:
    """When events came against when they happened, a colour a partition."""
    import matplotlib as mpl  # noqa: PLC0415 - only a drawing needs it

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "strandline", "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    ask = sl.generator(
        seed=4, rate=12, disorder=0.3, distance="8s", late=0.03, late_by="20s", poison=0.03,
        bursts=("30s", "4s", 5), idle={2: ("20s", "45s")}, clock_drift={3: 0.2},
    )  # fmt: skip
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    for number, colour in enumerate(COLOURS):
        frame = events(ask, number, 0, due(ask, number, 60_000), 0)
        came, at = frame[EMITTED].to_numpy() / 1000, frame["at"].dt.epoch("ms").to_numpy() / 1000
        whole = frame[POISON].is_null().to_numpy()
        axes.scatter(at[whole], came[whole], s=9, color=colour, linewidths=0, label=f"partition {number}")
        axes.scatter(at[~whole], came[~whole], s=22, color=colour, marker="x", linewidths=1)
    axes.plot([0, 60], [0, 60], color=INK, linewidth=0.6)
    axes.set_xlabel("event time, seconds", color=INK)
    axes.set_ylabel("came at, seconds", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--check", action="store_true")
    given = asked.parse_args()
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = before + BEGIN + table() + END + after
    if given.check:
        print("" if made == page else f"{PAGE.name} is not up to date: run scripts/generator.py")
        return int(made != page)
    PAGE.write_text(made)
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
